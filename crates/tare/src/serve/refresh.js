// Reloads the page when it has changed, at the same scroll position and with the same details open.
"use strict";
(() => {
  const KEY = "tare-place";
  const details = () => Array.from(document.querySelectorAll("details"));
  const kept = sessionStorage.getItem(KEY);
  if (kept) {
    sessionStorage.removeItem(KEY);
    const { x, y, open } = JSON.parse(kept);
    details().forEach((one, at) => { if (at in open) one.open = open[at]; });
    scrollTo(x, y);
  }
  const say = (text) => {
    let line = document.getElementById("tare-live");
    if (!line) {
      line = document.createElement("p");
      line.id = "tare-live";
      line.setAttribute("role", "status");
      Object.assign(line.style, {
        position: "fixed", right: "8px", bottom: "8px", margin: "0", padding: "4px 12px",
        font: "14px system-ui, sans-serif", background: "#1b1d1f", color: "#ffffff",
        borderRadius: "6px", zIndex: "9",
      });
      document.body.append(line);
    }
    if (line.textContent !== text) line.textContent = text;
  };
  const version = Number(new URL(document.currentScript.src).searchParams.get("version"));
  let ended = false, failures = 0;
  // Do not reload while the user selects text or types.
  const busy = () => {
    const at = document.activeElement;
    return document.hidden || !getSelection().isCollapsed || (at && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName));
  };
  const poll = async () => {
    try {
      const state = await (await fetch("/state", { cache: "no-store" })).json();
      failures = 0;
      ended = state.ended;
      if (state.version !== version && !busy()) {
        const open = details().map((one) => one.open);
        sessionStorage.setItem(KEY, JSON.stringify({ x: scrollX, y: scrollY, open }));
        location.reload();
        return;
      }
      say(ended ? "The study has ended." : "Live: refreshed between rounds.");
    } catch {
      failures += 1;
      if (failures > 1) say(ended ? "The study has ended. This page is no longer served." : "This page is no longer served.");
    }
    if (failures < 30) setTimeout(poll, 2000);
  };
  poll();
})();
