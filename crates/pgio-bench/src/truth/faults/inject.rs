//! Disturbs an experiment while it runs: at the start of a trial, or at moments of its window.

use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::experiment::event::Event;

/// How long a reloaded setting may take to show.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) type Action<'a> = Box<dyn FnMut() -> Outcome + 'a>;

/// Actions in each window of a condition, at these seconds from its start.
pub(super) struct InWindow<'a> {
    condition: &'static str,
    steps: Vec<(f64, Action<'a>)>,
    next: usize,
    is_here: bool,
    done: usize,
    failed: Option<Failure>,
}

impl<'a> InWindow<'a> {
    pub(super) fn of(condition: &'static str) -> InWindow<'a> {
        let (steps, failed) = (Vec::new(), None);
        InWindow { condition, steps, next: 0, is_here: false, done: 0, failed }
    }

    pub(super) fn at(mut self, seconds: f64, action: impl FnMut() -> Outcome + 'a) -> InWindow<'a> {
        self.steps.push((seconds, Box::new(action)));
        self
    }

    pub(super) fn observe(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins { condition, .. } => {
                (self.next, self.is_here) = (0, *condition == self.condition);
            }
            Event::Progress { progress, .. } if self.is_here => {
                while let Some((_, action)) =
                    self.steps.get_mut(self.next).filter(|(at, _)| *at <= progress.elapsed)
                {
                    self.next += 1;
                    self.done += 1;
                    if let Err(failure) = action() {
                        self.failed.get_or_insert(failure);
                    }
                }
            }
            _ => {}
        }
    }

    /// Fails unless the fault was injected.
    pub(super) fn injected(self) -> Outcome {
        match self.failed {
            Some(failure) => Err(failure),
            None if self.done < self.steps.len() => {
                Err(Failure::message(FAILED, "the fault was not injected: no window was open"))
            }
            None => Ok(()),
        }
    }
}

pub(super) fn connect(dsn: &str) -> Result<Client, Failure> {
    Client::connect(dsn, NoTls).map_err(failed)
}

pub(super) fn execute(dsn: &str, sql: &str) -> Outcome {
    connect(dsn)?.batch_execute(sql).map_err(failed)
}

/// Changes a setting of the server as an administrator would; returns when new sessions have it.
pub(super) fn set(dsn: &str, setting: &str, value: &str) -> Outcome {
    execute(dsn, &format!("ALTER SYSTEM SET {setting} = '{value}'"))?;
    execute(dsn, "SELECT pg_reload_conf()")?;
    let begun = Instant::now();
    let show = format!("SHOW {setting}");
    while connect(dsn)?.query_one(&show, &[]).map_err(failed)?.get::<_, String>(0) != value {
        if begun.elapsed() > TIMEOUT {
            let text = format!("{setting} did not become {value} after a reload");
            return Err(Failure::message(FAILED, text));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(super) fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot inject the fault")
}
