//! Turns the events of a run into the state of the page, and has the report rendered between two trials.
//!
//! The report is rendered only while a browser is connected, and never while a window is open: it would take
//! processor time and page cache from what is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::renderer::Renderer;
use super::state::{Phase, Row, Shared, Status};
use crate::cli::progress::words::{Measured, rate};
use crate::experiment::event::{Event, WorkloadBegins};
use crate::experiment::pace::Pace;
use crate::experiment::plan::Planned;
use crate::experiment::run::Decision;
use pgio_report::analysis;
use pgio_results::model::Trial;
use std::sync::Arc;

/// The next trial waits so long for a report; only one of thousands of trials needs it.
const NEXT_TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// After the last trial nothing waits but the user.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
    renderer: Renderer,
    workload: Option<Workload>,
}

/// The workload whose trials run.
#[derive(Debug)]
struct Workload {
    name: String,
    dir: PathBuf,
    pace: Pace,
    primary: String,
    /// The trials under way.
    turn: Vec<Planned>,
    /// Trials of earlier processes, if the run was resumed.
    earlier: usize,
    /// Trials that are stored, and those in the rendered report.
    stored: usize,
    rendered: usize,
}

impl Workload {
    fn new(begins: &WorkloadBegins<'_>) -> Workload {
        Workload {
            name: begins.workload.name.clone(),
            dir: begins.dir.to_owned(),
            pace: begins.pace.clone(),
            primary: begins.primary.to_owned(),
            turn: Vec::new(),
            earlier: begins.earlier.trials.len(),
            stored: begins.earlier.trials.len(),
            rendered: 0,
        }
    }

    fn update(&self, status: &mut Status) {
        status.trial = self.earlier + self.pace.number();
        status.trials = self.earlier + self.pace.trials();
        status.seconds_left = self.pace.remaining(Instant::now()).map(|left| left.as_secs());
    }
}

impl Listener {
    pub(super) fn new(experiment: &str, shared: Arc<Shared>, renderer: Renderer) -> Listener {
        shared.change(|state| state.update_status(|status| status.experiment = clean(experiment)));
        Listener { shared, renderer, workload: None }
    }

    pub(super) fn handle(&mut self, event: &Event<'_>) {
        match event {
            Event::OtherInterrupted(other) => {
                let what = &other.what;
                self.note(&format!("an interrupted run left unrelated changes in place: {what}"));
            }
            Event::ServerStarts(step) => self.set_doing(&step.to_string()),
            Event::Loads(_) => self.set_doing("loading the data set"),
            Event::ServerStarted => self.set_doing(""),
            Event::NothingLeft { .. } => self.note("the experiment is already complete"),
            Event::WorkloadBegins(begins) => self.begin(begins),
            Event::WorkloadEnds { dir } => {
                self.renderer.wait(FINAL_REPORT_TIMEOUT);
                self.render(dir, FINAL_REPORT_TIMEOUT);
            }
            Event::BlockLimit { blocks } => self.note(&format!(
                "stopped at the limit of {blocks} blocks; the intervals are wider than requested"
            )),
            Event::Begins { planned, condition } => {
                self.begin_trials(planned, condition, "preparing");
            }
            Event::Resets { planned, condition } => {
                self.begin_trials(
                    std::slice::from_ref(*planned),
                    condition,
                    "loading the data set",
                );
            }
            Event::Calibrates { slice } => {
                self.set_doing(&format!("weaving: trying slices of {} ms", slice.as_millis()));
            }
            Event::Calibrated(calibration) => self.note(&analysis::weaving(calibration)),
            Event::Warns(warning) => self.note(&format!("warning: {warning}")),
            Event::WidthChecked { width, precision } => self.note(&width.describe(*precision)),
            Event::Progress { progress, .. } => {
                let Some(workload) = &self.workload else { return };
                let rate = rate(&workload.primary, progress);
                let doing = rate.unwrap_or_else(|| "measuring".to_owned());
                self.shared.change(|state| {
                    state.update_status(|status| {
                        workload.update(status);
                        (status.doing, status.output) = (doing, clean(progress.status.text()));
                    });
                });
            }
            Event::Ended { planned, trial } => self.add_trial(planned, trial),
            Event::Decided { decision, .. } => self.show_decision(*decision),
        }
    }

    fn note(&self, text: &str) {
        self.shared.change(|state| state.note(clean(text)));
    }

    fn set_doing(&self, text: &str) {
        self.shared.change(|state| state.update_status(|status| status.doing = clean(text)));
    }

    fn begin(&mut self, begins: &WorkloadBegins<'_>) {
        // Checks across trials are not stored.
        let mut earlier = begins.earlier.clone();
        analysis::judge(&mut earlier);
        let workload = Workload::new(begins);
        self.shared.change(|state| {
            for trial in &earlier.trials {
                state.add(Row::new(trial, None, Measured::of_trial(trial).map(Measured::text)));
            }
            state.update_status(|status| {
                status.phase = Phase::Running;
                status.workload = clean(&workload.name);
                status.open_ended = begins.open_ended;
                workload.update(status);
            });
        });
        self.workload = Some(workload);
    }

    /// A trial begins, or its preparation goes on. Nothing is in force yet, and no window is open.
    fn begin_trials(&mut self, planned: &[Planned], condition: &str, doing: &str) {
        let Some(workload) = &mut self.workload else { return };
        if workload.turn != planned {
            workload.turn = planned.to_vec();
            let dir = workload.dir.clone();
            self.render(&dir, NEXT_TRIAL_TIMEOUT);
        }
        let Some(workload) = &mut self.workload else { return };
        workload.pace.begin(planned, Instant::now());
        self.shared.change(|state| {
            state.update_status(|status| {
                workload.update(status);
                status.condition = clean(condition);
                (status.doing, status.output) = (doing.to_owned(), String::new());
            });
        });
    }

    fn render(&mut self, dir: &Path, timeout: Duration) {
        let Some(workload) = &mut self.workload else { return };
        let is_due = workload.stored > workload.rendered && self.shared.viewers() > 0;
        if is_due && self.renderer.render(&workload.name, dir, timeout) {
            workload.rendered = workload.stored;
        }
    }

    fn add_trial(&mut self, planned: &Planned, trial: &Trial) {
        let Some(workload) = &mut self.workload else { return };
        workload.pace.end_window(Instant::now());
        // It is stored before the next event.
        workload.stored += 1;
        let value = Measured::of_trial(trial).map(Measured::text);
        let row = Row::new(trial, Some(planned.cell), value);
        self.shared.change(|state| {
            state.add(row);
            state.update_status(|status| {
                workload.update(status);
                (status.doing, status.output) = ("judging".to_owned(), String::new());
            });
        });
    }

    fn show_decision(&mut self, decision: Decision<'_>) {
        let Some(workload) = &mut self.workload else { return };
        let (about, text) = match decision {
            Decision::Repeats { planned, why, .. } => {
                workload.pace.add(planned.cell);
                let judged = Planned { attempt: planned.attempt.saturating_sub(1), ..*planned };
                (Some(judged), format!("repeated: {why}"))
            }
            Decision::RepeatsBaseline { planned } => {
                workload.pace.add(planned.cell);
                (None, String::new())
            }
            Decision::Excludes { planned, why } => (Some(*planned), format!("excluded: {why}")),
            Decision::FurtherBlock { .. } => {
                workload.pace.add_block();
                (None, String::new())
            }
        };
        let repeats = matches!(decision, Decision::Repeats { .. });
        self.shared.change(|state| {
            if let Some(about) = about {
                let is_judged = |row: &Row| {
                    let at = (Some(about.cell), Some(about.block), about.attempt);
                    (row.cell, row.block, row.attempt) == at
                };
                state.set_decision(is_judged, clean(&text));
            }
            state.update_status(|status| {
                workload.update(status);
                status.repeated += usize::from(repeats);
            });
        });
    }

    /// Shows how the run ended.
    pub(super) fn show_end(&mut self, phase: Phase, reason: &str) {
        self.shared.change(|state| {
            state.update_status(|status| {
                (status.phase, status.seconds_left) = (phase, None);
                (status.doing, status.output) = (String::new(), String::new());
                status.reason = clean(reason);
            });
        });
    }
}

/// Names and messages of others, without what a browser would obey.
fn clean(text: &str) -> String {
    printable::line(text).into_owned()
}
