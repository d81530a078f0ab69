"use strict";
// Draws the flame graphs: one pair of environments at a time, the root at the top.
(() => {
  const { pairs } = JSON.parse(document.getElementById("data").textContent);
  let data = pairs[0];
  const svg = document.getElementById("graph");
  const status = document.getElementById("status");
  const matches = document.getElementById("matches");
  const search = document.getElementById("search");
  const SPACE = "http://www.w3.org/2000/svg";
  const ROW = 18, CHARACTER = 6.7, THIN = 0.5;

  // Nodes: [name, subsystem, from, to, found, children].
  const build = (raw, parent, depth) => {
    const node = {
      name: data.names[raw[0]], subsystem: data.names[raw[1]], from: raw[2], to: raw[3],
      found: raw[4] === 1, parent, depth, children: [], match: false,
    };
    node.children = raw[5].map((child) => build(child, node, depth + 1));
    const sum = (key) => node.children.reduce((all, child) => all + child[key], 0);
    const own = Math.max(node.from - sum("from"), node.to - sum("to"), 0);
    node.difference = own + sum("difference");
    return node;
  };
  let root = build(data.tree, null, 0);
  const depths = (node) => node.children.reduce((most, child) => Math.max(most, depths(child)), node.depth);
  let view = "difference", zoomed = root, here = root, drawn = new Map();

  const hues = new Map();
  const HUES = [28, 200, 95, 320, 50, 260, 170, 0, 230, 130, 290, 70, 185, 345, 150, 215];
  const hue = (subsystem) => {
    if (!hues.has(subsystem)) hues.set(subsystem, HUES[hues.size % HUES.length]);
    return hues.get(subsystem);
  };
  const colour = (node) => {
    if (view !== "difference") return `hsl(${hue(node.subsystem)} 62% 72%)`;
    const change = node.to - node.from;
    if (!node.found) return "var(--noise)";
    const strength = Math.min(1, Math.abs(change) / (0.35 * Math.max(node.from, node.to)));
    const light = 82 - 26 * strength;
    return change > 0 ? `hsl(25 85% ${light}%)` : `hsl(208 75% ${light}%)`;
  };
  const microseconds = (value) => value.toFixed(value < 0.1 ? 4 : 3);
  const signed = (value) => (value >= 0 ? "+" : "\u2212") + microseconds(Math.abs(value));
  const describe = (node) => {
    const change = node.to - node.from;
    const gone = node.to === 0 && node.from > 0 ? ", gone" : node.from === 0 && node.to > 0 ? ", new" : "";
    const noise = node.found ? gone : ", within the noise";
    return `${node.name} \u2014 mostly ${node.subsystem} \u2014 ${data.from}: ${microseconds(node.from)} \u00b5s, ` +
      `${data.to}: ${microseconds(node.to)} \u00b5s, difference ${signed(change)} \u00b5s per operation${noise}`;
  };

  const element = (name, attributes, parent) => {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.appendChild(made);
    return made;
  };
  const place = (node, x, width, above) => {
    const group = element("g", { class: above ? "above" : "" }, svg);
    const y = node.depth * ROW;
    element("rect", { x, y, width: Math.max(width, 0.3), height: ROW - 1, fill: colour(node), rx: 1 }, group);
    const room = Math.floor((width - 6) / CHARACTER);
    if (room >= 3) {
      const label = element("text", { x: x + 3, y: y + 12.5 }, group);
      label.textContent = node.name.length <= room ? node.name : node.name.slice(0, room - 1) + "\u2026";
      if (view === "difference" && !node.found) label.style.fill = "var(--ink)";
    }
    element("title", {}, group).textContent = describe(node);
    group.classList.toggle("match", node.match);
    group.classList.toggle("here", node === here);
    group.addEventListener("click", () => { go(node); zoom(node); });
    group.addEventListener("mouseenter", () => { status.textContent = describe(node); });
    drawn.set(node, group);
  };
  const draw = () => {
    const width = svg.clientWidth || 960;
    svg.setAttribute("height", (depths(root) + 1) * ROW);
    svg.setAttribute("viewBox", `0 0 ${width} ${(depths(root) + 1) * ROW}`);
    svg.replaceChildren();
    drawn = new Map();
    for (let node = zoomed.parent; node; node = node.parent) place(node, 0, width, true);
    const whole = zoomed[view] || 1;
    const walk = (node, x) => {
      const wide = node[view] / whole * width;
      if (wide < THIN) return;
      place(node, x, wide, false);
      let at = x;
      const children = node.children.slice().sort((a, b) => a.name < b.name ? -1 : 1);
      for (const child of children) { walk(child, at); at += child[view] / whole * width; }
    };
    walk(zoomed, 0);
  };
  const zoom = (node) => { zoomed = node; draw(); };
  const go = (node) => {
    drawn.get(here)?.classList.remove("here");
    here = node;
    drawn.get(here)?.classList.add("here");
    status.textContent = describe(node);
  };
  const show = (name) => {
    view = name;
    for (const button of document.querySelectorAll("[data-view]")) {
      button.setAttribute("aria-pressed", String(button.dataset.view === view));
    }
    draw();
  };
  const choose = (index) => {
    data = pairs[index];
    root = build(data.tree, null, 0);
    zoomed = here = root;
    document.querySelector('[data-view="from"]').textContent = data.from;
    document.querySelector('[data-view="to"]').textContent = data.to;
    draw();
    find();
  };
  const find = () => {
    const word = search.value.trim().toLowerCase();
    let from = 0, to = 0, count = 0;
    const walk = (node, inside) => {
      node.match = word !== "" && (node.name.toLowerCase().includes(word) || (node.children.length === 0 && node.subsystem.toLowerCase().includes(word)));
      if (node.match) {
        count += 1;
        if (!inside) { from += node.from; to += node.to; }
      }
      for (const child of node.children) walk(child, inside || node.match);
    };
    walk(root, false);
    for (const [node, group] of drawn) group.classList.toggle("match", node.match);
    matches.textContent = word === "" ? "" :
      `${count} frames: ${microseconds(from)} \u2192 ${microseconds(to)} \u00b5s (${signed(to - from)})`;
  };
  const beside = (step) => {
    if (!here.parent) return null;
    const seen = here.parent.children.filter((node) => drawn.has(node)).sort((a, b) => a.name < b.name ? -1 : 1);
    return seen[seen.indexOf(here) + step];
  };
  svg.addEventListener("keydown", (event) => {
    const widest = () => here.children.filter((node) => drawn.has(node)).sort((a, b) => b[view] - a[view])[0];
    const moves = {
      ArrowUp: () => here.parent, ArrowDown: widest,
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
    };
    if (moves[event.key]) { const next = moves[event.key](); if (next) go(next); }
    else if (event.key === "Enter" || event.key === " ") zoom(here);
    else if (event.key === "Escape") { zoom(root); go(root); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== search) { search.focus(); event.preventDefault(); }
  });
  document.getElementById("pair")?.addEventListener("change", (event) => choose(Number(event.target.value)));
  search.addEventListener("input", find);
  document.getElementById("reset").addEventListener("click", () => { zoom(root); go(root); });
  for (const button of document.querySelectorAll("[data-view]")) {
    button.addEventListener("click", () => show(button.dataset.view));
  }
  window.addEventListener("resize", draw);
  draw();
})();