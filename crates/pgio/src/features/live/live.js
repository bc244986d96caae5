// Follows a run by server-sent events: `status` is what the run does now, `report` says that there is another report.
// The page is then fetched again, and this one becomes like it.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const $ = (id) => document.getElementById(id);
  const PHASES = {
    starting: "starting",
    running: "running",
    complete: "complete",
    stopped: "stopped; this page continues after `pgio compare --resume`",
  };
  let events = null;
  let status = null;
  let heard = 0;
  let fetching = false;
  let another = false;

  const is = (phase) => status?.phase === phase;
  const connect = () => {
    events = new EventSource("/events");
    events.addEventListener("report", follow);
    events.addEventListener("status", (event) => { status = JSON.parse(event.data); heard = Date.now(); draw(); leave(); });
    events.onerror = () => {
      if (is("complete")) return;
      $("run").className = "lost";
      if (!is("stopped")) $("phase").textContent = "connection lost, trying again";
      left();
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    };
  };
  // The run is complete and the last report is here: pgio may end.
  const leave = () => { if (is("complete") && !fetching) events.close(); };

  const draw = () => {
    const s = status;
    $("run").className = s.phase;
    document.title = (s.trials ? `${s.trial}/${s.trials} ` : "") + `${s.experiment} – pgio live`;
    $("name").textContent = s.experiment + (s.workload && s.workload !== s.experiment ? `: ${s.workload}` : "");
    $("phase").textContent = PHASES[s.phase] + (s.reason ? ` (${s.reason})` : "");
    $("progress").max = Math.max(1, s.trials);
    $("progress").value = is("complete") ? s.trials : Math.max(0, s.trial - 1);
    $("place").textContent = s.trials ? `trial ${s.trial} of ${s.trials}` : "";
    $("doing").textContent = [is("running") && s.condition, s.doing].filter(Boolean).join(", ");
    left();
  };
  const clock = (seconds) => {
    const pad = (n) => String(n).padStart(2, "0");
    const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return h ? `${h}:${pad(m)}:${pad(s)}` : `${m}:${pad(s)}`;
  };
  // Between two events the time goes on.
  const left = () => {
    const seconds = status?.seconds_left;
    const gone = Math.floor((Date.now() - heard) / 1000);
    const text = seconds == null ? "time left unknown"
      : `${status.open_ended ? "at least " : ""}${clock(Math.max(0, seconds - gone))} left`;
    $("left").textContent = $("run").className === "running" ? text : "";
  };

  const follow = async () => {
    another = true;
    if (fetching) return;
    fetching = true;
    while (another) {
      another = false;
      // Without a connection there is nothing to show; the next one names the report again.
      const text = await fetch("/").then((answer) => answer.text()).catch(() => "");
      const page = new DOMParser().parseFromString(text, "text/html");
      // A pgio that has just begun has no report yet.
      if (page.querySelector("main > section")) await show(page);
    }
    fetching = false;
    leave();
  };

  // Shows this page. What a reader looks at stays where it is, though the report above it grew: the first heading or
  // chart in the upper half of the screen, else the last one above it.
  const show = async (page) => {
    const top = (e) => e.getBoundingClientRect().top;
    const edge = $("run").getBoundingClientRect().bottom;
    const places = scrollY > 0 ? [...document.querySelectorAll("main :is(h2, svg)[id]")].map((e) => [e.id, top(e)]) : [];
    const isNear = ([, y]) => y >= edge && y < innerHeight / 2;
    const [id, before] = places.find(isNear) ?? places.findLast(([, y]) => y < edge) ?? [];
    morph(document.body, page.body);
    document.querySelectorAll("figure.zoomable").forEach((figure) => figure.source ?? zoomable(figure));
    // A zoomed chart is complete when all that is due now was done.
    await null;
    const kept = document.getElementById(id);
    if (kept) scrollBy({ top: top(kept) - before, behavior: "instant" });
  };

  // What tells one element from its like: of others, the first is taken.
  const key = (e) => e.id || e.getAttribute?.("aria-labelledby") || e.querySelector?.(":scope > summary, :scope > figcaption")?.textContent;

  // Gives `old` the children of `fresh`. Nodes that both have stay, with what a reader opened, selected or scrolled.
  const morph = (old, fresh) => {
    const rest = [...old.childNodes];
    const children = [...fresh.childNodes].map((child) => {
      const at = rest.findIndex((e) => e.nodeName === child.nodeName && key(e) === key(child));
      return at < 0 ? child : become(rest.splice(at, 1)[0], child);
    });
    for (const gone of rest) gone.remove();
    children.forEach((child, at) => {
      if (old.childNodes[at] !== child) old.insertBefore(child, old.childNodes[at] ?? null);
    });
  };
  // Returns the node that takes the place of `old`.
  const become = (old, fresh) => {
    if (old.id === "run" || old.isEqualNode(fresh)) return old;
    if (old.source) {
      if (old.source === fresh.outerHTML) return old;
      zoomable(fresh);
      fresh.replace(old);
      return fresh;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
      return old;
    }
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    morph(old, fresh);
    return old;
  };

  setInterval(left, 1000);
  connect();
});
