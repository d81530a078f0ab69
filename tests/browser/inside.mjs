// The checks inside a page. Every function is sent to the browser as text, so that it must not use
// anything from outside of itself. Each returns a list of complaints.

/** Opens all folded parts. */
export function unfold() {
  for (const details of document.querySelectorAll("details")) details.open = true;
}

/** Nothing is beyond the left or right edge of the window, except inside an element that scrolls. */
export function overflow() {
  const found = [];
  const { scrollWidth } = document.scrollingElement;
  const wide = scrollWidth > innerWidth;
  if (wide) found.push(`the page is ${scrollWidth} px wide in a window of ${innerWidth}`);
  const scrolls = (element) => {
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(one).overflowX)) return true;
    }
    return false;
  };
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    // An element wholly outside of the page (a link to skip the contents) moves in when it gets the focus.
    if (box.width === 0 || box.height === 0 || box.right <= 0) continue;
    if ((box.right > innerWidth + 1 || box.left < -1) && !scrolls(element)) {
      const name = element.tagName.toLowerCase();
      if (name === "path" || name === "line" || name === "g") continue;
      const words = element.textContent.trim().slice(0, 40);
      found.push(`<${name} class="${element.getAttribute("class") ?? ""}"> from ${box.left.toFixed(0)} to ${box.right.toFixed(0)} px: ${words}`);
    }
  }
  return found.slice(0, 5);
}

/** Every chart has a size, a name and content. Scrolls through the page for charts that draw late. */
export async function charts() {
  const found = [];
  // Reading a chart's own canvas back would make it slow, and the browser warns about that.
  const pencil = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  for (let y = 0; y < document.scrollingElement.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await frame();
  }
  for (const chart of document.querySelectorAll("svg[role]:not(svg svg), canvas")) {
    // An interactive chart of the same figures replaces a static one.
    if (!chart.checkVisibility() && chart.closest(".plot")?.querySelector("canvas")) continue;
    chart.scrollIntoView({ block: "center" });
    await frame();
    const what = chart.id || chart.getAttribute("aria-label") || chart.getAttribute("aria-labelledby")
      || chart.closest("figure, section")?.querySelector("h2, h3, h4, figcaption")?.textContent || chart.tagName;
    const box = chart.getBoundingClientRect();
    if (box.width < 20 || box.height < 8) {
      found.push(`chart "${what}" is ${box.width.toFixed(0)} x ${box.height.toFixed(0)} px`);
    } else if (chart instanceof HTMLCanvasElement) {
      pencil.canvas.width = chart.width;
      pencil.canvas.height = chart.height;
      pencil.drawImage(chart, 0, 0);
      const pixels = new Uint32Array(pencil.getImageData(0, 0, chart.width, chart.height).data.buffer);
      if (!pixels.some((pixel) => pixel !== pixels[0])) found.push(`chart "${what}" is blank`);
    } else {
      const shapes = [...chart.querySelectorAll("path, rect, line, circle, polyline, polygon, use")];
      const drawn = shapes.filter((shape) => {
        const { width, height } = shape.getBoundingClientRect();
        const { fill, stroke } = getComputedStyle(shape);
        return width + height > 0 && (fill !== "none" || stroke !== "none");
      });
      if (drawn.length < 2) found.push(`chart "${what}" has ${drawn.length} visible shapes`);
    }
  }
  scrollTo(0, 0);
  return found;
}

/**
 * Text in drawings has a contrast of at least 4.5 to 1 with its background, like all other text
 * (https://www.w3.org/TR/WCAG22/#contrast-minimum). axe does not check drawings.
 */
export function contrast() {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pencil = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      pencil.clearRect(0, 0, 1, 1);
      pencil.fillStyle = colour;
      pencil.fillRect(0, 0, 1, 1);
      known.set(colour, [...pencil.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(colour);
  };
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (text) => {
    const rect = text.parentElement.querySelector(":scope > rect");
    if (text.parentElement.tagName === "g" && rect) return rgba(getComputedStyle(rect).fill);
    for (let one = text.closest("svg"); one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = new Set();
  for (const text of document.querySelectorAll("svg text")) {
    if (text.textContent.trim() === "" || text.getBoundingClientRect().width === 0) continue;
    const colour = rgba(getComputedStyle(text).fill);
    const [light, dark] = [luminance(colour), luminance(behind(text))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) {
      found.add(`contrast ${ratio.toFixed(2)} of ${text.getAttribute("class") ?? "text"} in a drawing: ${text.textContent.slice(0, 30)}`);
    }
  }
  return [...found].slice(0, 5);
}

/** Every link within the page has a target, and every id is unique. */
export function links() {
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  const twice = ids.filter((id, index) => ids.indexOf(id) !== index).map((id) => `two elements are called ${id}`);
  const lost = [...document.querySelectorAll("a[href^='#']")]
    .filter((link) => !document.getElementById(decodeURIComponent(link.hash.slice(1))))
    .map((link) => `a link to ${link.hash} leads nowhere: ${link.textContent.slice(0, 40)}`);
  return [...new Set([...twice, ...lost])].slice(0, 5);
}

/** The page shows all `texts`, no selector in `never` matches, and the title is `title`. */
export function words(texts, never, title) {
  const found = [];
  const seen = document.body.cloneNode(true);
  for (const hidden of seen.querySelectorAll("script, style")) hidden.remove();
  for (const text of texts) {
    if (!seen.textContent.includes(text)) found.push(`does not say: ${text}`);
  }
  for (const selector of never) {
    const one = document.querySelector(selector);
    if (one) found.push(`has ${selector}: ${one.outerHTML.slice(0, 120)}`);
  }
  if (title && document.title !== title) found.push(`the title is: ${document.title}`);
  if (document.title.trim() === "") found.push("has no title");
  return found;
}

/** Runs axe, which must be loaded. Serious and critical results are `violations`, others `notes`. */
export async function axe_run() {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], preload: false });
  const told = violations.map(({ id, impact, help, nodes }) => ({
    grave: impact === "serious" || impact === "critical",
    text: `axe ${id} (${impact}, ${nodes.length} times): ${help}: ` + nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | "),
  }));
  return {
    violations: told.filter((one) => one.grave).map((one) => one.text),
    notes: told.filter((one) => !one.grave).map((one) => one.text),
  };
}
