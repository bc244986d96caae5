// Zooming into the line charts. The page is complete without it: each chart is an SVG already, and
// this puts uPlot in its place while it is zoomed, from the numbers that stand beside it.
"use strict";
(() => {
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  // As `.void` in page.css.
  const EXCLUDED = { color: "--quiet", dash: [1.5, 3], width: 1.25 };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = (v) => v.toLocaleString("en", { maximumSignificantDigits: 4 });

  const value = (v, unit) => {
    if (v == null) return "–";
    if (unit === "share") return digits(v * 100) + " %";
    if (unit.startsWith("bytes")) {
      const power = Math.min(Math.max(Math.floor(Math.log2(Math.abs(v) || 1) / 10), 0), 4);
      return digits(v / 1024 ** power) + " " + ["bytes", "KiB", "MiB", "GiB", "TiB"][power] + unit.slice(5);
    }
    if (unit !== "s") return digits(v) + " " + unit;
    const [size, name] = v < 1e-3 ? [1e6, "µs"] : v < 1 ? [1e3, "ms"] : [1, "s"];
    return digits(v * size) + " " + name;
  };
  const percentile = (x) => {
    const left = 10 ** -x;
    return Number((100 * (1 - left)).toFixed(Math.ceil(x))).toString();
  };

  // The places of values between two missing ones, which no line shows.
  const alone = (values) => {
    const known = [...values.keys()].filter((i) => values[i] !== undefined);
    return known.filter((i, at) => values[i] != null && values[known[at - 1]] == null && values[known[at + 1]] == null);
  };

  const options = (data, width, height) => {
    const across = data.x === "percentile";
    const runs = data.x === "run";
    // A history shows changes of some per cent, so its scale does not begin at 0.
    const room = (min, max) => Math.max((max - min) * 0.12, Math.abs(max) * 0.01) || 1;
    const low = (min, max) => (runs ? min - room(min, max) : 0);
    const axis = (more) => ({
      stroke: () => color("--quiet"),
      grid: { stroke: () => color("--grid"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      ...more,
    });
    const line = (l) => {
      const look = l.excluded ? EXCLUDED : { color: "--c" + l.color, dash: DASHES[l.dash], width: 1.75 };
      return {
        label: l.label,
        stroke: () => color(look.color),
        dash: look.dash,
        width: look.width,
        // A missing value breaks the line, as in the SVG.
        spanGaps: false,
        points: { show: false, filter: (u, n, _, gaps) => (gaps?.length ? alone(u.data[n]) : null) },
        value: (_, v) => value(v, data.unit),
      };
    };
    const marks = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = color("--ink");
      ctx.setLineDash([3, 3]);
      for (const m of data.marks) {
        const x = u.valToPos(m.at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.fillText(m.what, x + 4, bbox.top + 12 * devicePixelRatio);
      }
      ctx.restore();
    };
    return {
      width,
      height,
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: data.logarithmic ? { distr: 3 } : { range: (_, min, max) => [low(min, max), runs ? max + room(min, max) : max * 1.06 || 1] } },
      axes: [
        axis({ values: (_, all) => all.map((v) => (across ? percentile(v) : runs ? digits(v) : digits(v) + " s")) }),
        axis({ size: 68, values: (_, all) => all.map((v) => (v == null ? "" : value(v, data.unit.includes("/") && !data.unit.startsWith("bytes") ? "" : data.unit))) }),
      ],
      series: [
        { label: across || runs ? data.x : "second", value: (_, v) => (v == null ? "–" : across ? percentile(v) : digits(v)) },
        ...data.lines.map(line),
      ],
      hooks: { draw: [marks] },
    };
  };

  const button = (text, title, act) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = text;
    b.title = title;
    b.setAttribute("aria-label", title);
    b.addEventListener("click", act);
    return b;
  };

  // What a reader can have the focus on.
  const controls = (figure) => [...figure.querySelectorAll("button, .live, [tabindex]")];

  const zoomable = (figure) => {
    const svg = figure.querySelector(".plot > svg");
    const plot = svg.parentElement;
    const name = svg.querySelector("title").textContent;
    // The figure as the report has it.
    figure.source = figure.outerHTML;
    const bar = document.createElement("p");
    bar.className = "zoom";
    figure.append(bar);
    // An SVG has no property `hidden`, only the attribute.
    const hide = (yes) => { for (const e of plot.children) e.toggleAttribute("hidden", yes); };
    let live = null;

    // Moves or scales what is seen, within what there is.
    const view = (shift, scale) => {
      const { min, max } = live.scales.x;
      const all = live.data[0];
      const [first, last] = [all[0], all[all.length - 1]];
      if (last === first) return;
      const width = Math.min((max - min) * scale, last - first);
      const middle = (min + max) / 2 + shift * (max - min);
      const from = Math.max(first, Math.min(middle - width / 2, last - width));
      live.setScale("x", { min: from, max: from + width });
    };
    const whole = () => live.setData(live.data);
    const closed = () => {
      bar.replaceChildren(button("Zoom", "Zoom into: " + name, open));
    };
    const close = () => {
      live.root.parentElement.remove();
      live.destroy();
      live = null;
      hide(false);
      closed();
      bar.firstChild.focus();
    };
    const keys = {
      "+": () => view(0, 0.5), "=": () => view(0, 0.5), "-": () => view(0, 2),
      ArrowLeft: () => view(-0.25, 1), ArrowRight: () => view(0.25, 1), 0: whole, Escape: close,
    };
    const draw = () => {
      const data = JSON.parse(figure.querySelector("script.data").textContent);
      const box = document.createElement("div");
      box.className = "live";
      box.tabIndex = 0;
      box.setAttribute("role", "application");
      box.setAttribute("aria-label", name + ": plus and minus zoom, arrows move, 0 shows all, Escape closes");
      const height = svg.getBoundingClientRect().height + 24;
      hide(true);
      figure.insertBefore(box, bar);
      const tables = data.lines.map((l) => [l.x, l.y]);
      // Lines that have no point where another line has one continue there. Mode 2 (NULL_EXPAND) widens a missing
      // value to the points beside it, so that none of these is drawn into the gap.
      const joined = tables.length > 1 ? uPlot.join(tables, tables.map(() => [2, 2])) : tables[0];
      live = box.chart = new uPlot(options(data, box.clientWidth, height), joined, box);
      box.addEventListener("keydown", (e) => {
        if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
        e.preventDefault();
        keys[e.key]();
      });
      bar.replaceChildren(
        button("+", "Zoom in", () => view(0, 0.5)), button("−", "Zoom out", () => view(0, 2)),
        button("◀", "Move left", () => view(-0.25, 1)), button("▶", "Move right", () => view(0.25, 1)),
        button("All", "Show all", whole), button("Close", "Back to the whole chart", close),
      );
      return box;
    };
    const open = () => live || draw().focus({ preventScroll: true });
    closed();
    svg.addEventListener("click", open);
    svg.addEventListener("keydown", (e) => { if (e.key === "Enter") open(); });
    // Takes the place of an older figure, zoomed as that is.
    figure.replace = (former) => {
      const at = controls(former).indexOf(document.activeElement);
      const chart = former.querySelector(".live")?.chart;
      former.replaceWith(figure);
      if (chart) {
        draw();
        const { min, max } = chart.scales.x;
        const all = chart.data[0];
        if (min > all[0] || max < all[all.length - 1]) live.setScale("x", { min, max });
        chart.destroy();
      }
      controls(figure)[at]?.focus({ preventScroll: true });
    };
  };
  document.querySelectorAll("figure.zoomable").forEach(zoomable);
  // For a page that is served while its experiment runs.
  window.zoomable = zoomable;

  const zoomed = () => [...document.querySelectorAll(".zoomable .live")].map((box) => [box.chart, box.clientWidth]);
  addEventListener("resize", () => zoomed().forEach(([chart, width]) => chart.setSize({ width, height: chart.height })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => zoomed().forEach(([chart]) => chart.redraw()));
})();
