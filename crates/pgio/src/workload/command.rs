//! The workload `command`: any program instead of pgio's own sessions.
//!
//! `config::command` parses its settings. Before each trial, its schema and data are created
//! ([`schema`], `setup`), then it warms up. Its complete run is the window ([`mod@run`]). Its lines run
//! on a host through [`runner`], with an [`environment`] that leads any program that uses libpq to the
//! target. [`extract`] reads its metrics. Several drivers run it at the same time on data that are made once
//! ([`output`]). Nothing here knows pgbench or any other program: that is data in
//! examples/command-presets.toml.

mod environment;
mod extract;
mod output;
mod programs;
mod run;
mod runner;
pub mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::{self, Client, ConnectError, ConnectParams, Secret};
use pgio_results::metrics::{DeclaredMetric, Direction};
use pgio_results::model::WorkloadInfo;
use run::Recipe;
use serde_json::{Value, json};

use self::environment::CommandEnvironment;
use self::output::combine;
use self::run::{PreparedCommand, job};
use self::runner::{Runner, longest_run, mask_secret};
use self::schema::HeldTables;
use super::clock::wait_until;
use super::error::{EngineError, WorkError};
use super::output::Output;
use super::participants::{Completed, Generator, Participants, Setup, WindowEvent, WindowOutcome};
use super::shared::{Coordinator, Part, PartKind, SharedWork, WorkLimit};
use super::window::Listener;
use super::{SessionSettings, Workload};
use crate::config::command::{Better, CommandSettings, CommandSpec, Line, MetricSpec};
use crate::config::resolve::Extent;
use crate::exit_code::{CONNECT, HasExitCode, INTERRUPTED, REFUSED, TRIAL};
use crate::host::exec::ExecError;
use crate::host::stop::Stop;
use crate::host::{Host, LOCAL, called};
use crate::pg::words;
use crate::rng::derive;

pub use programs::{Lines, check as check_programs};
pub use run::LastSetup;

#[derive(Debug)]
pub struct Command {
    settings: CommandSettings,
    host: Arc<Host>,
    /// The target's password: passed on to the program and never stored.
    secret: Option<Secret>,
    last_setup: LastSetup,
}

impl Command {
    /// Refuses, before anything is created, a command that cannot work or would destroy the user's data.
    pub fn new(
        settings: CommandSettings,
        (host, lines): (Arc<Host>, Lines),
        params: &ConnectParams,
        admin: &mut Client,
    ) -> Result<Command, CommandError> {
        let spec = &settings.spec;
        if params.is_by_socket() && !host.is_local() && spec.needs_server() {
            return Err(CommandError::Refused(format!(
                "the target uses a Unix socket of this machine, which host {} cannot reach; set host= in the target's dsn to an address",
                host.name()
            )));
        }
        environment::check(spec, params)?;
        if let Some(name) = &spec.schema {
            schema::check(admin, name)?;
        }
        programs::check(spec, lines, &host)?;
        // One password serves all hosts; anything else was refused above.
        let secret = params.password_for(&params.hosts[0]);
        let command = Command { settings, host, secret, last_setup: LastSetup::default() };
        command.read_back(params, &[])?;
        Ok(command)
    }

    /// Shares the record of the last setup with commands that use the same data, such as the other points
    /// of a sweep.
    pub fn with_last_setup(self, last: &LastSetup) -> Command {
        Command { last_setup: last.clone(), ..self }
    }

    /// Returns the run as one would type it, and the variables that it needs.
    pub fn command_line(&self, params: &ConnectParams) -> (Vec<String>, Vec<(String, String)>) {
        let environment = CommandEnvironment::new(&self.settings, params, &[], 0, "");
        let job = job(&self.settings, "run", &self.settings.spec.run, &environment);
        (job.argv, environment.env)
    }

    /// Opens a shell on the host, with the variables of this trial.
    fn open(&self, setup: &Setup) -> Result<PreparedCommand, CommandError> {
        let mut runner = Runner::open(&self.host)?;
        let environment = self.environment(setup, self.seed(setup), &runner.dir);
        for (name, value) in &environment.env {
            runner.set(name, value)?;
        }
        if let Some(secret) = &self.secret {
            runner.set_secret("PGPASSWORD", secret.clone())?;
        }
        Ok(PreparedCommand {
            settings: self.settings.clone(),
            runner,
            environment,
            // Before any line of the command, which might drop the user's tables.
            pinned: self.read_back(&setup.params, &setup.settings)?,
            stop: setup.stop.clone(),
            opener: setup.opener.clone(),
            unclean: false,
        })
    }

    fn environment(&self, setup: &Setup, seed: u64, dir: &str) -> CommandEnvironment {
        CommandEnvironment::new(&self.settings, &setup.params, &setup.settings, seed, dir)
    }

    /// Drivers draw different numbers.
    fn seed(&self, setup: &Setup) -> u64 {
        derive(setup.seed, "command", u64::from(setup.first_session()))
    }

    /// Starts a session with the command's options, and returns the condition's settings as it has them. Refuses the
    /// command if they, or the schema, are not in force there: a pooler may drop options without an error.
    #[expect(clippy::disallowed_methods, reason = "it reads what a session of the program has")]
    fn read_back(
        &self,
        params: &ConnectParams,
        settings: &[(String, String)],
    ) -> Result<BTreeMap<String, String>, CommandError> {
        let mut pinned = BTreeMap::new();
        let schema = self.settings.spec.schema.as_deref();
        if schema.is_none() && settings.is_empty() {
            return Ok(pinned);
        }
        let environment = CommandEnvironment::new(&self.settings, params, settings, 0, "");
        let mut params = params.clone();
        params.options = Some(environment.options);
        let mut session = pgio_connect::connect(&params)?;
        let wanted = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in schema.map(|schema| ("search_path", schema)).into_iter().chain(wanted)
        {
            // A value has several spellings; setting it again shows the server's.
            let sql = "SELECT pg_catalog.current_setting($1), pg_catalog.set_config($1, $2, true)";
            let row = session.query_one(sql, &[&name, &value]);
            let read = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            let (found, expected): (String, String) = read
                .map_err(|source| CommandError::Postgres { doing: "reading a setting", source })?;
            if found != expected {
                return Err(CommandError::NotInForce { name: name.to_owned(), found, expected });
            }
            if schema.is_none() || name != "search_path" {
                pinned.insert(name.to_owned(), found);
            }
        }
        Ok(pinned)
    }

    /// Warms up.
    fn warm_up(
        &self,
        mut prepared: PreparedCommand,
        setup: &Setup,
        admin: &mut Client,
    ) -> Result<PreparedCommand, EngineError> {
        if let Some(line) = &self.settings.spec.warm_up
            && !self.settings.warmup.is_zero()
        {
            // With the window's seed it would read exactly what the window reads.
            let seed = derive(self.seed(setup), "command-warm-up", 0);
            let environment = self.environment(setup, seed, &prepared.runner.dir);
            let job = job(&self.settings, "warm_up", line, &environment);
            if let Some(opener) = &setup.opener {
                wait_until(opener.warm_up(admin, Duration::ZERO)?.at);
            }
            // The coordinator counts a driver as lost that says nothing for long.
            let ran = prepared.runner.run(&job, &setup.stop, &mut |_, _| {
                setup.opener.iter().for_each(|opener| opener.keep_alive());
            });
            ran.and_then(|done| done.seconds)?;
        }
        Ok(prepared)
    }

    /// Returns the work of each process: the load, on data that are there.
    fn shared_work(&self) -> SharedCommand {
        let spec = CommandSpec { setup: None, cleanup: None, ..self.settings.spec.clone() };
        SharedCommand(CommandSettings { spec, ..self.settings.clone() })
    }

    /// Returns what determines the data that the setup creates.
    fn recipe(&self, params: &ConnectParams) -> Recipe {
        let environment = CommandEnvironment::new(&self.settings, params, &[], 0, "");
        let setup = self.settings.spec.setup.as_ref();
        let argv = setup.map(|line| job(&self.settings, "setup", line, &environment).argv);
        Recipe::new(argv.unwrap_or_default(), environment)
    }

    /// Creates an empty schema and its data, unless `setup_once` is set and the same data exist.
    fn create_data(
        &self,
        runner: &mut Runner,
        (environment, recipe): (&CommandEnvironment, Recipe),
        stop: &Stop,
        admin: &mut Client,
    ) -> Result<(), CommandError> {
        let CommandSpec { setup, setup_once, schema, .. } = &self.settings.spec;
        let exists = match schema {
            // A condition may use another data directory.
            Some(name) => schema::exists(admin, name)?,
            None => true,
        };
        if *setup_once && exists && self.last_setup.matches(&recipe) {
            return Ok(());
        }
        // If the setup fails, its data must not be used again.
        self.last_setup.forget();
        if let Some(name) = schema {
            schema::create(admin, name)?;
        }
        let Some(line) = setup else { return Ok(()) };
        let job = job(&self.settings, "setup", line, environment);
        let mut held = schema.as_deref().map(|s| HeldTables::hold(admin, s)).transpose()?;
        let stop = stop.child();
        let ran = runner.run(&job, &stop, &mut |_, _| {
            if let Some(held) = &mut held {
                held.look(admin);
                if held.defended {
                    stop.request();
                }
            }
        });
        if let (Some(held), Some(schema)) = (&mut held, schema) {
            // Another of its sessions may wait by now.
            held.look_again(admin);
            held.release(admin);
            if held.defended {
                return Err(CommandError::Elsewhere(format!(
                    "was ended before it changed tables outside the schema {schema}"
                )));
            }
        }
        ran?.seconds?;
        if let Some(name) = schema {
            if schema::is_empty(admin, name)? {
                return Err(CommandError::Elsewhere(format!(
                    "left the schema {name} empty, and may have changed tables elsewhere"
                )));
            }
            schema::vacuum_tables(admin, name)?;
        }
        // Write the loaded data before the window. If the role may not do that, the trial has warned
        // already.
        let _ = admin.batch_execute("CHECKPOINT");
        self.last_setup.remember(recipe);
        Ok(())
    }
}

/// A program that each process runs on its own host.
struct SharedCommand(CommandSettings);

pub(crate) const PART: PartKind = PartKind {
    name: "command",
    check: |part| {
        let CommandSettings { spec, .. } = part.read()?;
        Ok(programs::check(&spec, Lines::Driver, &Host::local())?)
    },
    prepare: |part, setup, admin| assemble(part.read()?, &setup, admin),
};

impl SharedWork for SharedCommand {
    fn sessions(&self) -> Option<usize> {
        self.0.divisible().map(|sessions| sessions as usize)
    }

    fn part(&self, _first: usize, count: usize) -> Result<Part, EngineError> {
        match self.0.divisible() {
            Some(_) => PART.write(&CommandSettings { sessions: count as u32, ..self.0.clone() }),
            None => PART.write(&self.0),
        }
    }

    fn limit(&self) -> WorkLimit {
        WorkLimit::AfterStart(longest_run(&self.0))
    }
}

fn assemble(
    settings: CommandSettings,
    setup: &Setup,
    admin: &mut Client,
) -> Result<Box<dyn Participants>, EngineError> {
    let secret = setup.params.password_for(&setup.params.hosts[0]);
    let last_setup = LastSetup::default();
    let command = Command { settings, host: Arc::new(Host::local()), secret, last_setup };
    Ok(Box::new(command.warm_up(command.open(setup)?, setup, admin)?))
}

/// Returns the definitions of its metrics for the manifest.
pub fn declared(spec: &CommandSpec) -> Vec<DeclaredMetric> {
    let one = |metric: &MetricSpec| DeclaredMetric {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        better: match metric.better {
            Better::Higher => Direction::HigherIsFaster,
            Better::Lower => Direction::LowerIsFaster,
            Better::Neither => Direction::Neutral,
        },
        of: None,
    };
    spec.metrics.iter().map(one).collect()
}

impl Workload for Command {
    fn info(&self) -> WorkloadInfo {
        let CommandSettings { spec, run_time, sessions, .. } = &self.settings;
        let masked = |text: &str| mask_secret(text, self.secret.as_ref());
        let line = |line: &Line| match line {
            Line::Words(words) => words.iter().map(|w| json!(masked(w.text()))).collect(),
            Line::Shell(text) => json!(masked(text.text())),
        };
        let mut keys: BTreeMap<String, Value> = BTreeMap::from([
            ("run".to_owned(), line(&spec.run)),
            ("host".to_owned(), json!(spec.host.as_deref().unwrap_or(LOCAL))),
        ]);
        let lines =
            [("warm_up", &spec.warm_up), ("setup", &spec.setup), ("cleanup", &spec.cleanup)];
        for (key, found) in lines {
            keys.extend(found.as_ref().map(|found| (key.to_owned(), line(found))));
        }
        let texts = [("preset", &spec.preset), ("schema", &spec.schema)];
        for (key, text) in texts {
            keys.extend(text.as_ref().map(|text| (key.to_owned(), json!(text))));
        }
        if spec.uses_placeholder("sessions") {
            keys.insert("sessions".to_owned(), json!(sessions));
        }
        keys.extend(run_time.map(|d| ("run_time".to_owned(), json!(d.as_secs_f64()))));
        for (name, text) in &spec.parameters {
            keys.insert(format!("parameters.{name}"), json!(masked(text.text())));
        }
        WorkloadInfo {
            kind: "command".to_owned(),
            primary_metric: spec.primary().map_or_else(String::new, |m| m.name.clone()),
            keys,
        }
    }

    /// By PGOPTIONS.
    fn session_settings(&self) -> SessionSettings {
        SessionSettings::AtStart
    }

    /// One run of the program if the program determines its length.
    fn extent(&self) -> Extent {
        self.settings.run_time.map_or(Extent::Transactions(1), Extent::Time)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let mut own = self.open(&setup)?;
        let recipe = self.recipe(&setup.params);
        own.unclean = true;
        self.create_data(&mut own.runner, (&own.environment, recipe), &setup.stop, admin)?;
        let Generator::Others(others) = setup.generator.clone() else {
            return Ok(Box::new(self.warm_up(own, &setup, admin)?));
        };
        let prepared = others.prepare(&self.shared_work(), setup, admin)?;
        let complete = move |ran: Result<WindowOutcome, EngineError>,
                             admin: &mut Client,
                             listener: Listener<'_>| {
            let cleaned = own.clean_up();
            let mut outcome = ran?;
            outcome.error = outcome.error.or(cleaned.err().map(EngineError::from));
            let mut output =
                combine(&own.settings.spec.metrics, &std::mem::take(&mut outcome.outputs));
            if outcome.error.is_some() {
                output.metrics.clear();
            }
            listener(admin, WindowEvent::Output(Box::new(output)));
            Ok(outcome)
        };
        Ok(Box::new(Completed { prepared, complete }))
    }

    fn check_settings(
        &self,
        params: &ConnectParams,
        settings: &[(String, String)],
    ) -> Result<(), EngineError> {
        Ok(self.read_back(params, settings).map(drop)?)
    }

    fn check_others(&self, others: &dyn Coordinator, stop: &Stop) -> Result<(), EngineError> {
        others.check(&self.shared_work(), stop)
    }

    fn divisible(&self) -> Option<u32> {
        self.settings.divisible()
    }

    fn clean_up(&self, admin: &mut Client) -> Result<(), pgio_connect::Error> {
        let Some(name) = &self.settings.spec.schema else { return Ok(()) };
        match schema::remove(admin, name) {
            Err(CommandError::Postgres { source, .. }) => Err(source),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("program `{program}` is not on {}: install it there, or write its path", called(host))]
    Missing { program: String, host: String },
    #[error("{name} {how}: {excerpt}")]
    Failed { name: String, how: String, excerpt: String, output: Box<Output> },
    #[error(
        "{name} did not end within {} s and was killed; raise {key}, or find the cause in its output: {excerpt}",
        limit.as_secs_f64()
    )]
    TimedOut {
        name: String,
        limit: Duration,
        key: &'static str,
        excerpt: String,
        output: Box<Output>,
    },
    #[error("metric `{name}`: {why}; end of {place}: {excerpt}")]
    Metric { name: String, why: String, place: String, excerpt: String },
    #[error(
        "schema {0} exists and was not created by pgio as this role: rename it, or set another schema in [workload]"
    )]
    NotOurs(String),
    #[error(
        "the condition sets {settings} in the command's sessions, but pgio saw no session with it: programs that use libpq take PGOPTIONS from the environment; for other programs, set it for all sessions, for example with ALTER ROLE"
    )]
    Unproven { settings: String },
    #[error(
        "{name} was {found} instead of {expected} in a session that began with the command's PGOPTIONS: a pooler that drops the options of sessions (ignore_startup_parameters of PgBouncer) may be in between; connect to the server itself"
    )]
    NotInForce { name: String, found: String, expected: String },
    #[error(
        "setup {0}: its sessions did not take search_path from PGOPTIONS, as programs that use libpq do; have the program use the schema by its own means, or set schema = \"\" and give it a database of its own"
    )]
    Elsewhere(String),
    #[error("{0}")]
    Refused(String),
    #[error("{doing} failed: {}", words::message(.source))]
    Postgres { doing: &'static str, source: pgio_connect::Error },
    #[error("cannot connect with the settings given to the command")]
    Connect(#[from] ConnectError),
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Host(#[from] ExecError),
}

impl HasExitCode for CommandError {
    fn code(&self) -> u8 {
        match self {
            CommandError::Missing { .. }
            | CommandError::NotOurs(_)
            | CommandError::NotInForce { .. }
            | CommandError::Refused(_) => REFUSED,
            CommandError::Host(_) => CONNECT,
            CommandError::Connect(source) => source.code(),
            CommandError::Stopped => INTERRUPTED,
            CommandError::Failed { .. }
            | CommandError::TimedOut { .. }
            | CommandError::Metric { .. }
            | CommandError::Unproven { .. }
            | CommandError::Elsewhere(_)
            | CommandError::Postgres { .. } => TRIAL,
        }
    }
}

impl From<CommandError> for EngineError {
    fn from(error: CommandError) -> EngineError {
        let output = match &error {
            CommandError::Failed { output, .. } | CommandError::TimedOut { output, .. } => {
                Some(output.clone())
            }
            CommandError::Stopped => return EngineError::Stopped,
            _ => None,
        };
        EngineError::Work(WorkError { output, ..WorkError::new(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, experiment};

    #[test]
    fn a_program_may_take_its_own_limit_whatever_the_run_time() {
        let limit = command("time_limit = '1h'", 1).shared_work().limit();
        for span in [None, Some(Duration::from_secs(60))] {
            assert!(limit.for_span(span) > Some(Duration::from_secs(3600)), "{span:?}");
        }
    }

    #[test]
    fn fuzzed_parts_of_commands_are_read_or_refused() {
        let part = command("", 2).shared_work().part(0, 1).unwrap();
        let sample = serde_json::to_string(&part).unwrap();
        pgio_fuzz::fuzz(&[sample], |bytes| {
            let Ok(part) = serde_json::from_slice::<Part>(bytes) else { return };
            match part.read::<CommandSettings>() {
                Ok(settings) => drop(SharedCommand(settings).limit()),
                Err(error) => pgio_fuzz::print(&error),
            }
        });
    }

    /// The command at a point with this many sessions.
    fn command(keys: &str, sessions: u32) -> Command {
        let text = format!(
            "[workload]\nkind = 'command'\nrun = 'run {{sessions}}'\n{keys}\n\
             metric = [{{ name = 'm', unit = 's', better = 'lower', regex = 'x' }}]\n\
             [[condition]]\nname = 'a'\n"
        );
        let spec = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap().workloads.remove(0);
        let layer = Layer { sessions: Some(sessions), ..spec.layer };
        let settings = CommandSettings::resolve(spec.command.unwrap(), layer);
        let host = Arc::new(Host::local());
        Command { settings, host, secret: None, last_setup: LastSetup::default() }
    }

    #[test]
    fn setup_runs_again_if_its_command_or_variables_change() {
        let params =
            pgio_connect::resolve("host=h user=u dbname=d", &pgio_connect::Env::default()).unwrap();
        for (keys, other) in [
            ("setup = 'load {sessions}'", true),
            ("setup = ['load', '{n}']\nparameters = { n = 'x{sessions}' }", true),
            ("setup = 'load'\nenv = { N = '{sessions}' }", true),
            ("setup = 'load'", false),
            // These differ from trial to trial, and the data do not.
            ("setup = 'load {seed} {dir}'", false),
        ] {
            let (one, four) = (command(keys, 1), command(keys, 4));
            let made = LastSetup::default();
            made.remember(one.recipe(&params));
            assert!(made.matches(&one.recipe(&params)), "{keys}");
            assert_eq!(!made.matches(&four.recipe(&params)), other, "{keys}");
            made.clone().forget();
            assert!(!made.matches(&one.recipe(&params)), "{keys}");
        }
    }
}
