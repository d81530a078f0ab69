// Drives headless Chromium by its protocol (https://chromedevtools.github.io/devtools-protocol/) over
// two pipes.
//
// There is no driver library: puppeteer-core needs a newer Node than the distribution has, and seven
// packages for what takes 150 lines here. A pipe opens no port, and Chromium ends when the other end
// closes, so that nothing is left behind even if this process is killed.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The time limit of a command, in ms. */
const COMMAND_MS_MAX = 60_000;

const FLAGS = [
  "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check",
  "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
  "--disable-extensions", "--disable-sync", "--disable-gpu", "--disable-dev-shm-usage",
  "--disable-breakpad", "--metrics-recording-only", "--mute-audio", "--hide-scrollbars",
  "--password-store=basic", "--force-color-profile=srgb", "--font-render-hinting=none",
  // Every request of a page fails.
  "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
];

/** The browser: a separate process group, and a profile in a temporary folder. */
export class Browser {
  #process; #folder; #next = 1; #waiting = new Map(); #listeners = new Map(); #said = "";

  static async launch(program) {
    const browser = new Browser();
    await browser.#start(program);
    return browser;
  }

  async #start(program) {
    // The name is short, because the path of a socket in it must stay below 108 bytes.
    this.#folder = mkdtempSync(join(tmpdir(), "tare-"));
    // Chromium's sandbox refuses to run as root, and the other tests need root.
    const root = process.getuid() === 0 ? ["--no-sandbox"] : [];
    const flags = [...FLAGS, ...root, `--user-data-dir=${this.#folder}`, "about:blank"];
    this.#process = spawn(program, flags, {
      stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
      detached: true,
      // Files outside of the profile are removed with it.
      env: {
        ...process.env, HOME: this.#folder, TMPDIR: this.#folder,
        XDG_CONFIG_HOME: this.#folder, XDG_CACHE_HOME: this.#folder,
      },
    });
    this.ended = new Promise((resolve) => this.#process.once("close", resolve));
    this.#process.once("error", (error) => this.#fail(`cannot start ${program}: ${error.message}`));
    this.#process.once("exit", (code, signal) => this.#fail(`chromium ended (${signal ?? code})`));
    this.#process.stderr.on("data", (data) => { this.#said = (this.#said + data).slice(-4000); });
    for (const pipe of [3, 4]) this.#process.stdio[pipe].on("error", () => {});
    let rest = [];
    this.#process.stdio[4].on("data", (data) => {
      let from = 0;
      for (let end = data.indexOf(0); end >= 0; end = data.indexOf(0, from)) {
        this.#receive(JSON.parse(Buffer.concat([...rest, data.subarray(from, end)]).toString()));
        rest = [];
        from = end + 1;
      }
      rest.push(data.subarray(from));
    });
    await this.send("Browser.getVersion");
  }

  /** Fails every pending command, with the last output of the browser. */
  #fail(why) {
    this.dead ??= `${why}\n${this.#said}`;
    for (const { reject } of this.#waiting.values()) reject(new Error(this.dead));
    this.#waiting.clear();
  }

  #receive(message) {
    if (message.id === undefined) {
      for (const listen of this.#listeners.get(message.sessionId) ?? []) listen(message);
      return;
    }
    const { resolve, reject, method } = this.#waiting.get(message.id) ?? {};
    this.#waiting.delete(message.id);
    if (message.error) reject?.(new Error(`${method}: ${message.error.message}`));
    else resolve?.(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    if (this.dead) return Promise.reject(new Error(this.dead));
    const id = this.#next++;
    this.#process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error(`${method}: no answer in ${COMMAND_MS_MAX / 1000} s`));
      }, COMMAND_MS_MAX);
      const done = (settle) => (value) => { clearTimeout(late); settle(value); };
      this.#waiting.set(id, { resolve: done(resolve), reject: done(reject), method });
    });
  }

  /** Opens a tab in a fresh context. `view` has width, height, dark and phone. */
  async tab(view) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const listeners = [];
    this.#listeners.set(sessionId, listeners);
    const tab = new Tab(this, sessionId, browserContextId, listeners);
    await tab.prepare(view);
    return tab;
  }

  /** Ends the browser's own process group and removes its profile. May be called twice. */
  async close() {
    if (this.#process?.pid && this.#process.exitCode === null && this.#process.signalCode === null) {
      try { process.kill(-this.#process.pid, "SIGKILL"); } catch { /* it has just ended */ }
    }
    if (this.#process?.pid) await this.ended;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  }
}

/** An open page. It collects errors of the page in `complaints`. */
class Tab {
  complaints = [];
  #events;

  constructor(browser, session, context, listeners) {
    this.context = context;
    this.browser = browser;
    this.session = session;
    this.#events = listeners;
    listeners.push((message) => this.#watch(message));
  }

  send(method, params) { return this.browser.send(method, params, this.session); }

  async prepare(view) {
    this.view = view;
    await Promise.all(["Page", "Runtime", "Log", "Network"].map((domain) => this.send(`${domain}.enable`)));
    await this.send("Emulation.setDeviceMetricsOverride", {
      width: view.width, height: view.height, mobile: view.phone, deviceScaleFactor: 1,
    });
    await this.send("Emulation.setTouchEmulationEnabled", { enabled: view.phone });
    await this.theme(view.dark ? "dark" : "light");
  }

  /** Sets the colour scheme that the reader's system prefers. */
  theme(name) {
    const features = [{ name: "prefers-color-scheme", value: name }, { name: "prefers-reduced-motion", value: "reduce" }];
    return this.send("Emulation.setEmulatedMedia", { features });
  }

  #watch({ method, params }) {
    if (method === "Runtime.exceptionThrown") {
      const { text, exception } = params.exceptionDetails;
      this.complaints.push(`uncaught: ${exception?.description ?? text}`);
    } else if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      const words = params.args.map((one) => one.value ?? one.description).join(" ");
      this.complaints.push(`console ${params.type}: ${words}`);
    } else if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      this.complaints.push(`log ${params.entry.level}: ${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Network.requestWillBeSent" && !this.#own(params.request.url)) {
      this.complaints.push(`asks for ${params.request.url}`);
    } else if (method === "Page.javascriptDialogOpening") {
      this.complaints.push(`opens a dialog: ${params.message}`);
      this.send("Page.handleJavaScriptDialog", { accept: false }).catch(() => {});
    } else if (method === "Page.windowOpen") {
      this.complaints.push(`opens a window: ${params.url}`);
    }
  }

  #own(url) { return url === this.url || url.startsWith("data:") || url.startsWith("blob:"); }

  #once(name) {
    return new Promise((resolve) => {
      const listen = ({ method, params }) => {
        if (method !== name) return;
        this.#events.splice(this.#events.indexOf(listen), 1);
        resolve(params);
      };
      this.#events.push(listen);
    });
  }

  async open(url) {
    this.url = url;
    const loaded = this.#once("Page.loadEventFired");
    const { errorText } = await this.send("Page.navigate", { url });
    if (errorText) throw new Error(`cannot open ${url}: ${errorText}`);
    await loaded;
    await this.settle();
  }

  /** Waits until the page is painted. */
  settle() {
    return this.run(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  /** Runs a function in the page with plain values as arguments, and returns a plain value. */
  run(body, ...values) {
    return this.evaluate(`(${body})(${values.map((value) => JSON.stringify(value)).join(", ")})`);
  }

  async evaluate(expression) {
    const { result, exceptionDetails: failed } = await this.send("Runtime.evaluate", {
      expression, awaitPromise: true, returnByValue: true,
    });
    if (failed) throw new Error(`in the page: ${failed.exception?.description ?? failed.text}`);
    return result.value;
  }

  async hover(x, y) {
    await this.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
    await this.settle();
  }

  async click(x, y) {
    await this.hover(x, y);
    const button = { x, y, button: "left", clickCount: 1 };
    await this.send("Input.dispatchMouseEvent", { ...button, type: "mousePressed", buttons: 1 });
    await this.send("Input.dispatchMouseEvent", { ...button, type: "mouseReleased" });
    await this.settle();
  }

  async press(key) {
    const text = key === "Enter" ? "\r" : key.length === 1 ? key : undefined;
    const codes = { Enter: 13, Escape: 27, Tab: 9, ArrowUp: 38, ArrowDown: 40, ArrowLeft: 37, ArrowRight: 39, Home: 36, End: 35, " ": 32 };
    const same = { key, code: key === " " ? "Space" : key, windowsVirtualKeyCode: codes[key] };
    await this.send("Input.dispatchKeyEvent", { ...same, type: "keyDown", text });
    await this.send("Input.dispatchKeyEvent", { ...same, type: "keyUp" });
    await this.settle();
  }

  async type(text) {
    await this.send("Input.insertText", { text });
    await this.settle();
  }

  /** Returns the page as the bytes of a PDF. */
  async pdf() {
    const { data } = await this.send("Page.printToPDF", { printBackground: true, paperWidth: 8.27, paperHeight: 11.69 });
    return Buffer.from(data, "base64");
  }

  /** Returns at most `most` PNGs of the page from top to bottom, each `sheet` px high. */
  async shots(sheet, most) {
    const { cssContentSize: { width, height } } = await this.send("Page.getLayoutMetrics");
    const all = [];
    for (let y = 0; y < height && all.length < most; y += sheet) {
      const clip = { x: 0, y, width, height: Math.min(height - y, sheet), scale: 1 };
      const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: true, clip });
      all.push(Buffer.from(data, "base64"));
    }
    return all;
  }

  close() { return this.browser.send("Target.disposeBrowserContext", { browserContextId: this.context }); }
}
