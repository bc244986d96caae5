// What a person would see, as lists of what is wrong. Runs in the page under test.
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const box = (e) => e.getBoundingClientRect();
const isShown = (e) => e.checkVisibility() && box(e).width > 0;
const pictures = () => all('svg[role="img"]');
const charts = () => pictures().length;

// Charts without a size, a name, or anything in them.
const undrawn = () => pictures().filter((svg) => {
  const { width, height } = box(svg);
  const named = ["title", "desc"].every((tag) => svg.querySelector(`:scope > ${tag}`)?.textContent.trim());
  const lines = all("path.line, path.void", svg).filter((p) => p.getTotalLength() > 10 && p.getAttribute("d").split("L").length > 1);
  // Of rows, each has its part of the chart.
  const bars = all("rect", svg.closest(".rows") ?? svg).filter((r) => box(r).width > 1);
  return !(width > 150 && height > 60 && named && (lines.length > 0 || bars.length > 0));
}).map((svg) => svg.id);

// Labels of a chart that lie on each other.
const overlaps = () => pictures().flatMap((svg) => {
  const texts = all("text", svg).filter(isShown).map((text) => [text.textContent, box(text)]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2 && q.top < p.bottom - 2
  ).map(([b]) => `${svg.id}: ${a} / ${b}`));
});

// Labels of the effects that lie on an interval or its mark.
const labelsOnIntervals = () => all("#forest .rows").flatMap((rows) => all(".name, .effect", rows).filter(isShown).flatMap((text) =>
  all(".interval line, .mark path", rows).filter((line) => {
    const [p, q] = [box(text), box(line)];
    return p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1;
  }).map(() => text.textContent)));

// Labels of the effects that leave their chart, and are cut on a phone.
const labelsCut = () => all("#forest .rows").flatMap((rows) => all(".effect, .name", rows).filter(isShown)
  .filter((text) => box(text).right > box(rows).right + 1 || box(text).left < box(rows).left - 1).map((text) => text.textContent));

// Tables of effects that have to be pushed sideways to be read.
const sideways = () => all(".cards").filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.getAttribute("aria-label"));

// Text that leaves the screen without a box that scrolls.
const beyondTheEdge = () => all("body *").filter((e) => !e.closest(".scroll, .skip") && isShown(e) &&
  [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) &&
  (box(e).right > screen.width + 1 || box(e).left < -1)).map((e) => e.textContent.slice(0, 60));

// A phone's browser widens its view to what is too wide: the screen is what counts.
const overflow = () => Math.max(0, document.documentElement.scrollWidth - screen.width);

// A page has a few colors and thousands of places with one: each is worked out once.
const known = new Map();
const rgb = (text) => {
  if (!known.has(text)) {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    known.set(text, [...canvas.getImageData(0, 0, 1, 1).data]);
  }
  return known.get(text);
};
const luminance = (c) => c.slice(0, 3).map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
// The grounds a text may lie on: the next one below it, and what is shaded in its chart.
const grounds = (e) => {
  const found = [];
  const chart = e.closest(".plot");
  const shades = chart ? all(".floor, .bar rect", chart) : [];
  for (const shade of shades) {
    const [p, q] = [box(e), box(shade)];
    if (p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom) found.push(rgb(getComputedStyle(shade).fill));
  }
  for (let at = e; at; at = at.parentElement) {
    const color = rgb(getComputedStyle(at).backgroundColor);
    if (color[3] > 0) { found.push(color); break; }
  }
  return found.length ? found : [[255, 255, 255, 255]];
};
const texts = () => all("body *").filter((e) => !["SCRIPT", "STYLE", "TITLE", "DESC"].includes(e.tagName.toUpperCase()) &&
  isShown(e) && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));

const illegible = () => texts().flatMap((e) => {
  const style = getComputedStyle(e);
  const ink = rgb(e.closest("svg") ? style.fill : style.color);
  const size = parseFloat(style.fontSize);
  const worst = Math.min(...grounds(e).map((g) => contrast(ink, g)));
  return worst >= 4.5 && size >= 11.5 ? [] : [`${e.textContent.slice(0, 40)}: ${worst.toFixed(2)}, ${size} px`];
});

// Lines and marks of data that are hard to see.
const faint = () => [...new Set(all("path.line, path.void, .mark path, .interval line").filter(isShown).flatMap((e) => {
  const style = getComputedStyle(e);
  const color = style.stroke === "none" || e.closest(".mark") ? style.fill : style.stroke;
  const worst = Math.min(...grounds(e).map((g) => contrast(rgb(color), g)));
  return worst >= 3 ? [] : [`${e.getAttribute("class")}: ${worst.toFixed(2)}`];
}))];

const nameOf = (e) => e.id || e.getAttribute("aria-label") || e.textContent.trim().slice(0, 60);
const focusable = () => all('a[href], button, svg[role="img"], [tabindex="0"]').filter((e) => isShown(e) || e.classList.contains("skip")).map(nameOf);
const focused = () => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e);
  return { name: nameOf(e), visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
};

// The charts that zoom, and one of them zoomed.
const zoomables = () => all("figure.zoomable").length;
const zoom = async (n) => {
  const figure = all("figure.zoomable")[n];
  figure.querySelector(".zoom button").click();
  // uPlot draws a moment later.
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const canvas = figure.querySelector("canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colored = data.some((v, i) => i % 4 === 3 && v > 0);
  const swapped = !isShown(figure.querySelector(".plot > svg")) && box(canvas).width > 150;
  return { colored, swapped, overflow: overflow() };
};
const live = () => all("figure.zoomable .live").at(-1);
const focusLive = () => live().focus();
const legendOfLive = () => live().querySelector(".u-legend").textContent;
const spanOfLive = () => {
  const canvas = live().querySelector("canvas");
  return canvas.toDataURL().length + canvas.toDataURL().slice(-400);
};
