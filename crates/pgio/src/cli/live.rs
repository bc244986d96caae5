//! `--live`: the report page while the experiment runs, for browsers, read only.
//!
//! [`Live`] is opened before anything else happens, hears the events of the run and waits at the end until browsers have
//! the last report. The report is rendered only while a browser is connected, and never while a window is open: it would
//! take processor time and page cache from what is measured. `server` speaks HTTP, `address` is the command line,
//! `live.js` follows the run in the browser.

mod address;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::server::{Page, Phase, lower_priority};
use super::exit::{Failure, USAGE};
use super::output;
use super::progress::words::rate;
use crate::experiment::event::{Event, WorkloadBegins};
use crate::experiment::pace::Pace;
use crate::experiment::plan::Planned;
use crate::experiment::run::Decision;
use crate::host::stop::Stop;
use crate::pg::words;
use pgio_report::directories;

pub(super) use self::address::LiveArgs;

/// The next trial waits so long for a report; only one of thousands of trials needs it.
const NEXT_TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// After the last trial nothing waits but the user.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Once a stop is requested, the user waits for the end.
const STOPPED_TIMEOUT: Duration = Duration::from_millis(600);
/// Browsers have the last report within this time, or do without. One that has it lets pgio end at once; on a
/// machine that other work keeps busy, rendering and fetching it took more than 5 s.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The page of a run that is under way.
#[derive(Debug)]
pub(super) struct Live {
    page: Arc<Page>,
    stop: Stop,
    workload: Option<Workload>,
    rendering: Option<JoinHandle<()>>,
}

/// The workload whose trials run.
#[derive(Debug)]
struct Workload {
    dir: Box<Path>,
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

impl Live {
    /// Listens and prints the address; none without `--live`. `--live` is refused before anything is changed.
    pub(super) fn open(
        args: &LiveArgs,
        experiment: &str,
        stop: &Stop,
    ) -> Result<Option<Live>, Failure> {
        let Some(endpoint) = args.endpoint()? else { return Ok(None) };
        let live = Live::new(experiment, stop);
        let (asked, needs_token) = (endpoint.address, endpoint.token.is_some());
        let address = server::start(endpoint, live.page.clone()).map_err(|e| {
            let what =
                format!("--live {asked}: cannot serve the page (choose another address or port)");
            Failure::new(USAGE, e).context(what)
        })?;
        let token = if needs_token { " (the token is the password)" } else { "" };
        output::note(&format!("live page: http://{address}/{token}"));
        Ok(Some(live))
    }

    fn new(experiment: &str, stop: &Stop) -> Live {
        let page = Page::new(clean(experiment));
        Live { page, stop: stop.clone(), workload: None, rendering: None }
    }

    pub(super) fn handle(&mut self, event: &Event<'_>) {
        match event {
            Event::ServerStarts(step) => self.show_doing(&step.to_string()),
            Event::Loads(_) => self.show_doing("loading the data set"),
            Event::ServerStarted => self.show_doing(""),
            Event::WorkloadBegins(begins) => self.begin(begins),
            Event::WorkloadEnds { .. } => {
                // The last report follows one that still takes its time.
                if !self.stop.requested() {
                    self.await_report(FINAL_REPORT_TIMEOUT);
                }
                self.render(FINAL_REPORT_TIMEOUT);
            }
            Event::Begins { planned, condition } => {
                self.begin_trials(planned, condition, "preparing");
            }
            Event::Resets { planned, condition } => {
                let planned = std::slice::from_ref(*planned);
                self.begin_trials(planned, condition, "loading the data set");
            }
            Event::Calibrates { slice } => {
                self.show_doing(&format!("weaving: trying slices of {} ms", slice.as_millis()));
            }
            Event::Progress { progress, .. } => {
                let Some(workload) = &self.workload else { return };
                let rate = rate(&workload.primary, progress);
                let doing = rate.as_deref().unwrap_or("measuring");
                self.show_doing(&match progress.status.text() {
                    "" => doing.to_owned(),
                    printed => format!("{doing}: {printed}"),
                });
            }
            Event::Ended { .. } => {
                let Some(workload) = &mut self.workload else { return };
                workload.pace.end_window(Instant::now());
                // It is stored before the next event.
                workload.stored += 1;
                self.show_doing("judging");
            }
            Event::Decided { decision, .. } => {
                let Some(Workload { pace, .. }) = &mut self.workload else { return };
                match decision {
                    Decision::Repeats { planned, .. } | Decision::RepeatsBaseline { planned } => {
                        pace.add(planned.cell);
                    }
                    Decision::FurtherBlock { .. } => pace.add_block(),
                    Decision::Excludes { .. } => {}
                }
            }
            // The report says it, or the terminal alone.
            Event::OtherInterrupted(_)
            | Event::NothingLeft { .. }
            | Event::BlockLimit { .. }
            | Event::Calibrated(_)
            | Event::Warns(_)
            | Event::WidthChecked { .. } => {}
        }
    }

    fn begin(&mut self, begins: &WorkloadBegins<'_>) {
        let earlier = begins.earlier.trials.len();
        self.workload = Some(Workload {
            dir: begins.dir.into(),
            pace: begins.pace.clone(),
            primary: begins.primary.to_owned(),
            turn: Vec::new(),
            earlier,
            stored: earlier,
            rendered: 0,
        });
        self.page.update(|status| {
            (status.phase, status.open_ended) = (Phase::Running, begins.open_ended);
            status.workload = clean(&begins.workload.name);
        });
        self.show_doing("");
    }

    /// A trial begins, or its preparation goes on. Nothing is in force yet, and no window is open.
    fn begin_trials(&mut self, planned: &[Planned], condition: &str, doing: &str) {
        let Some(workload) = &mut self.workload else { return };
        if workload.turn != planned {
            workload.turn = planned.to_vec();
            self.render(NEXT_TRIAL_TIMEOUT);
        }
        let Some(workload) = &mut self.workload else { return };
        workload.pace.begin(planned, Instant::now());
        self.page.update(|status| status.condition = clean(condition));
        self.show_doing(doing);
    }

    fn show_doing(&self, text: &str) {
        self.page.update(|status| {
            status.doing = clean(text);
            if let Some(Workload { pace, earlier, .. }) = &self.workload {
                status.trial = earlier + pace.number();
                status.trials = earlier + pace.trials();
                status.seconds_left = pace.remaining(Instant::now()).map(|left| left.as_secs());
            }
        });
    }

    /// Renders what is stored, if a browser is connected and no other report is under way, in a thread at the lowest
    /// priority. Only a report that takes longer than this goes on beside the measurement.
    fn render(&mut self, timeout: Duration) {
        let Some(workload) = &mut self.workload else { return };
        let is_due = workload.stored > workload.rendered && self.page.is_watched();
        if !is_due || self.rendering.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (page, dir) = (self.page.clone(), workload.dir.clone());
        let work = move || {
            lower_priority();
            show_report(&page, &dir);
        };
        let spawned = thread::Builder::new().name("pgio-report".to_owned()).spawn(work);
        if let Ok(thread) = spawned {
            workload.rendered = workload.stored;
            self.rendering = Some(thread);
            self.await_report(timeout);
        }
    }

    fn await_report(&self, timeout: Duration) {
        let begun = Instant::now();
        while self.rendering.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let limit = if self.stop.requested() { STOPPED_TIMEOUT } else { timeout };
            if begun.elapsed() >= limit {
                return;
            }
            thread::sleep(POLL);
        }
    }

    /// Tells browsers how the run ended and gives them time to fetch the last report. A page closes its stream
    /// of events when it has it; after a stop it waits for the run to be resumed. Once the work is done, the first
    /// Ctrl-C ends this.
    pub(super) fn finish<T>(self, ended: &Result<T, Failure>) {
        let (phase, reason, timeout) = match ended {
            Ok(_) => (Phase::Complete, String::new(), LAST_REPORT_TIMEOUT),
            Err(failure) => (Phase::Stopped, failure.sentence(), STOPPED_TIMEOUT),
        };
        self.page.update(|status| {
            (status.phase, status.reason) = (phase, clean(&reason));
            (status.doing, status.seconds_left) = (String::new(), None);
        });
        let begun = Instant::now();
        let is_cut = || if ended.is_ok() { self.stop.requested() } else { self.stop.urgent() };
        while self.page.is_watched() && begun.elapsed() < timeout && !is_cut() {
            thread::sleep(POLL);
        }
    }
}

fn show_report(page: &Page, dir: &Path) {
    let rendered = directories::load(dir).and_then(|loaded| loaded.page());
    let reason = match &rendered {
        Ok(_) => String::new(),
        Err(error) => format!("the report cannot be shown: {}", words::sentence(error)),
    };
    if let Ok(report) = rendered {
        page.set_report(&report);
    }
    page.update(|status| {
        // Another reason is why the run ended.
        if status.phase == Phase::Running {
            status.reason = clean(&reason);
        }
    });
}

/// Names and messages of others, without what a browser would obey.
fn clean(text: &str) -> String {
    printable::line(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(stop: &Stop) -> Live {
        let live = Live::new("test", stop);
        live.page.update(|status| status.phase = Phase::Running);
        live
    }

    #[test]
    fn the_first_stop_ends_the_wait_for_browsers_of_a_complete_run() {
        let stop = Stop::new();
        let live = live(&stop);
        let _viewer = live.page.watch();
        stop.request();
        let begun = Instant::now();
        live.finish(&Ok(()));
        assert!(begun.elapsed() < LAST_REPORT_TIMEOUT / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_report_that_cannot_be_read_is_named_until_there_is_one() {
        let live = live(&Stop::new());
        show_report(&live.page, Path::new("/nonexistent"));
        let reason = || {
            let mut text = String::new();
            live.page.update(|status| text.clone_from(&status.reason));
            text
        };
        assert!(reason().starts_with("the report cannot be shown: "), "{}", reason());
        let parent = tempfile::tempdir().unwrap();
        let stored = pgio_report::analysis::test_support::stored_runs(1, |_| 1.0);
        let dirs = pgio_report::analysis::test_support::write_runs(parent.path(), &stored).unwrap();
        show_report(&live.page, &dirs[0]);
        assert_eq!(reason(), "");
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_report() {
        let stop = Stop::new();
        let mut live = live(&stop);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        live.rendering = Some(thread::spawn(move || ended.recv().unwrap_or_default()));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(POLL);
                stop.request();
            });
            live.await_report(Duration::from_secs(3600));
        });
        assert!(live.rendering.as_ref().is_some_and(|thread| !thread.is_finished()));
        drop(end);
    }
}
