//! The window of a command: from its start to its end, and its output.
//!
//! pgio observes the complete run, including a warm-up that the program does by itself. If anything
//! fails, the program's output is reported before the error. [`LastSetup`] records the last `setup`, so that with
//! `setup_once` it runs again only if it would create other data: the points of a sweep share one schema, and a
//! setup may use the values that differ.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::CommandError;
use super::environment::{Backends, CommandEnvironment};
use super::extract::{self, CapturedOutput};
use super::output::last_lines;
use super::runner::{Done, Job, Runner};
use crate::config::command::{CommandSettings, Line, OutputSource};
use crate::config::resolve::Extent;
use crate::host::command::quoted;
use crate::host::stop::Stop;
use crate::workload::clock::{Opener, Start, wait_until};
use crate::workload::error::EngineError;
use crate::workload::output::{ProgramOutput, StatusLine};
use crate::workload::participants::{Participants, Progress, WindowEvent, WindowOutcome};
use pgio_results::model::Metric;

/// A command that has its data and waits for its window.
pub(super) struct PreparedCommand {
    pub(super) settings: CommandSettings,
    pub(super) runner: Runner,
    pub(super) environment: CommandEnvironment,
    /// The condition's settings as seen in a session.
    pub(super) pinned: BTreeMap<String, String>,
    pub(super) stop: Stop,
    /// Agrees with other drivers on the moment of the start.
    pub(super) opener: Option<Arc<dyn Opener>>,
    /// Whether its data may have been made and not been cleaned up.
    pub(super) unclean: bool,
}

/// Cleans up after a trial that ended before its window.
impl Drop for PreparedCommand {
    fn drop(&mut self) {
        if self.unclean {
            // The trial has an error of its own, which came first.
            let _ = self.clean_up();
        }
    }
}

impl Participants for PreparedCommand {
    fn pinned(&self) -> BTreeMap<String, String> {
        self.pinned.clone()
    }

    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        _extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let start = Start::agree_on_window(self.opener.as_ref(), admin, Duration::ZERO)?;
        wait_until(start.at);
        let job = job(&self.settings, "run", &self.settings.spec.run, &self.environment);
        let mut backends = Backends::new(&self.environment, self.settings.divisible(), admin);
        let mut opened = None;
        let ran = self.runner.run(&job, &self.stop, &mut |began, line| {
            if opened.is_none() {
                opened = Some(began);
                listener(admin, WindowEvent::Opened(began));
            }
            if let Some(pids) = backends.poll(admin) {
                listener(admin, WindowEvent::Serving(pids));
            }
            let (elapsed, status) = (began.elapsed().as_secs_f64(), StatusLine::new(line));
            let progress = Progress { elapsed, status, ..Progress::default() };
            listener(admin, WindowEvent::Progress(progress));
        });
        let Done { seconds, stdout, stderr } = match ran {
            Ok(done) => done,
            Err(error) => {
                backends.terminate(admin);
                return Err(error.into());
            }
        };
        let now = Instant::now();
        let opened = opened.unwrap_or_else(|| {
            // It ended before the first poll.
            listener(admin, WindowEvent::Opened(now));
            now
        });
        let took = seconds.as_ref().map_or(now - opened, |s| Duration::from_secs_f64(*s));
        listener(admin, WindowEvent::Closed((opened + took).min(now)));
        if seconds.is_err() {
            backends.terminate(admin);
        }
        let measured = seconds.and_then(|_| self.measured(&stdout, &stderr, backends.sessions()));
        let cleaned = self.clean_up();
        let (metrics, error) = match (measured, cleaned) {
            (Ok(metrics), Ok(())) => (metrics, None),
            (Err(error), _) | (Ok(_), Err(error)) => (BTreeMap::new(), Some(error.into())),
        };
        let (sessions, unproven) = (backends.sessions(), backends.unproven());
        let output = ProgramOutput { metrics, stdout, stderr, sessions, unproven };
        listener(admin, WindowEvent::Output(Box::new(output)));
        let started = start.epoch + opened.saturating_duration_since(start.at).as_secs_f64();
        Ok(WindowOutcome { seconds: took.as_secs_f64(), error, ..WindowOutcome::new(started) })
    }
}

impl PreparedCommand {
    fn measured(
        &mut self,
        stdout: &str,
        stderr: &str,
        sessions: usize,
    ) -> Result<BTreeMap<String, Metric>, CommandError> {
        let specs = &self.settings.spec.metrics;
        let mut files = Vec::new();
        for spec in specs {
            let OutputSource::File(path) = &spec.source else { continue };
            let path = path.fill(&|name| self.environment.value(name));
            files.push(match self.runner.file(&path)? {
                Ok(text) => text,
                // The number may be missing, and with it the file.
                Err(_) if spec.optional => String::new(),
                Err(why) => {
                    return Err(CommandError::Metric {
                        name: spec.name.clone(),
                        why,
                        place: "stdout".to_owned(),
                        excerpt: last_lines(stdout),
                    });
                }
            });
        }
        let metrics = extract::metrics(specs, &CapturedOutput { stdout, stderr, files })?;
        // With settings, a session has the name only if it took both from PGOPTIONS.
        if sessions == 0 && !self.pinned.is_empty() {
            let names: Vec<&str> = self.pinned.keys().map(String::as_str).collect();
            return Err(CommandError::Unproven { settings: names.join(", ") });
        }
        Ok(metrics)
    }

    pub(super) fn clean_up(&mut self) -> Result<(), CommandError> {
        self.unclean = false;
        let Some(line) = &self.settings.spec.cleanup else { return Ok(()) };
        let job = job(&self.settings, "cleanup", line, &self.environment);
        // Clean up after a Ctrl-C, too; that has a flag of its own.
        self.runner.run(&job, &Stop::new(), &mut |_, _| {})?.seconds.map(drop)
    }
}

/// Fills the placeholders of a line; `key` is its key in `[workload]`.
pub(super) fn job(
    settings: &CommandSettings,
    key: &'static str,
    line: &Line,
    environment: &CommandEnvironment,
) -> Job {
    let (limit, limit_key) = match key {
        "setup" => (settings.spec.setup_limit, "setup_limit"),
        _ => (settings.time_limit, "time_limit"),
    };
    Job { key, argv: line.fill(&|name| environment.value(name), quoted), limit, limit_key }
}

/// Shared by all commands that create their data in the same place; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LastSetup(Arc<Mutex<Option<Recipe>>>);

/// What determines the data of a setup: its command line and the variables that it can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

impl Recipe {
    /// `environment` must not belong to a trial: a directory or a seed of its own does not change the
    /// data.
    pub(super) fn new(argv: Vec<String>, environment: CommandEnvironment) -> Recipe {
        Recipe { argv, env: environment.env }
    }
}

impl LastSetup {
    pub(super) fn matches(&self, recipe: &Recipe) -> bool {
        self.lock().as_ref() == Some(recipe)
    }

    pub(super) fn remember(&self, recipe: Recipe) {
        *self.lock() = Some(recipe);
    }

    /// Call this before any data are removed.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, experiment};
    use crate::host::Host;

    #[test]
    fn an_optional_number_may_be_missing_with_its_file() {
        let text = "[workload]\nkind = 'command'\nrun = 'p'\nmetric = [\n\
                    { name = 'm', unit = 's', better = 'lower', regex = '[0-9]+', primary = true },\n\
                    { name = 'n', unit = 's', better = 'lower', regex = '[0-9]+', optional = true, \
                    file = '{dir}/errors.log' }]\n[[condition]]\nname = 'a'\n";
        let mut read = experiment::parse(text, "x.toml", "x", &[], &[]).unwrap();
        let spec = read.workloads.remove(0).command.unwrap();
        let settings = CommandSettings::resolve(spec, Layer::default());
        let env = pgio_connect::Env::default();
        let params = pgio_connect::resolve("host=h user=u dbname=d", &env).unwrap();
        let runner = Runner::open(&Host::local()).unwrap();
        let environment = CommandEnvironment::new(&settings, &params, &[], 0, &runner.dir);
        let mut prepared = PreparedCommand {
            settings,
            runner,
            environment,
            pinned: BTreeMap::new(),
            stop: Stop::new(),
            opener: None,
            unclean: false,
        };
        let metrics = prepared.measured("7", "", 0).unwrap();
        assert_eq!((metrics["m"].value, metrics["n"].value), (Some(7.0), None));
        prepared.settings.spec.metrics[1].optional = false;
        let error = prepared.measured("7", "", 0).unwrap_err().to_string();
        assert!(error.contains("errors.log does not exist"), "{error}");
    }
}
