//! What the page shows: a status, the trials, remarks, intervals and the rendered reports.
//!
//! Each part has the number of its last change. A browser gets what changed since the number that it has
//! seen, and everything when it connects, so a connection that was lost needs no memory on either side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use pgio_results::BURN_IN_BLOCK;
use pgio_results::model::{CheckVerdict, Outcome, Trial};
use pgio_results::sweep::Point;

/// How far the run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    #[default]
    Starting,
    Running,
    /// No more trials follow.
    Complete,
    /// It ended early; `--resume` may continue it.
    Stopped,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Status {
    pub(super) phase: Phase,
    pub(super) experiment: String,
    pub(super) workload: String,
    /// The number of the current trial of this run, and how many there are as known now.
    pub(super) trial: usize,
    pub(super) trials: usize,
    pub(super) condition: String,
    /// Such as `preparing` or `3,300/s`.
    pub(super) doing: String,
    /// The last line that a program printed.
    pub(super) output: String,
    pub(super) seconds_left: Option<u64>,
    /// Whether more blocks than planned may follow.
    pub(super) open_ended: bool,
    pub(super) repeated: usize,
    /// Why it stopped.
    pub(super) reason: String,
}

/// One trial, as a line of the page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// The cell of the plan; unknown for trials of an earlier run.
    #[serde(skip)]
    pub(super) cell: Option<usize>,
    experiment: String,
    /// None for the burn-in trial.
    pub(super) block: Option<u32>,
    position: u32,
    pub(super) attempt: u32,
    condition: String,
    point: String,
    value: Option<String>,
    outcome: &'static str,
    /// The error of a failed trial, and every check that makes the trial invalid.
    why: Vec<String>,
    warnings: Vec<String>,
    /// What was decided about an invalid trial.
    pub(super) decided: String,
}

impl Row {
    pub(super) fn new(trial: &Trial, cell: Option<usize>, value: Option<String>) -> Row {
        let place = trial.place.as_ref();
        let of_verdict = |verdict: CheckVerdict| {
            let found = trial.checks.iter().filter(move |check| check.verdict == verdict);
            found.map(|check| format!("{}: {}", check.id, check.message))
        };
        let (outcome, error) = match &trial.outcome {
            Outcome::Failed { error } => ("failed", Some(error.clone())),
            Outcome::Interrupted => ("interrupted", None),
            Outcome::Complete if trial.is_valid() => ("valid", None),
            Outcome::Complete => ("invalid", None),
        };
        Row {
            cell,
            experiment: place.map_or_else(String::new, |p| p.experiment.clone()),
            block: place.map(|p| p.block).filter(|block| *block != BURN_IN_BLOCK),
            position: place.map_or(0, |p| p.position),
            attempt: place.map_or(0, |p| p.attempt),
            condition: place.map_or_else(String::new, |p| p.condition.clone()),
            point: place.map_or_else(String::new, |p| point_text(&p.point)),
            value,
            outcome,
            why: error.into_iter().chain(of_verdict(CheckVerdict::Invalid)).collect(),
            warnings: of_verdict(CheckVerdict::Warning).collect(),
            decided: String::new(),
        }
    }
}

/// `sessions = 4, scale = 1G`
fn point_text(point: &Point) -> String {
    let values = point.iter().map(|(axis, value)| match value.as_str() {
        Some(text) => format!("{axis} = {text}"),
        None => format!("{axis} = {value}"),
    });
    values.collect::<Vec<_>>().join(", ")
}

/// The interval of one comparison after a number of blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Width {
    pub(super) block: u32,
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// How a condition's interval developed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Narrowing {
    pub(super) condition: String,
    pub(super) widths: Vec<Width>,
}

/// The page of one workload.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) workload: String,
    /// Number of trials in it.
    pub(super) trials: usize,
    /// The number of its last change.
    pub(super) version: u64,
    pub(super) intervals: Vec<Narrowing>,
    #[serde(skip)]
    pub(super) html: Arc<str>,
}

#[derive(Debug)]
struct Versioned<T> {
    changed: u64,
    item: T,
}

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    status: Versioned<Status>,
    rows: Vec<Versioned<Row>>,
    notes: Vec<Versioned<String>>,
    reports: Vec<Report>,
}

impl State {
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(super) fn update_status(&mut self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.item.clone();
        change(&mut status);
        if status != self.status.item {
            self.status = Versioned { changed: self.next_revision(), item: status };
        }
    }

    pub(super) fn add(&mut self, row: Row) {
        let changed = self.next_revision();
        self.rows.push(Versioned { changed, item: row });
    }

    /// Notes what was decided about the last trial that this describes.
    pub(super) fn set_decision(&mut self, about: impl Fn(&Row) -> bool, text: String) {
        let changed = self.next_revision();
        if let Some(found) = self.rows.iter_mut().rfind(|stamped| about(&stamped.item)) {
            found.changed = changed;
            found.item.decided = text;
        }
    }

    pub(super) fn note(&mut self, text: String) {
        if self.notes.iter().all(|note| note.item != text) {
            let changed = self.next_revision();
            self.notes.push(Versioned { changed, item: text });
        }
    }

    pub(super) fn set_report(&mut self, mut report: Report) {
        report.version = self.next_revision();
        match self.reports.iter_mut().find(|former| former.workload == report.workload) {
            Some(former) => *former = report,
            None => self.reports.push(report),
        }
    }

    pub(super) fn report(&self, number: usize) -> Option<Arc<str>> {
        self.reports.get(number).map(|report| report.html.clone())
    }

    /// Returns server-sent events with all that changed after this revision, and the revision to ask for next.
    /// With 0 it is everything, and the page begins anew.
    pub(super) fn events_since(&self, revision: u64) -> (String, u64) {
        let mut text = String::new();
        if revision == 0 {
            // Browsers wait this long before they connect again.
            text += &format!("retry: {}\n", RECONNECT.as_millis());
            text += &event("begin", &serde_json::Value::Null);
        }
        for (index, row) in self.rows.iter().enumerate().filter(|(_, row)| row.changed > revision) {
            text += &event("trial", &(index, &row.item));
        }
        for note in self.notes.iter().filter(|note| note.changed > revision) {
            text += &event("note", &note.item);
        }
        for (number, report) in
            self.reports.iter().enumerate().filter(|(_, r)| r.version > revision)
        {
            text += &event("report", &(number, report));
        }
        // Last, so that the page has everything when it reads that the run is complete.
        if revision == 0 || self.status.changed > revision {
            text += &event("status", &self.status.item);
        }
        (text, self.revision.max(1))
    }
}

const RECONNECT: Duration = Duration::from_secs(1);

/// JSON has no line break of its own, so one line of data is enough.
fn event(name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("plain data always serializes");
    format!("event: {name}\ndata: {data}\n\n")
}

/// The state, shared by the run, the server and the renderer.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    viewers: AtomicUsize,
}

impl Shared {
    pub(super) fn new() -> Arc<Shared> {
        let state = State {
            revision: 1,
            status: Versioned { changed: 1, item: Status::default() },
            rows: Vec::new(),
            notes: Vec::new(),
            reports: Vec::new(),
        };
        let (changed, _) = watch::channel(());
        Arc::new(Shared { state: Mutex::new(state), changed, viewers: AtomicUsize::new(0) })
    }

    pub(super) fn read(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.read());
        self.changed.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the number of browsers that are connected.
    pub(super) fn viewers(&self) -> usize {
        self.viewers.load(Ordering::Relaxed)
    }
}

/// Counts a browser for as long as its stream of events exists.
#[derive(Debug)]
pub(super) struct Viewer(Arc<Shared>);

impl Viewer {
    pub(super) fn new(shared: &Arc<Shared>) -> Viewer {
        shared.viewers.fetch_add(1, Ordering::Relaxed);
        Viewer(shared.clone())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
    }

    fn row(cell: usize) -> Row {
        let trial = pgio_results::test_support::full_trial();
        Row::new(&trial, Some(cell), Some("3,300/s".to_owned()))
    }

    #[test]
    fn a_browser_gets_all_at_first_and_then_what_changed() {
        let shared = Shared::new();
        shared.change(|state| state.add(row(0)));
        shared.change(|state| state.add(row(1)));
        let (all, seen) = shared.read().events_since(0);
        assert_eq!(events(&all), ["begin", "trial", "trial", "status"]);
        assert_eq!(shared.read().events_since(seen).0, "");
        shared.change(|state| state.set_decision(|row| row.cell == Some(0), "repeated".to_owned()));
        let (changed, seen) = shared.read().events_since(seen);
        assert_eq!(events(&changed), ["trial"]);
        assert!(changed.contains("data: [0,{") && changed.contains("\"decided\":\"repeated\""));
        // Nothing is sent for what is the same.
        shared.change(|state| state.update_status(|status| status.trial = 0));
        assert_eq!(shared.read().events_since(seen).0, "");
        shared.change(|state| state.update_status(|status| status.trial = 3));
        let (changed, seen) = shared.read().events_since(seen);
        assert_eq!(events(&changed), ["status"]);
        shared.change(|state| state.note("a warning".to_owned()));
        shared.change(|state| state.note("a warning".to_owned()));
        assert_eq!(events(&shared.read().events_since(seen).0), ["note"]);
    }

    #[test]
    fn a_report_replaces_that_of_its_workload() {
        let shared = Shared::new();
        let report = |workload: &str, html: &str| Report {
            workload: workload.to_owned(),
            trials: 1,
            version: 0,
            intervals: Vec::new(),
            html: html.into(),
        };
        for (workload, html) in [("a", "one"), ("b", "two"), ("a", "three")] {
            shared.change(|state| state.set_report(report(workload, html)));
        }
        let state = shared.read();
        let stored = |number| state.report(number).map(|html| html.to_string());
        assert_eq!(
            [stored(0), stored(1), stored(2)],
            [Some("three".into()), Some("two".into()), None]
        );
    }

    #[test]
    fn text_of_a_server_cannot_forge_an_event() {
        let text = event("note", &"a\n\nevent: status\ndata: {}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
