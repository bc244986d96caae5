// Follows a run by server-sent events. Everything is drawn from them, so that a page whose connection was lost
// begins anew with the next one. Text goes into the page as text alone.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let events = null;
let status = null;
let heard = 0;
let rows = [];
let reports = [];
let picked = null;
let pending = 0;
// Counts connections: versions of different runs of pgio cannot be compared.
let session = 0;

function connect() {
  events = new EventSource("/events");
  const on = (name, handle) =>
    events.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  on("begin", begin);
  on("trial", ([index, row]) => trial(index, row));
  on("note", note);
  on("report", ([number, report]) => show(number, report));
  on("status", (now) => { status = now; heard = Date.now(); draw(); leave(); });
  events.onerror = () => {
    if (!done()) {
      document.body.className = "lost";
      if (!status || status.phase !== "stopped") $("phase").textContent = "connection lost, trying again";
      $("left").textContent = "";
    }
    if (events.readyState === EventSource.CLOSED && !done()) setTimeout(connect, 2000);
  };
}

const done = () => status !== null && status.phase === "complete";

// The run is complete and the last report is here: pgio may end.
function leave() {
  if (done() && pending === 0) events.close();
}

function begin() {
  session += 1;
  rows = [];
  $("trials").replaceChildren();
  $("notes").replaceChildren();
  $("remarks").hidden = true;
  count();
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function clock(seconds) {
  const pad = (n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${pad(m)}:${pad(s)}` : `${m}:${pad(s)}`;
}

const PHASES = {
  starting: "starting",
  running: "running",
  complete: "complete",
  stopped: "stopped; this page continues after `pgio compare --resume`",
};

function draw() {
  const s = status;
  document.body.className = s.phase;
  document.title = `${s.trials ? `${s.trial}/${s.trials} ` : ""}${s.experiment} – pgio live`;
  $("name").textContent = s.experiment + (s.workload && s.workload !== s.experiment ? `: ${s.workload}` : "");
  $("phase").textContent = PHASES[s.phase] + (s.reason ? ` (${s.reason})` : "");
  const begun = s.phase === "complete" ? s.trials : Math.max(0, s.trial - 1);
  $("progress").max = Math.max(1, s.trials);
  $("progress").value = begun;
  $("place").textContent = s.trials ? `trial ${s.trial} of ${s.trials}` : "";
  const parts = s.phase === "running" ? [s.condition, s.doing] : [s.doing];
  if (s.repeated) parts.push(`${s.repeated} repeated`);
  $("now").textContent = parts.filter(Boolean).join(", ");
  $("output").textContent = s.output;
  left();
}

// Between two events the time goes on.
function left() {
  if (!status || status.phase !== "running" || document.body.className === "lost") {
    if (status) $("left").textContent = "";
    return;
  }
  if (status.seconds_left === null) { $("left").textContent = "time left unknown"; return; }
  const since = Math.floor((Date.now() - heard) / 1000);
  const text = clock(Math.max(0, status.seconds_left - since));
  $("left").textContent = `${status.open_ended ? "at least " : ""}${text} left`;
}

function trial(index, row) {
  const first = !rows[index];
  const item = make("li");
  const head = make("div", "head");
  const block = row.block === null ? "burn-in" : `block ${row.block}.${row.position}`;
  head.append(make("span", "condition", row.condition + (row.point ? ` (${row.point})` : "")));
  head.append(make("span", "place", block + (row.attempt ? `, attempt ${row.attempt + 1}` : "")));
  head.append(make("span", "value", row.outcome === "valid" ? row.value || "" : row.outcome));
  item.append(head);
  for (const why of row.why) item.append(make("div", "why", why));
  if (row.decided) item.append(make("div", "why", row.decided));
  for (const text of row.warnings) item.append(make("div", "warning", text));
  if (first) $("trials").prepend(item); else rows[index].item.replaceWith(item);
  rows[index] = { row, item };
  count();
}

function count() {
  const of = (outcome) => rows.filter(({ row }) => row.outcome === outcome).length;
  const parts = ["valid", "invalid", "failed", "interrupted"].map((o) => [of(o), o]);
  const text = parts.filter(([n]) => n > 0).map(([n, o]) => `${n} ${o}`).join(", ");
  $("counts").textContent = text || "none yet";
}

function note(text) {
  $("notes").append(make("li", "", text));
  $("remarks").hidden = false;
}

// Each workload has two frames: the next report is loaded behind the one that is shown.
function show(number, report) {
  let entry = reports.find((each) => each.report.workload === report.workload);
  if (!entry) {
    entry = { shown: null, next: null };
    reports.push(entry);
  }
  Object.assign(entry, { report });
  if (entry.next) {
    entry.next.remove();
    pending -= 1;
  }
  const frame = make("iframe", "waiting");
  frame.title = `report of ${report.workload}`;
  entry.next = frame;
  pending += 1;
  frame.addEventListener("load", () => {
    if (entry.next !== frame) return;
    // A report that could not be fetched is a page of the browser's own, which cannot be read.
    if (frame.contentDocument && frame.contentDocument.querySelector("main")) {
      keepOpen(entry.shown, frame);
      keepPlace(entry.shown, frame);
      const read = entry.shown && document.activeElement === entry.shown;
      if (entry.shown) entry.shown.remove();
      if (read) frame.focus();
      Object.assign(entry, { shown: frame, trials: report.trials });
    } else {
      frame.remove();
    }
    entry.next = null;
    pending -= 1;
    choose(picked && reports.includes(picked) ? picked : reports.filter((each) => each.shown).at(-1) || entry);
    leave();
  });
  frame.src = `/report/${number}/${session}.${report.version}`;
  $("frames").append(frame);
}

// What readers opened stays open. Details are known by their section and their number in it.
function keepOpen(from, to) {
  if (!from || !from.contentDocument || !to.contentDocument) return;
  const all = (page, id) => {
    const heading = page.getElementById(id);
    const section = heading && heading.closest("section");
    return section ? [...section.querySelectorAll("details")] : [];
  };
  for (const { id } of from.contentDocument.querySelectorAll("h2[id]")) {
    const fresh = all(to.contentDocument, id);
    all(from.contentDocument, id).forEach((old, at) => { if (fresh[at]) fresh[at].open = old.open; });
  }
}

// Readers stay where they are, though the report above grew: the heading nearest to the top keeps its place.
function keepPlace(from, to) {
  if (!from || !from.contentWindow || !to.contentWindow) return;
  const [old, fresh] = [from.contentWindow, to.contentWindow];
  const tops = [...old.document.querySelectorAll("h2[id]")].filter((h) => h.getBoundingClientRect().top <= 1);
  const anchor = tops.at(-1);
  const same = anchor && fresh.document.getElementById(anchor.id);
  const y = same
    ? same.getBoundingClientRect().top + fresh.scrollY - anchor.getBoundingClientRect().top
    : old.scrollY;
  fresh.scrollTo(0, y);
}

// Shows the report of one workload; the latest one, unless the reader picked another.
function choose(chosen) {
  for (const each of reports) if (each.shown) each.shown.className = each === chosen ? "" : "waiting";
  $("empty").hidden = Boolean(chosen.shown);
  $("of").textContent = chosen.trials ? `of ${chosen.trials} trials` : "";
  $("choice").hidden = reports.length < 2;
  const pressed = [...$("choice").children].indexOf(document.activeElement);
  $("choice").replaceChildren(...reports.map((each) => {
    const button = make("button", "", each.report.workload);
    button.type = "button";
    button.setAttribute("aria-pressed", String(each === chosen));
    button.addEventListener("click", () => { picked = each; choose(each); });
    return button;
  }));
  if (pressed >= 0) $("choice").children[pressed].focus();
  narrowing(chosen.report.intervals);
}

function drawn(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// One strip for each condition: an interval for each block, on a scale of its own, so that narrowing shows. The
// dashed line is the baseline, where it is within.
function narrowing(all) {
  $("intervals").hidden = all.length === 0;
  const widths = all.flatMap((each) => each.widths);
  const last = Math.max(1, ...widths.map((w) => w.block));
  $("narrowing").replaceChildren(...all.map(({ condition, widths: own }) => {
    const now = own.at(-1);
    const low = Math.log(Math.min(...own.map((w) => w.low)));
    const high = Math.log(Math.max(...own.map((w) => w.high)));
    const y = (ratio) => (50 - ((Math.log(ratio) - low) / (high - low || 1)) * 44).toFixed(2);
    const text = `${now.ratio.toFixed(3)} (${now.low.toFixed(3)} to ${now.high.toFixed(3)})`;
    const svg = drawn("svg", { viewBox: "0 0 300 56", preserveAspectRatio: "none", role: "img" });
    svg.setAttribute("aria-label", `${condition}: intervals of ${own.length} blocks`);
    if (low <= 0 && high >= 0) {
      svg.append(drawn("line", { class: "one", x1: 0, x2: 300, y1: y(1), y2: y(1) }));
    }
    for (const w of own) {
      const x = 300 * (w.block - 0.5) / last;
      svg.append(drawn("line", { class: "bar", x1: x, x2: x, y1: y(w.low), y2: y(w.high) }));
      svg.append(drawn("circle", { class: "point", cx: x, cy: y(w.ratio), r: 2.5 }));
    }
    const item = make("div", "interval");
    item.append(make("strong", "", condition), make("div", "", `${text} × the baseline`), svg);
    return item;
  }));
}

setInterval(left, 1000);
connect();
