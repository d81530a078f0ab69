// Checks pages in headless Chromium, at the widths of a desktop and a phone, light and dark.
//
// Usage: check.mjs FILE.html|PAGES.json ...
// PAGES.json is a list of { file, title?, texts?, never?, views? }: a file in the same folder, the
// exact title, texts that the page must show, selectors that must match nothing, and the names of
// views in VIEWS (default: all). Environment variables: TARE_AXE (axe.min.js), TARE_CHROMIUM
// (default: chromium), TARE_SHOTS (a folder for screenshots). Exits with 0 without complaints.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Browser } from "./chromium.mjs";
import { flame, has_flame_graph } from "./flame.mjs";
import { interact, is_live } from "./interact.mjs";
import * as inside from "./inside.mjs";

const VIEWS = [
  { name: "desk-light", width: 1280, height: 900, phone: false, dark: false },
  { name: "desk-dark", width: 1280, height: 900, phone: false, dark: true },
  { name: "phone-light", width: 390, height: 844, phone: true, dark: false },
  { name: "phone-dark", width: 390, height: 844, phone: true, dark: true },
];
/** The time limit of the whole run, in ms. */
const ALL_MS_MAX = 420_000;
/** The number of pages that are checked at the same time. */
const TABS = 2;

const axe = readFileSync(process.env.TARE_AXE, "utf8");
const shots = process.env.TARE_SHOTS;
const say = (line) => process.stderr.write(`${line}\n`);

/** The pages of the command line as one list. */
function pages(arguments_) {
  return arguments_.flatMap((path) => {
    if (!path.endsWith(".json")) return [{ file: resolve(path) }];
    const list = JSON.parse(readFileSync(path, "utf8"));
    return list.map((page) => ({ ...page, file: resolve(dirname(path), page.file) }));
  });
}

/** Checks one page in one view. Returns `{ complaints, notes }`. */
async function look(browser, page, view) {
  const tab = await browser.tab(view);
  try {
    await tab.open(pathToFileURL(page.file).href);
    if (shots) {
      await tab.run(inside.charts);
      const name = join(shots, `${basename(page.file, ".html")}-${view.name}`);
      (await tab.shots(1500, 12)).forEach((png, index) => writeFileSync(`${name}-${index + 1}.png`, png));
    }
    const complaints = [...await tab.run(inside.overflow)];
    await tab.run(inside.unfold);
    await tab.settle();
    complaints.push(...await tab.run(inside.charts));
    for (const complaint of await tab.run(inside.overflow)) {
      if (!complaints.includes(complaint)) complaints.push(`unfolded: ${complaint}`);
    }
    complaints.push(...await tab.run(inside.contrast), ...await tab.run(inside.links));
    complaints.push(...await tab.run(inside.words, page.texts ?? [], page.never ?? [], page.title ?? ""));
    if (await is_live(tab)) complaints.push(...await interact(tab));
    if (await has_flame_graph(tab)) complaints.push(...await flame(tab));
    await tab.evaluate(`${axe}; undefined`);
    const { violations, notes } = await tab.run(inside.axe_run);
    complaints.push(...violations);
    if (view === VIEWS[0]) {
      const sheets = (await tab.pdf()).toString("latin1").match(/\/Type\s*\/Page\b/g)?.length ?? 0;
      if (sheets === 0) complaints.push("prints no sheet");
    }
    return { complaints: [...complaints, ...tab.complaints], notes };
  } finally {
    await tab.close().catch(() => {});
  }
}

async function main() {
  const list = pages(process.argv.slice(2));
  if (list.length === 0) throw new Error("usage: check.mjs FILE.html|PAGES.json ...");
  if (shots) mkdirSync(shots, { recursive: true });
  const work = list.flatMap((page) => VIEWS.filter((view) => page.views?.includes(view.name) ?? true).map((view) => ({ page, view })));
  const browser = await Browser.launch(process.env.TARE_CHROMIUM ?? "chromium");
  const late = setTimeout(async () => {
    say(`browser: not done after ${ALL_MS_MAX / 1000} s`);
    await browser.close();
    process.exit(3);
  }, ALL_MS_MAX);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.once(signal, async () => { await browser.close(); process.exit(130); });
  }
  let bad = 0;
  try {
    const next = work.values();
    await Promise.all(Array.from({ length: TABS }, async () => {
      for (const { page, view } of next) {
        const name = `${basename(page.file)} ${view.name}`;
        const started = performance.now();
        const { complaints, notes } = await look(browser, page, view);
        say(`${complaints.length === 0 ? "ok" : "BAD"} ${name} (${(performance.now() - started).toFixed(0)} ms)`);
        for (const note of notes) say(`  note: ${note}`);
        for (const complaint of complaints) say(`  ${complaint}`);
        bad += complaints.length;
      }
    }));
  } finally {
    clearTimeout(late);
    await browser.close();
  }
  say(`browser: ${work.length} views of ${list.length} pages, ${bad} complaints`);
  return bad === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error) => { say(`browser: ${error.stack}`); return 2; });
