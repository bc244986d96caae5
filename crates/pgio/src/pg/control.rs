//! Stopping and starting a server of the user's on its host, the way that its target names.
//!
//! [`Controller::find`] looks at the running server before anything is changed and refuses what
//! could not be started again as it was; the [`Plan`] that it makes is plain data, which the journal
//! keeps so that `pgio undo` can start a server that a killed run left stopped. Both directions may
//! be asked for again. What it is stopped for is the treatments' business. Next: [`survey`].

mod survey;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host::command::quoted;
use crate::host::exec::{Exec, ExecError};
use crate::host::rights::{Prefix, Rights, RightsError, User};

const STATE: &str = include_str!("control/state.sh");
const START: &str = include_str!("control/start.sh");

/// A shutdown may have gigabytes to write out, a start as much to recover.
const LIMIT: Duration = Duration::from_secs(300);
/// pg_ctl counts whole seconds itself, and gives up first.
const PATIENCE: Duration = Duration::from_secs(LIMIT.as_secs() + 10);
const POLL: Duration = Duration::from_millis(100);
/// How long a unit that counts as started may have nothing to show for it.
const UNTOLD: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "the role may not read {what} (GRANT pg_read_all_settings TO the role, or use a superuser)"
    )]
    Denied { what: &'static str },
    #[error("cannot ask the server where it runs")]
    Postgres(#[from] postgres::Error),
    #[error(
        "the server's process is not seen on host {host}: set host in [target] to the machine that it runs on, and connect without a pooler or container in between"
    )]
    NotThere { host: String },
    #[error(
        "the server is run by systemd's unit {unit}: write control = \"systemctl {unit}\", or systemd would take its stop for a failure"
    )]
    OfSystemd { unit: String },
    #[error("systemd on host {host} has no unit {unit} that is active ({state}){instead}")]
    NoUnit { host: String, unit: String, state: String, instead: String },
    #[error("systemd's unit {unit} is not what runs the server{instead}")]
    OtherUnit { unit: String, instead: String },
    #[error(
        "the program {program} of the running server was replaced since its start: restart the server by hand first"
    )]
    Replaced { program: String },
    #[error("there is no pg_ctl beside {program}")]
    NoPgCtl { program: String },
    #[error(
        "the server's log goes to {to}, which it could not be given again: start it by `pg_ctl start -l FILE`, or with logging_collector = on"
    )]
    Log { to: String },
    #[error("the server did not {what} within {} s; it is {state}", LIMIT.as_secs())]
    TimedOut { what: &'static str, state: String },
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// All that is needed to stop and start a server, also by another process later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// A name in the experiment's hosts.
    pub host: String,
    pub data_directory: String,
    owner: User,
    way: Way,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    PgCtl(Program),
    Systemctl { unit: String },
}

/// How the server was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Program {
    /// `postgres`; pg_ctl is beside it.
    path: String,
    /// The directory that it was given, which holds postgresql.conf: often the data directory.
    directory: String,
    arguments: Vec<String>,
    environment: Vec<String>,
    /// Absent: its collector has it.
    log: Option<String>,
}

impl Program {
    fn pg_ctl(&self) -> String {
        match self.path.rsplit_once('/') {
            Some((directory, _)) => format!("{directory}/pg_ctl"),
            None => "pg_ctl".to_owned(),
        }
    }
}

/// Says in words how it would be done.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::PgCtl(program) => write!(f, "{} as {}", program.pg_ctl(), self.owner.name)?,
            Way::Systemctl { unit } => write!(f, "systemctl {unit}")?,
        }
        write!(f, " on host {}", self.host)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Down,
    Ready,
    /// On its way up or down.
    Between(String),
}

/// A [`Plan`] and the host that it is for.
#[derive(Clone)]
pub struct Controller {
    plan: Plan,
    exec: Arc<dyn Exec>,
    means: OnceLock<Means>,
}

/// What goes before commands on that host.
#[derive(Clone)]
struct Means {
    /// None: the server's files are closed to us, and systemd's word has to do.
    as_owner: Option<Prefix>,
    as_root: Prefix,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Controller({})", self.plan)
    }
}

impl Controller {
    /// Asks nothing yet: an undo that needs no stop must not fail for want of a way.
    pub fn new(plan: Plan, exec: Arc<dyn Exec>) -> Controller {
        Controller { plan, exec, means: OnceLock::new() }
    }

    /// Refuses where there is no way to become the owner, or root for systemctl.
    fn means(&self) -> Result<&Means, ControlError> {
        if let Some(means) = self.means.get() {
            return Ok(means);
        }
        let (exec, host) = (&*self.exec, self.plan.host.as_str());
        let rights = Rights::find(exec)?;
        let owner = rights.as_user(exec, host, &self.plan.owner);
        let (as_owner, as_root) = match &self.plan.way {
            Way::PgCtl(_) => (Some(owner?), Prefix::default()),
            Way::Systemctl { unit } => {
                let what = format!("to stop and start {unit}");
                (owner.ok(), rights.as_root(exec, host, &what, None, &["systemctl"])?)
            }
        };
        Ok(self.means.get_or_init(|| Means { as_owner, as_root }))
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Fast shutdown: sessions are ended, dirty pages written. Fine where it is down already.
    pub fn stop(&self) -> Result<(), ControlError> {
        match &self.plan.way {
            Way::Systemctl { unit } => self.systemctl("stop", unit)?,
            Way::PgCtl(program) => {
                if self.state()? == State::Down {
                    return Ok(());
                }
                let seconds = LIMIT.as_secs().to_string();
                let stop = [&program.pg_ctl(), "stop", "-D", &self.plan.data_directory];
                let how = ["-m", "fast", "-w", "-s", "-t", &seconds];
                let done = self.run_as_owner(stop.into_iter().chain(how));
                // It may have gone by itself in between.
                if let (Err(error), true) = (done, self.state()? != State::Down) {
                    return Err(error);
                }
            }
        }
        match self.state()? {
            State::Down => Ok(()),
            State::Ready => Err(timed_out("stop", "running")),
            State::Between(state) => Err(timed_out("stop", &state)),
        }
    }

    /// Returns when it takes connections. Fine where it is up already.
    pub fn start(&self) -> Result<(), ControlError> {
        let deadline = Instant::now() + LIMIT;
        let mut launched: Option<Instant> = None;
        loop {
            match self.state()? {
                State::Ready => return Ok(()),
                State::Down => match launched {
                    None => {
                        self.launch()?;
                        launched = Some(Instant::now());
                    }
                    // systemctl returns at once from a service that does not tell when it is ready.
                    Some(at) if self.is_systemctl() && at.elapsed() < UNTOLD => thread::sleep(POLL),
                    Some(_) => return Err(timed_out("start", "down")),
                },
                // One that is on its way down has to be down before it can be started.
                State::Between(state) if Instant::now() > deadline => {
                    return Err(timed_out("start", &state));
                }
                State::Between(_) => thread::sleep(POLL),
            }
        }
    }

    fn is_systemctl(&self) -> bool {
        matches!(self.plan.way, Way::Systemctl { .. })
    }

    fn launch(&self) -> Result<(), ControlError> {
        let program = match &self.plan.way {
            Way::Systemctl { unit } => return self.systemctl("start", unit),
            Way::PgCtl(program) => program,
        };
        let (pg_ctl, seconds) = (program.pg_ctl(), LIMIT.as_secs().to_string());
        let log = program.log.clone().unwrap_or_default();
        // pg_ctl hands the options to a shell.
        let options: Vec<String> =
            program.arguments.iter().map(|word| quoted(word.as_ref())).collect();
        let options = options.join(" ");
        let mut words = vec!["sh", "-c", START, "sh", &log, "env", "-i"];
        words.extend(program.environment.iter().map(String::as_str));
        words.extend([pg_ctl.as_str(), "start", "-D", &program.directory]);
        words.extend(["-w", "-s", "-t", &seconds, "-p", &program.path]);
        if !options.is_empty() {
            words.extend(["-o", &options]);
        }
        self.run_as_owner(words).map(drop)
    }

    fn state(&self) -> Result<State, ControlError> {
        if let (None, Way::Systemctl { unit }) = (&self.means()?.as_owner, &self.plan.way) {
            let ask = Prefix::default().line(["systemctl", "is-active", "--quiet", "--", unit]);
            let active = self.exec.output(&ask.timeout(PATIENCE))?.status.success();
            return Ok(if active { State::Ready } else { State::Down });
        }
        let said = self.run_as_owner(["sh", "-c", STATE, "sh", &self.plan.data_directory])?;
        Ok(match said.trim() {
            "down" => State::Down,
            "ready" | "standby" => State::Ready,
            state => State::Between(state.to_owned()),
        })
    }

    fn run_as_owner<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, ControlError> {
        let prefix = self.means()?.as_owner.clone().unwrap_or_default();
        // The owner need not be able to enter the directory that we are in.
        let line = prefix.line(words).directory("/".as_ref()).timeout(PATIENCE);
        Ok(self.exec.run(&line)?)
    }

    fn systemctl(&self, verb: &str, unit: &str) -> Result<(), ControlError> {
        let line = self.means()?.as_root.line(["systemctl", verb, "--", unit]).timeout(PATIENCE);
        Ok(self.exec.run(&line).map(drop)?)
    }
}

fn timed_out(what: &'static str, state: &str) -> ControlError {
    ControlError::TimedOut { what, state: state.to_owned() }
}

#[cfg(test)]
mod tests;
