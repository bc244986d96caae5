//! Stops and starts the user's server on its host, by the method that the target names.
//!
//! [`Controller::find`] inspects the running server before anything is changed and refuses a server
//! that could not be restarted unchanged. Its [`Plan`] is plain data; the journal stores it so that
//! `pgio undo` can start a server that a killed run left stopped. Stop and start are idempotent.
//! Treatments decide why the server is stopped. Next: [`survey`]; [`environment`] for a server that does not start.

mod environment;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use serde::{Deserialize, Serialize};

use self::environment::{PROGRAM, Secrets};
use crate::exit_code::{HasExitCode, REFUSED};
use crate::host::command::quoted;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::rights::{Prefix, Rights, RightsError, User};

pub use self::environment::Line;

const STATE: &str = include_str!("control/state.sh");
const START: &str = include_str!("control/start.sh");
const MAIN_PID: &str = "head -n 1 -- \"$1/postmaster.pid\"";

/// A shutdown may have to write gigabytes, a start may have to replay as much.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Longer than pg_ctl's own timeout, which has a resolution of seconds and must expire first.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(TIMEOUT.as_secs() + 10);
const POLL: Duration = Duration::from_millis(100);
/// How long a started unit may have no running server: systemctl may return before the service is
/// ready.
const SYSTEMD_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "the role may not read {what} (GRANT pg_read_all_settings TO ROLE, or use a superuser)"
    )]
    Denied { what: &'static str },
    #[error("cannot query the server's process and data directory")]
    Postgres(#[from] pgio_connect::Error),
    #[error(
        "the server process is not visible on host {host}: set host in [target] to the machine that runs it, and connect without a pooler or container in between"
    )]
    NotVisible { host: String },
    #[error(
        "the server is run by systemd unit {unit}: write control = \"systemctl {unit}\", because systemd would treat a stop by pg_ctl as a failure"
    )]
    RunBySystemd { unit: String },
    #[error(
        "the server runs in systemd unit {unit}, whose main process is another program ({program}), such as Patroni or another cluster manager: it would react to a stop; end it, and start the server by pg_ctl outside that unit"
    )]
    Managed { unit: String, program: String },
    #[error("systemd on host {host} has no active unit {unit} ({state}){instead}")]
    NoUnit { host: String, unit: String, state: String, instead: String },
    #[error("systemd unit {unit} does not run the server{instead}")]
    OtherUnit { unit: String, instead: String },
    #[error(
        "stopping systemd unit {unit} would also stop {}, and starting it would not start them again: stop them yourself for the duration of the experiment, or start the server by pg_ctl outside that unit and write control = \"pg_ctl\"",
        active.join(", ")
    )]
    Dependents { unit: String, active: Vec<String> },
    #[error(
        "the program {program} was replaced after the server started: restart the server manually first"
    )]
    Replaced { program: String },
    #[error(
        "a restart would also put in force what someone prepared in the server's configuration files ({}): reload or restart the server, or revert that, first",
        names.join(", ")
    )]
    Pending { names: Vec<String> },
    #[error(
        "no pg_ctl in the directory of {program}: install it there, or write control = \"systemctl UNIT\""
    )]
    NoPgCtl { program: String },
    #[error(
        "the server logs to {to}, which pgio could not reattach after a restart: start the server by `pg_ctl start -l FILE`, or set logging_collector = on"
    )]
    Log { to: String },
    #[error(
        "the server's environment has {}, which may be secret and is not in the journal: start the server yourself as before, then rerun `pgio undo`",
        names.join(", ")
    )]
    SecretVariables { names: Vec<String> },
    #[error("the server does not start: {why}; see the server's log")]
    NotStarted { why: String },
    #[error("the server did not {what} within {} s; it is {state}", TIMEOUT.as_secs())]
    TimedOut { what: &'static str, state: String },
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl HasExitCode for ControlError {
    fn code(&self) -> u8 {
        REFUSED
    }
}

/// Everything needed to stop and start a server, possibly later by another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of a host of the experiment.
    pub host: String,
    pub data_directory: String,
    owner: User,
    #[serde(rename = "way")]
    method: Method,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Method {
    PgCtl(Program),
    Systemctl { unit: String },
}

/// How the server was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Program {
    /// Path of `postgres`; pg_ctl is in the same directory.
    path: String,
    /// The directory given by `-D`, which contains postgresql.conf; usually the data directory.
    directory: String,
    arguments: Vec<String>,
    environment: Vec<String>,
    /// The names of `secrets`, whose values the journal does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secret_names: Vec<String>,
    #[serde(skip)]
    secrets: Secrets,
    /// Log file given to `pg_ctl -l`; `None` with logging_collector.
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

/// Describes the method for people.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Method::PgCtl(program) => write!(f, "{} as {}", program.pg_ctl(), self.owner.name)?,
            Method::Systemctl { unit } => write!(f, "systemctl {unit}")?,
        }
        write!(f, " on host {}", self.host)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Down,
    Ready,
    /// Starting up or shutting down.
    Transition(String),
}

/// A [`Plan`] and its host.
#[derive(Clone)]
pub struct Controller {
    plan: Plan,
    exec: Arc<dyn Exec>,
    prefixes: OnceLock<Prefixes>,
    /// Secret variables of a running server whose plan comes from a journal.
    read_again: OnceLock<Secrets>,
}

/// Command prefixes that change the user on the host.
#[derive(Clone)]
struct Prefixes {
    /// `None`: pgio cannot become the owner and relies on systemd for the state.
    as_owner: Option<Prefix>,
    as_root: Prefix,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Controller({})", self.plan)
    }
}

impl Controller {
    /// Does not check privileges yet: an undo that needs no stop must not fail for lack of them.
    pub fn new(plan: Plan, exec: Arc<dyn Exec>) -> Controller {
        Controller { plan, exec, prefixes: OnceLock::new(), read_again: OnceLock::new() }
    }

    /// Fails if pgio can become neither the owner nor, for systemctl, root.
    fn prefixes(&self) -> Result<&Prefixes, ControlError> {
        if let Some(prefixes) = self.prefixes.get() {
            return Ok(prefixes);
        }
        let (exec, host) = (&*self.exec, self.plan.host.as_str());
        let rights = Rights::find(exec)?;
        let owner = rights.as_user(exec, host, &self.plan.owner);
        let (as_owner, as_root) = match &self.plan.method {
            Method::PgCtl(_) => (Some(owner?), Prefix::default()),
            Method::Systemctl { unit } => {
                let what = format!("to stop and start {unit}");
                (owner.ok(), rights.as_root(exec, host, &what, None, &["systemctl"])?)
            }
        };
        Ok(self.prefixes.get_or_init(|| Prefixes { as_owner, as_root }))
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Why the server cannot be restarted as it was; none if it can.
    pub fn restart_obstacle(&self) -> Option<ControlError> {
        match &self.plan.method {
            Method::PgCtl(program) => self.secrets(program).err(),
            Method::Systemctl { .. } => None,
        }
    }

    /// Returns the secret variables of the server's environment. A journal does not hold them, a running server
    /// still has them.
    fn secrets<'a>(&'a self, program: &'a Program) -> Result<&'a Secrets, ControlError> {
        let is_complete = |secrets: &&Secrets| secrets.names() == program.secret_names;
        if let Some(known) =
            [Some(&program.secrets), self.read_again.get()].into_iter().flatten().find(is_complete)
        {
            return Ok(known);
        }
        if self.state()? == State::Ready {
            let pid = self.run_as_owner(["sh", "-c", MAIN_PID, "sh", &self.plan.data_directory])?;
            let program = self.run_as_owner(["sh", "-c", PROGRAM, "sh", pid.trim()])?;
            let found = environment::secrets(&program);
            if is_complete(&&found) {
                return Ok(self.read_again.get_or_init(|| found));
            }
        }
        Err(ControlError::SecretVariables { names: program.secret_names.clone() })
    }

    /// Fast shutdown: disconnects sessions and writes dirty pages. Does nothing if the server is
    /// down.
    pub fn stop(&self) -> Result<(), ControlError> {
        match &self.plan.method {
            Method::Systemctl { unit } => self.systemctl("stop", unit)?,
            Method::PgCtl(program) => {
                if self.state()? == State::Down {
                    return Ok(());
                }
                self.secrets(program)?;
                let seconds = TIMEOUT.as_secs().to_string();
                let stop = [&program.pg_ctl(), "stop", "-D", &self.plan.data_directory];
                let options = ["-m", "fast", "-w", "-s", "-t", &seconds];
                let result = self.run_as_owner(stop.into_iter().chain(options));
                // Ignore the error if the server went down by itself meanwhile.
                if let (Err(error), true) = (result, self.state()? != State::Down) {
                    return Err(error);
                }
            }
        }
        match self.state()? {
            State::Down => Ok(()),
            State::Ready => Err(timed_out("stop", "running")),
            State::Transition(state) => Err(timed_out("stop", &state)),
        }
    }

    /// Returns when the server accepts connections. Does nothing if it already does.
    pub fn start(&self) -> Result<(), ControlError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut launched: Option<Instant> = None;
        loop {
            match self.state()? {
                State::Ready => return Ok(()),
                State::Down => match launched {
                    None => {
                        self.launch()?;
                        launched = Some(Instant::now());
                    }
                    // systemctl returns immediately if the service does not report when it is
                    // ready.
                    Some(at) if self.is_systemctl() && at.elapsed() < SYSTEMD_GRACE => {
                        thread::sleep(POLL);
                    }
                    Some(_) => return Err(timed_out("start", "down")),
                },
                // Wait for a shutdown to finish before starting the server.
                State::Transition(state) if Instant::now() > deadline => {
                    return Err(timed_out("start", &state));
                }
                State::Transition(_) => thread::sleep(POLL),
            }
        }
    }

    fn is_systemctl(&self) -> bool {
        matches!(self.plan.method, Method::Systemctl { .. })
    }

    fn launch(&self) -> Result<(), ControlError> {
        let program = match &self.plan.method {
            Method::Systemctl { unit } => return self.systemctl("start", unit),
            Method::PgCtl(program) => program,
        };
        let secrets = self.secrets(program)?;
        let (pg_ctl, seconds) = (program.pg_ctl(), TIMEOUT.as_secs().to_string());
        let log = program.log.clone().unwrap_or_default();
        // pg_ctl passes the options to a shell.
        let options: Vec<String> =
            program.arguments.iter().map(|word| quoted(word.as_ref())).collect();
        let options = options.join(" ");
        let mut words = vec!["sh", "-c", START, "sh", &log, "env", "-i", "sh", "-s"];
        words.extend([pg_ctl.as_str(), "start", "-D", &program.directory]);
        words.extend(["-w", "-s", "-t", &seconds, "-p", &program.path]);
        if !options.is_empty() {
            words.extend(["-o", &options]);
        }
        let stored = program.environment.iter().map(String::as_str);
        let script = environment::script(stored.chain(secrets.variables()));
        let line = self.line_as_owner(words)?.input(script);
        self.exec.run(&line).map(drop).map_err(|error| match error {
            ExecError::Failed { stderr, .. } => ControlError::NotStarted { why: reason(&stderr) },
            other => other.into(),
        })
    }

    fn state(&self) -> Result<State, ControlError> {
        if let (None, Method::Systemctl { unit }) = (&self.prefixes()?.as_owner, &self.plan.method)
        {
            let command = Prefix::default().line(["systemctl", "is-active", "--quiet", "--", unit]);
            let active = self.exec.output(&command.timeout(COMMAND_TIMEOUT))?.status.success();
            return Ok(if active { State::Ready } else { State::Down });
        }
        let state = self.run_as_owner(["sh", "-c", STATE, "sh", &self.plan.data_directory])?;
        Ok(match state.trim() {
            "down" => State::Down,
            "ready" | "standby" => State::Ready,
            state => State::Transition(state.to_owned()),
        })
    }

    fn run_as_owner<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, ControlError> {
        Ok(self.exec.run(&self.line_as_owner(words)?)?)
    }

    fn line_as_owner<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<CommandLine, ControlError> {
        let prefix = self.prefixes()?.as_owner.clone().unwrap_or_default();
        // The owner may lack access to our working directory.
        Ok(prefix.line(words).directory("/".as_ref()).timeout(COMMAND_TIMEOUT))
    }

    fn systemctl(&self, verb: &str, unit: &str) -> Result<(), ControlError> {
        let line =
            self.prefixes()?.as_root.line(["systemctl", verb, "--", unit]).timeout(COMMAND_TIMEOUT);
        Ok(self.exec.run(&line).map(drop)?)
    }
}

/// Returns the last fatal message of a server's log, or else its last line.
fn reason(log: &str) -> String {
    let fatal = log.lines().rev().find_map(|line| line.split_once("FATAL:"));
    let last = || log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    fatal.map_or_else(last, |(_, message)| message).trim().to_owned()
}

fn timed_out(what: &'static str, state: &str) -> ControlError {
    ControlError::TimedOut { what, state: state.to_owned() }
}

// Finds the systemd units that stop along with a unit. systemd stops what requires a unit, is bound to it or is part
// of it, each with its own dependents, whether those in between are active or not. A start of the unit starts none
// of them again. Read-only.

const DEPENDENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// Units to which systemd propagates a stop (its table of dependency atoms). systemctl leaves out a property that
/// its version does not know.
const PROPAGATED: &[&str] =
    &["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"];

/// A unit as `systemctl show` prints it.
#[derive(Debug, Default)]
struct Unit {
    name: String,
    is_active: bool,
    dependents: Vec<String>,
}

/// The active units that a stop of `unit` would stop, directly or through others.
fn active_dependents(exec: &dyn Exec, unit: &str) -> Result<Vec<String>, ExecError> {
    let start = show(exec, &[unit.to_owned()])?;
    let mut known: BTreeSet<String> = start.iter().map(|unit| unit.name.clone()).collect();
    // The name may be an alias.
    known.insert(unit.to_owned());
    let (mut level, mut active) = (start, Vec::new());
    loop {
        let dependents = level.into_iter().flat_map(|unit| unit.dependents);
        let new: Vec<String> = dependents.filter(|name| known.insert(name.clone())).collect();
        if new.is_empty() {
            return Ok(active);
        }
        level = show(exec, &new)?;
        active.extend(level.iter().filter(|unit| unit.is_active).map(|unit| unit.name.clone()));
    }
}

fn show(exec: &dyn Exec, units: &[String]) -> Result<Vec<Unit>, ExecError> {
    let property = format!("--property=Id,ActiveState,{}", PROPAGATED.join(","));
    let command = CommandLine::new("systemctl").args(["show", &property, "--"]).args(units);
    let text = exec.run(&command.timeout(DEPENDENTS_TIMEOUT))?;
    Ok(text.split("\n\n").map(parse).collect())
}

fn parse(block: &str) -> Unit {
    let mut unit = Unit::default();
    for (name, value) in block.lines().filter_map(|line| line.split_once('=')) {
        match name {
            "Id" => unit.name = unquoted(value),
            "ActiveState" => unit.is_active = !matches!(value, "inactive" | "failed"),
            name if PROPAGATED.contains(&name) => {
                unit.dependents.extend(value.split_whitespace().map(unquoted));
            }
            _ => {}
        }
    }
    unit
}

/// systemctl quotes a name with a backslash, such as a mount's.
fn unquoted(word: &str) -> String {
    match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\\\\", "\\"),
        None => word.to_owned(),
    }
}
