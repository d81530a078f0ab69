// Uses a flame graph like a reader: search, zoom by mouse and by keyboard, and the three views.

const FRAMES = "#graph g";

/** Returns every drawn frame with its position and name. */
function frames(selector) {
  return [...document.querySelectorAll(selector)].map((group) => {
    const { x, y, width, height } = group.querySelector("rect").getBoundingClientRect();
    return {
      name: group.querySelector("title").textContent.split(" \u2014 ")[0],
      match: group.classList.contains("match"), x, y, width, height,
    };
  });
}

const focus = (id) => { document.getElementById(id).focus(); };
const text = (id) => document.getElementById(id).textContent;
const show = (id) => { document.getElementById(id).scrollIntoView({ block: "center" }); };

export async function has_flame_graph(tab) {
  return tab.run(() => document.querySelector("svg#graph") !== null);
}

export async function flame(tab) {
  const found = [];
  const expect = (holds, what) => { if (!holds) found.push(`flame graph: ${what}`); };
  const drawn = () => tab.run(frames, FRAMES);
  await tab.run(show, "graph");
  const all = await drawn();
  const whole = all[0];
  const target = all.find((frame) => frame.width > 20 && frame.width < 0.9 * whole.width && !frame.name.includes("\u2026"));
  expect(all.length >= 3, `only ${all.length} frames`);
  if (!target) return [...found, "flame graph: no frame to zoom into"];

  await tab.press("/");
  expect(await tab.run(() => document.activeElement.id) === "search", "/ does not go to the search");
  await tab.type(target.name.toUpperCase());
  const searched = await drawn();
  const matching = searched.filter((frame) => frame.match);
  expect(matching.length > 0, `the search for ${target.name} highlights nothing`);
  expect(matching.length < searched.length, `the search for ${target.name} highlights everything`);
  expect(/^[1-9]\d* frames: /.test(await tab.run(text, "matches")), "the search does not say how many");
  await tab.run(() => {
    const search = document.getElementById("search");
    search.value = "";
    search.dispatchEvent(new Event("input"));
  });
  expect(!(await drawn()).some((frame) => frame.match), "an empty search highlights something");

  await tab.run(show, "graph");
  const spot = (await drawn()).find((frame) => frame.name === target.name && Math.abs(frame.width - target.width) < 1);
  await tab.click(spot.x + spot.width / 2, spot.y + spot.height / 2);
  const zoomed = (await drawn()).find((frame) => frame.name === target.name);
  expect(zoomed && zoomed.width > 0.98 * whole.width, `a click on ${target.name} does not zoom`);
  expect((await tab.run(text, "status")).startsWith(target.name), "the frame that was clicked is not described");
  await tab.run(() => document.getElementById("reset").click());
  expect((await drawn()).length === all.length, "reset does not show everything again");

  await tab.run(focus, "graph");
  await tab.press("ArrowDown");
  await tab.press("ArrowDown");
  const said = await tab.run(text, "status");
  await tab.press("Enter");
  const entered = await drawn();
  const here = entered.find((frame) => said.startsWith(frame.name));
  expect(here && here.width > 0.98 * whole.width, "Enter does not zoom");
  await tab.press("Escape");
  expect((await drawn()).length === all.length, "Escape does not go back");

  for (const view of ["from", "to", "difference"]) {
    await tab.run((name) => document.querySelector(`[data-view="${name}"]`).click(), view);
    const pressed = await tab.run(() => [...document.querySelectorAll("[data-view][aria-pressed=true]")].map((one) => one.dataset.view));
    expect(pressed.join() === view && (await drawn()).length > 1, `the view ${view} is not shown`);
  }
  const others = await tab.run(() => (document.getElementById("pair")?.options.length ?? 1) - 1);
  for (const index of [...Array(others).keys()].map((index) => index + 1).concat(others > 0 ? [0] : [])) {
    await tab.run((at) => {
      const pair = document.getElementById("pair");
      pair.value = String(at);
      pair.dispatchEvent(new Event("change"));
    }, index);
    expect((await drawn()).length >= 3, `pair ${index} is not drawn`);
  }
  return found;
}
