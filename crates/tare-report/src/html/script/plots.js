"use strict";
// Draws the dense charts with uPlot from the figures of the static chart that each replaces. Tab
// reaches a chart; the left and right arrows read it off point by point.
(() => {
  const styleOf = (name) => {
    const probe = tare.make("span", { class: `probe ${name}` }, document.body);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  const DASHES = { control: [2, 4], c2: [8, 3], c4: [5, 2, 1, 2], c5: [12, 4], c6: [3, 3] };

  // Figures as on the rest of the page: three digits and a unit.
  const digits = (value, count = 3) => {
    if (value === 0) return "0";
    const places = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value)) + 1e-9));
    return value.toFixed(Math.min(places, 6));
  };
  const scaled = (value, steps) => {
    for (const [size, unit] of steps) if (Math.abs(value) >= size * 0.9995) return [value / size, unit];
    const [size, unit] = steps[steps.length - 1];
    return [value / size, unit];
  };
  const UNITS = {
    rate: [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]],
    ns: [[1e9, " s"], [1e6, " ms"], [1e3, " \u00b5s"], [1, " ns"]],
    bytes: [[1e9, " GB"], [1e6, " MB"], [1e3, " kB"], [1, " B"]],
    s: [[3600, " h"], [60, " min"], [1, " s"]],
    share: [[0.01, " %"]],
  };
  const figure = (unit, value) => {
    const [number, suffix] = scaled(value, UNITS[unit]);
    return digits(number) + suffix;
  };
  // Ticks are round, so they need no more digits.
  const tick = (unit, value) => {
    if (value === 0 && unit !== "share") return "0";
    const [number, suffix] = scaled(value, UNITS[unit]);
    return `${Number(number.toPrecision(3))}${suffix}`;
  };
  // Time since the first slice: 5 s, 1:05 min, 8:20 h.
  const clock = (seconds) => {
    if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
    const two = (number) => String(number).padStart(2, "0");
    const all = Math.round(seconds);
    const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
    if (hours === 0) return rest === 0 ? `${minutes} min` : `${minutes}:${two(rest)} min`;
    if (rest > 0) return `${hours}:${two(minutes)}:${two(rest)} h`;
    return minutes === 0 ? `${hours} h` : `${hours}:${two(minutes)} h`;
  };
  const CLOCK_STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const steps = (low, high) => {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) for (const one of [1, 2, 5]) all.push(one * 10 ** power);
    return all.filter((one) => one >= low && one <= high);
  };
  const percentile = (nines) => {
    if (nines === 0) return "0 %";
    const share = 100 * (1 - 10 ** -nines);
    return `${Number(share.toFixed(Math.max(0, Math.ceil(nines) - (nines % 1 === 0 ? 2 : 1)) + (nines % 1 === 0 ? 0 : 1)))} %`;
  };

  // The shape of an environment's points, as in the legend.
  const SHAPES = {
    square: (path, x, y, r) => path.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
    triangle: (path, x, y, r) => { path.moveTo(x, y - 1.15 * r); path.lineTo(x + 1.1 * r, y + 0.85 * r); path.lineTo(x - 1.1 * r, y + 0.85 * r); path.closePath(); },
    diamond: (path, x, y, r) => { path.moveTo(x, y - 1.25 * r); path.lineTo(x + 1.25 * r, y); path.lineTo(x, y + 1.25 * r); path.lineTo(x - 1.25 * r, y); path.closePath(); },
    circle: (path, x, y, r) => { path.moveTo(x + r, y); path.arc(x, y, r, 0, 2 * Math.PI); },
  };
  const points = (shape, filter) => ({
    show: true,
    filter,
    paths: (u, at, from, to, chosen) => {
      const path = new Path2D();
      const radius = 3.6 * devicePixelRatio;
      const one = (index) => {
        const y = u.data[at][index];
        if (y == null) return;
        SHAPES[shape](path, u.valToPos(u.data[0][index], "x", true), u.valToPos(y, "y", true), radius);
      };
      if (chosen) chosen.forEach(one);
      else for (let index = from; index <= to; index += 1) one(index);
      return { fill: path, stroke: null, clip: null, flags: 3 };
    },
  });

  const POINTS_MAX = 80;
  const plot = (host) => {
    const source = JSON.parse(host.querySelector("script").textContent);
    const workload = host.closest("[data-workload]").dataset.workload;
    const still = host.querySelector(".still");
    const room = tare.make("div", { class: "drawn", tabindex: "0", role: "group" });
    room.setAttribute("aria-label", `${source.title}. The left and right arrows read it off, Escape shows all of it again.`);
    let chosen = 0, chart = null, at = 0;
    const nines = source.x_unit === "nines";

    if (source.choices) {
      const label = tare.make("label", { class: "choice" });
      label.append("Counter ");
      const select = tare.make("select", {}, label);
      source.choices.forEach((choice, index) => { tare.make("option", { value: String(index) }, select).textContent = choice.name; });
      select.addEventListener("change", () => { chosen = Number(select.value); draw(); });
      host.append(label);
    }
    host.append(room);

    const draw = () => {
      const lines = (source.choices ? source.choices[chosen] : source).lines;
      const unit = (source.choices ? source.choices[chosen] : source).unit;
      const log = source.log === true;
      const off = tare.offIn(workload);
      const text = styleOf("soft"), rule = styleOf("rule");
      const data = [source.x], series = [{}], bands = [];
      // The environment of each series, for the legend.
      const owner = [null];
      for (const line of lines) {
        const colour = styleOf(line.style);
        const shown = !off.has(line.e);
        if (line.low) {
          const first = data.length;
          data.push(line.high, line.low);
          owner.push(line.e, line.e);
          for (let edge = 0; edge < 2; edge += 1) series.push({ show: shown, width: 0, points: { show: false } });
          bands.push({ series: [first, first + 1], fill: colour.replace("rgb(", "rgba(").replace(")", ", 0.18)") });
        }
        const few = source.x.length <= POINTS_MAX;
        const last = line.y.reduce((end, y, index) => (y == null ? end : index), 0);
        const filter = nines ? () => [last, ...source.x.flatMap((x, index) => (x % 1 === 0 && index < last && line.y[index] != null ? [index] : []))] : null;
        series.push({
          label: line.name, show: shown, stroke: colour, width: 2, spanGaps: nines,
          dash: DASHES[line.style.split(" ")[0]], fill: null,
          points: few || nines ? { ...points(line.shape, filter), fill: colour } : { show: false },
        });
        data.push(line.y);
        owner.push(line.e);
      }
      const axis = { stroke: text, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: "12px system-ui, sans-serif" };
      const options = {
        width: room.clientWidth || 700, height: source.height || 300,
        scales: {
          x: { time: false, range: nines ? (u, low, high) => [low, high] : undefined },
          y: log ? { distr: 3, log: 10 } : { range: (u, low, high) => [Math.min(0, low), high > 0 ? high * 1.06 : 1] },
        },
        axes: [
          { ...axis, values: (u, ticks) => ticks.map((x) => (nines ? (x % 1 === 0 ? percentile(x) : "") : x === 0 ? "0" : clock(x))), incrs: nines ? undefined : CLOCK_STEPS, splits: nines ? (u) => source.x.filter((x) => x % 1 === 0 && x >= u.scales.x.min && x <= u.scales.x.max) : undefined },
          {
            ...axis, size: 64,
            // Ticks of a logarithmic axis: 1, 2, 5, 10.
            splits: log ? (u) => steps(u.scales.y.min, u.scales.y.max) : undefined,
            values: (u, ticks) => ticks.map((y) => (y == null ? "" : tick(unit, y))),
            filter: (u, ticks) => ticks, grid: { ...axis.grid, filter: (u, ticks) => ticks },
          },
        ],
        series, bands,
        legend: { show: false },
        focus: { alpha: 0.2 },
        cursor: { y: false, points: { size: 8 }, drag: { x: true, y: false, setScale: true } },
        hooks: {
          setCursor: [(u) => { if (u.cursor.idx == null || u.cursor.left < 0) { tare.hideTip(); return; } at = u.cursor.idx; showPoint(u, false); }],
        },
      };
      chart?.destroy();
      chart = new uPlot(options, data, room);
      chart.owner = owner;
      chart.unit = unit;
      chart.lines = lines;
    };

    const place = (x) => (nines ? `the fastest ${percentile(x)}` : `${clock(x)}${source.per_column > 1 ? `, ${source.per_column} rounds from here` : ""}`);
    const showPoint = (u, aloud) => {
      const off = tare.offIn(workload);
      const rows = [{ text: place(u.data[0][at]), strong: true }];
      const values = u.lines.filter((line) => !off.has(line.e) && line.y[at] != null).sort((a, b) => b.y[at] - a.y[at]);
      for (const line of values.slice(0, 14)) {
        const spread = line.low && line.low[at] !== line.high[at] ? ` (${figure(u.unit, line.low[at])} to ${figure(u.unit, line.high[at])})` : "";
        const count = line.n ? `, ${line.n[at] ?? ""}` : "";
        rows.push({ text: `${line.name}: ${figure(u.unit, line.y[at])}${source.unit_of ?? ""}${spread}${count}`, style: line.swatch });
      }
      if (values.length > 14) rows.push({ text: `and ${values.length - 14} more` });
      if (values.length === 0) return;
      const box = u.over.getBoundingClientRect();
      const left = box.left + u.valToPos(u.data[0][at], "x");
      tare.showTip(rows, { left, width: 0, top: box.top + 4, bottom: box.bottom });
      if (aloud) tare.announce(rows.map((row) => row.text).join("; "));
    };

    try {
      draw();
    } catch (error) {
      // The static chart remains, with the same figures.
      console.error(error);
      room.remove();
      return;
    }
    still.classList.add("replaced");
    room.addEventListener("keydown", (event) => {
      const last = source.x.length - 1;
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") { draw(); tare.hideTip(); return; }
      if (to === undefined) return;
      event.preventDefault();
      at = Math.min(Math.max(to, 0), last);
      const top = chart.over.clientHeight / 3;
      chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top });
      showPoint(chart, true);
    });
    room.addEventListener("blur", tare.hideTip);
    room.addEventListener("pointerleave", tare.hideTip);
    let wide = room.clientWidth;
    new ResizeObserver(() => {
      if (room.clientWidth === wide || room.clientWidth === 0) return;
      wide = room.clientWidth;
      chart.setSize({ width: wide, height: source.height || 300 });
    }).observe(room);
    tare.themes.add(draw);
    tare.listeners.push((of, off, focus) => {
      if (of !== workload) return;
      chart.batch(() => {
        chart.owner.forEach((e, index) => { if (e !== null && chart.series[index].show === off.has(e)) chart.setSeries(index, { show: !off.has(e) }); });
        const main = focus == null ? null : chart.owner.lastIndexOf(focus);
        chart.setSeries(main, { focus: main !== null });
      });
    });
  };

  // A chart is drawn when it is near the visible part, or unfolded.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) { near.unobserve(entry.target); plot(entry.target); }
  }, { rootMargin: "600px" });
  document.querySelectorAll(".plot").forEach((host) => near.observe(host));
})();
