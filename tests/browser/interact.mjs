// Uses the charts of a page like a reader: the switch of light and dark, the marks by mouse and
// keyboard, the legend, and the plots.

/** Returns the text of the tooltip, or null while it is hidden. `outside` if it leaves the window. */
function tip() {
  const one = document.querySelector(".tip");
  if (!one || one.hidden) return null;
  const box = one.getBoundingClientRect();
  const outside = box.left < 0 || box.top < 0 || box.right > innerWidth + 1 || box.bottom > innerHeight + 1;
  return { text: one.innerText.trim(), outside };
}

/** Returns the brightness of the page's background, 0 to 255. */
function ground() {
  const parts = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number);
  return (parts[0] + parts[1] + parts[2]) / 3;
}

/** Scrolls to the first visible element of a selector, and returns its centre. */
function middle(selector) {
  const one = [...document.querySelectorAll(selector)].find((each) => each.checkVisibility());
  if (!one) return null;
  one.scrollIntoView({ block: "center" });
  const { x, y, width, height } = one.getBoundingClientRect();
  return { x: x + width / 2, y: y + height / 2 };
}

const focus = (selector) => {
  const one = [...document.querySelectorAll(selector)].find((each) => each.checkVisibility());
  one?.focus();
  return one !== undefined && document.activeElement === one;
};

/** Whether the page has interactive charts. */
export function is_live(tab) {
  return tab.run(() => document.documentElement.classList.contains("live"));
}

async function theme(tab, expect) {
  const before = await tab.run(ground);
  const press = () => tab.run(() => document.querySelector("button.theme").click());
  await press();
  await tab.settle();
  expect(Math.abs(await tab.run(ground) - before) > 100, "the switch of light and dark does not change the page");
  await press();
  await tab.settle();
  expect(await tab.run(ground) === before, "the switch of light and dark does not go back");
}

async function marks(tab, expect) {
  const selector = "svg.chart .has-tip[tabindex='0']";
  const spot = await tab.run(middle, selector);
  if (!spot) return;
  await tab.settle();
  expect(await tab.run(focus, selector), "a mark takes no focus");
  const first = await tab.run(tip);
  expect(first?.text, "a mark that has the focus says nothing");
  expect(!first?.outside, `the tooltip leaves the window: ${first?.text}`);
  const label = () => tab.run(() => document.activeElement.getAttribute("aria-label"));
  const before = await label();
  await tab.press("End");
  expect(await label() !== before || await tab.run(() => document.querySelectorAll("svg.chart .has-tip").length === 1), "End does not go to the last mark");
  expect((await tab.run(tip))?.text, "the last mark says nothing");
  await tab.press("Escape");
  expect(await tab.run(tip) === null, "Escape leaves the tooltip");
  await tab.run(() => document.activeElement.blur());
  const again = await tab.run(middle, selector);
  await tab.settle();
  await tab.hover(again.x, again.y);
  expect((await tab.run(tip))?.text, "a mark under the pointer says nothing");
  await tab.hover(1, 1);
}

async function legend(tab, expect) {
  const shown = () => tab.run(() => [...document.querySelectorAll("main [data-e]")].filter((one) => !one.matches("button") && !one.classList.contains("off")).length);
  const spot = await tab.run(middle, ".legend[data-switch] button[data-e]");
  if (!spot) return;
  await tab.settle();
  const before = await shown();
  const pressed = () => tab.run(() => document.querySelector(".legend[data-switch] button[data-e]").getAttribute("aria-pressed"));
  const { x, y } = await tab.run(middle, ".legend[data-switch] button[data-e]");
  await tab.click(x, y);
  expect(await pressed() === "false", "a click on the legend is not shown on its button");
  expect(await shown() < before, "a click on the legend hides nothing");
  await tab.run(focus, ".legend[data-switch] button[data-e]");
  await tab.press("Enter");
  expect(await pressed() === "true" && await shown() === before, "Enter on the legend does not show it again");
}

async function plots(tab, expect) {
  const count = await tab.run(() => document.querySelectorAll(".plot .drawn").length);
  for (let index = 0; index < count; index += 1) {
    const name = await tab.run((at) => {
      const room = document.querySelectorAll(".plot .drawn")[at];
      if (!room.checkVisibility()) return null;
      room.scrollIntoView({ block: "center" });
      room.focus();
      return room.getAttribute("aria-label").split(".")[0];
    }, index);
    if (name === null) continue;
    await tab.settle();
    await tab.press("Home");
    const first = await tab.run(tip);
    expect(first?.text, `the plot "${name}" says nothing by keyboard`);
    expect(!first?.outside, `the tooltip of "${name}" leaves the window`);
    await tab.press("ArrowRight");
    expect(await tab.run(() => document.querySelector(".spoken").textContent.trim() !== ""), `the plot "${name}" is not read aloud`);
    await tab.press("Escape");
  }
}

/** A link opens the folded section that it leads into; print opens all of them. */
async function folds(tab, expect) {
  const fold = () => tab.run(() => { for (const one of document.querySelectorAll("details")) one.open = false; });
  const closed = () => tab.run(() => document.querySelectorAll("details:not([open])").length);
  const places = await tab.run(() => {
    const own = [...document.querySelectorAll("section[id] > details.fold, li[id] > details.fold")].map((one) => one.parentElement.id);
    const inside = [...document.querySelectorAll("details.fold [id]")].filter((one) => one.getBoundingClientRect().height > 0).map((one) => one.id);
    return [own.at(-1), own[0], inside.at(-1)].filter(Boolean);
  });
  for (const id of places) {
    await fold();
    await tab.run((to) => { location.hash = `#${to}`; }, id);
    await tab.settle();
    const open = await tab.run((to) => {
      const target = document.getElementById(to);
      const own = target.querySelector(":scope > details.fold");
      return target.checkVisibility() && (!own || own.open);
    }, id);
    expect(open, `a link to #${id} does not open its folded section`);
  }
  await fold();
  const before = await closed();
  await tab.run(() => { dispatchEvent(new Event("beforeprint")); });
  expect(await closed() === 0, "something stays folded in print");
  await tab.run(() => { dispatchEvent(new Event("afterprint")); });
  expect(await closed() === before, "printing leaves the page unfolded");
  await tab.run(() => {
    history.replaceState(null, "", location.pathname);
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
  await tab.settle();
}

export async function interact(tab) {
  const found = [];
  const expect = (holds, what) => { if (!holds) found.push(what); };
  for (const part of [theme, marks, legend, plots, folds]) await part(tab, expect);
  await tab.run(() => { document.activeElement?.blur(); scrollTo(0, 0); });
  return found;
}
