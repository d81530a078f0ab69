"use strict";
// The switch between light and dark, the tooltip, the marks of the static charts by mouse and
// keyboard, the folded sections, and the legends, which hide an environment in all charts of its workload. Without this
// script a page still shows every figure.
const tare = (() => {
  const make = (name, attributes, parent) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  };

  // Light and dark: the system's setting until the button changes it.
  const themes = new Set();
  const theme = () => {
    const root = document.documentElement;
    const button = make("button", { type: "button", class: "theme" });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const label = () => { button.textContent = isDark() ? "Light page" : "Dark page"; };
    const change = () => { label(); for (const redraw of themes) redraw(); };
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; change(); });
    dark.addEventListener("change", change);
    label();
    document.body.prepend(button);
    const skip = document.querySelector(".skip");
    if (skip) skip.after(button);
  };

  // One tooltip for all charts.
  const tip = make("div", { class: "tip", hidden: "", "aria-hidden": "true" });
  const spoken = make("div", { class: "spoken", role: "status" });
  const showTip = (rows, box) => {
    tip.replaceChildren();
    for (const row of rows) {
      const line = make("div", {}, tip);
      if (row.style) line.append(swatch(row.style));
      line.append(row.text);
      if (row.strong) line.className = "strong";
    }
    tip.hidden = false;
    placeTip(box);
  };
  const placeTip = (box) => {
    const room = tip.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = Math.min(Math.max(4, box.left + box.width / 2 - room.width / 2), wide - room.width - 4);
    const above = box.top - room.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : Math.min(box.bottom + 12, innerHeight - room.height - 4)}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  const announce = (text) => { spoken.textContent = text; };

  // The swatch of an environment, taken from the legend.
  const swatches = new Map();
  const swatch = (style) => {
    const known = swatches.get(style);
    return known ? known.cloneNode(true) : document.createTextNode("");
  };

  const showMark = (mark) => {
    const style = mark.closest("[data-style]")?.dataset.style;
    showTip([{ text: mark.getAttribute("aria-label"), style }], mark.getBoundingClientRect());
  };

  // Each mark has a <title>, which becomes the tooltip. One mark per chart is in the tab order;
  // arrows move between marks.
  const marks = (svg) => {
    const all = [];
    for (const title of svg.querySelectorAll("title")) {
      const mark = title.parentElement;
      if (mark === svg) continue;
      const name = mark.closest("[data-name]")?.dataset.name;
      const text = name ? `${name}: ${title.textContent}` : title.textContent;
      if (!text) continue;
      title.remove();
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", text);
      mark.setAttribute("tabindex", all.length === 0 ? "0" : "-1");
      mark.classList.add("has-tip");
      all.push(mark);
    }
    if (all.length === 0) return;
    svg.setAttribute("role", "group");
    const markOf = (event) => event.target.closest?.(".has-tip");
    svg.addEventListener("pointerover", (event) => { const mark = markOf(event); if (mark) showMark(mark); });
    svg.addEventListener("pointerout", hideTip);
    svg.addEventListener("focusin", (event) => {
      const mark = markOf(event);
      if (!mark) return;
      for (const one of all) one.setAttribute("tabindex", one === mark ? "0" : "-1");
      showMark(mark);
    });
    svg.addEventListener("focusout", hideTip);
    svg.addEventListener("keydown", (event) => {
      const here = all.indexOf(document.activeElement);
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -here, End: all.length - 1 - here };
      if (here < 0 || !(event.key in steps)) return;
      event.preventDefault();
      const step = Math.sign(steps[event.key]) || 1;
      let next = here + steps[event.key];
      while (all[next]?.closest(".off")) next += event.key === "Home" ? 1 : event.key === "End" ? -1 : step;
      all[next]?.focus();
    });
  };

  // The hidden environments of each workload.
  const hidden = new Map();
  const listeners = [];
  const offIn = (workload) => {
    if (!hidden.has(workload)) hidden.set(workload, new Set());
    return hidden.get(workload);
  };
  const apply = (workload) => {
    const off = offIn(workload);
    for (const part of document.querySelectorAll(`[data-workload="${workload}"] [data-e]`)) {
      const gone = off.has(part.dataset.e);
      if (part.matches(".legend button")) part.setAttribute("aria-pressed", String(!gone));
      else part.classList.toggle("off", gone);
    }
    for (const back of document.querySelectorAll(`[data-workload="${workload}"] .legend .all`)) back.hidden = off.size === 0;
    for (const listener of listeners) listener(workload, off);
  };
  const legend = (list) => {
    const workload = list.closest("[data-workload]").dataset.workload;
    const all = [...list.children].map((item) => item.dataset.e);
    for (const item of [...list.children]) {
      const { e, style } = item.dataset;
      swatches.set(style, item.querySelector("svg"));
      const button = make("button", { type: "button", "aria-pressed": "true", "data-e": e });
      item.removeAttribute("data-e");
      button.title = "Hide or show in all charts; with Shift: only this one";
      button.append(...item.childNodes);
      item.append(button);
      button.addEventListener("click", (event) => {
        const off = offIn(workload);
        if (event.shiftKey) { off.clear(); for (const one of all) if (one !== e) off.add(one); }
        else if (!off.delete(e)) off.add(e);
        apply(workload);
      });
      const focus = (on) => () => { for (const listener of listeners) listener(workload, offIn(workload), on ? e : null); };
      button.addEventListener("pointerenter", focus(true));
      button.addEventListener("pointerleave", focus(false));
      button.addEventListener("focus", focus(true));
      button.addEventListener("blur", focus(false));
    }
    const back = make("button", { type: "button", class: "all", hidden: "" }, make("li", {}, list));
    back.textContent = "show all";
    back.addEventListener("click", () => { offIn(workload).clear(); apply(workload); });
  };

  // A folded section opens for a link into it, and everything opens to be printed.
  const unfold = () => {
    let id = "";
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.matches("details")) one.open = true;
    const own = target.querySelector(":scope > details.fold");
    if (own) own.open = true;
    target.scrollIntoView();
  };
  const folds = () => {
    addEventListener("hashchange", unfold);
    // A second click on the same link changes no hash.
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[href^='#']");
      if (link && link.getAttribute("href") === location.hash) unfold();
    });
    let closed = [];
    addEventListener("beforeprint", () => {
      closed = [...document.querySelectorAll("details:not([open])")];
      for (const one of closed) one.open = true;
    });
    addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
    unfold();
  };

  const start = () => {
    document.documentElement.classList.add("live");
    theme();
    document.body.append(tip, spoken);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    // Focus scrolls to its mark; the tooltip follows while the mark is visible.
    addEventListener("scroll", () => {
      if (tip.hidden) return;
      const box = document.activeElement.matches(".has-tip") ? document.activeElement.getBoundingClientRect() : null;
      if (box && box.bottom > 0 && box.top < innerHeight) placeTip(box);
      else hideTip();
    }, { passive: true });
    document.querySelectorAll(".legend[data-switch]").forEach(legend);
    document.querySelectorAll("svg.chart").forEach(marks);
    folds();
  };
  return { make, showTip, hideTip, announce, themes, listeners, offIn, start };
})();
tare.start();
