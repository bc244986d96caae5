//! The workload `command`: any program, in the place of sessions of pgio's own.
//!
//! Its settings are parsed by `config::command`. Before each trial its schema and its data are made
//! ([`schema`], `setup`), then it warms up; its whole run is the window ([`mod@run`]). Its lines run on
//! a host through [`runner`], in [`surroundings`] that lead any program of libpq's to the target;
//! [`extract`] reads its metrics. Nothing here knows of pgbench or any other program: that is data,
//! examples/command-presets.toml.

mod backends;
mod environment;
mod extract;
mod last_setup;
mod output;
mod programs;
mod run;
mod runner;
pub mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;
use serde_json::{Value, json};

use self::environment::CommandEnvironment;
use self::last_setup::Recipe;
use self::run::PreparedCommand;
use self::runner::{Job, Runner, hide};
use super::error::EngineError;
use super::participants::{Participants, Setup};
use super::{Totals, Workload};
use crate::config::command::{Better, CommandSettings, CommandSpec, Line, MetricSpec};
use crate::config::resolve::Extent;
use crate::host::command::quoted;
use crate::host::exec::ExecError;
use crate::host::stop::Stop;
use crate::host::{Host, LOCAL};
use crate::pg::connect::{self, ConnectError, ConnectParams, Secret};
use crate::pg::words;
use crate::results::metrics::{DeclaredMetric, Direction};
use crate::results::model::{DatasetInfo, Metric, WorkloadInfo};
use crate::rng::derive;
pub use last_setup::LastSetup;
pub use output::StatusLine;
pub use programs::check as check_programs;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("program `{program}` is not on host {host}: install it there, or write its path")]
    Missing { program: String, host: String },
    #[error("{name} {how}: {said}")]
    Failed { name: String, how: String, said: String, output: Box<Output> },
    #[error(
        "{name} did not end within {} s and was killed: raise {key}, or see why; it said: {said}",
        limit.as_secs_f64()
    )]
    TimedOut { name: String, limit: Duration, key: &'static str, said: String, output: Box<Output> },
    #[error("metric `{name}`: {why}; the end of {place} is: {said}")]
    Metric { name: String, why: String, place: String, said: String },
    #[error(
        "the schema {0} is there and is not pgio's: rename it, or write another schema = in [workload]"
    )]
    NotOurs(String),
    #[error(
        "the condition sets {settings} in the command's sessions, and none of them was seen: a program of libpq's takes PGOPTIONS and PGAPPNAME from its environment; for any other set it where all sessions find it, as by ALTER ROLE"
    )]
    Unproven { settings: String },
    #[error("{0}")]
    Refused(String),
    #[error("{doing} failed: {}", words::message(.source))]
    Postgres { doing: &'static str, source: postgres::Error },
    #[error("cannot connect with the settings given to the command")]
    Connect(#[from] ConnectError),
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Host(#[from] ExecError),
}

/// All that a program wrote, for whoever wants more than the lines of an error.
#[derive(Debug, Clone, Default)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

impl CommandError {
    /// The output of the program that failed.
    pub fn output(&self) -> Option<&Output> {
        match self {
            CommandError::Failed { output, .. } | CommandError::TimedOut { output, .. } => {
                Some(output)
            }
            _ => None,
        }
    }
}

/// What a program left.
#[derive(Debug, Clone, Default)]
pub struct ProgramOutput {
    /// Empty where it failed.
    pub metrics: BTreeMap<String, Metric>,
    pub stdout: String,
    pub stderr: String,
    /// The most of its sessions that were seen at once.
    pub sessions: usize,
}

#[derive(Debug)]
pub struct Command {
    settings: CommandSettings,
    host: Arc<Host>,
    /// The target's password: passed on to the program and never stored.
    secret: Option<Secret>,
    last_setup: LastSetup,
}

impl Command {
    /// Refuses, before anything is made, what could not work or would take something of the user's.
    pub fn new(
        settings: CommandSettings,
        host: Arc<Host>,
        params: &ConnectParams,
        admin: &mut Client,
    ) -> Result<Command, CommandError> {
        let spec = &settings.spec;
        if params.is_by_socket() && !host.is_local() && spec.needs_server() {
            return Err(CommandError::Refused(format!(
                "the target is reached by a socket of this machine, which host {} does not have: write host=, such as its address, in the target's dsn",
                host.name()
            )));
        }
        environment::check(spec, params)?;
        if let Some(name) = &spec.schema {
            schema::check(admin, name)?;
        }
        programs::check(spec, &host)?;
        // Of all hosts: others were refused above.
        let secret = params.password_for(&params.hosts[0]);
        Ok(Command { settings, host, secret, last_setup: LastSetup::default() })
    }

    /// Beside others whose data are in the same place, such as those of a sweep's other points.
    pub fn beside(self, last: &LastSetup) -> Command {
        Command { last_setup: last.clone(), ..self }
    }

    /// The run as one would type it, and the variables that it needs: for whoever measures one
    /// against the other.
    pub fn typed(&self, params: &ConnectParams) -> (Vec<String>, Vec<(String, String)>) {
        let environment = CommandEnvironment::new(&self.settings, params, &[], 0, "");
        let job = self.job("run", &self.settings.spec.run, &environment);
        (job.argv, environment.env)
    }

    fn job(&self, key: &'static str, line: &Line, environment: &CommandEnvironment) -> Job {
        let (limit, limit_key) = match key {
            "setup" => (self.settings.spec.setup_limit, "setup_limit"),
            _ => (self.settings.time_limit, "time_limit"),
        };
        Job { key, argv: line.fill(&|name| environment.value(name), quoted), limit, limit_key }
    }

    /// What its setup makes, whichever trial it is.
    fn recipe(&self, params: &ConnectParams) -> Recipe {
        let environment = CommandEnvironment::new(&self.settings, params, &[], 0, "");
        let setup = self.settings.spec.setup.as_ref();
        let argv = setup.map(|line| self.job("setup", line, &environment).argv);
        Recipe::new(argv.unwrap_or_default(), environment)
    }

    /// An empty schema and the data in it; left alone where `setup_once` has made just these.
    fn make_data(
        &self,
        runner: &mut Runner,
        (environment, recipe): (&CommandEnvironment, Recipe),
        stop: &Stop,
        admin: &mut Client,
    ) -> Result<(), CommandError> {
        let CommandSpec { setup, setup_once, schema, .. } = &self.settings.spec;
        let there = match schema {
            // A condition may have brought another data directory.
            Some(name) => schema::is_there(admin, name)?,
            None => true,
        };
        if *setup_once && there && self.last_setup.is(&recipe) {
            return Ok(());
        }
        // What fails from here on leaves no data that could be used again.
        self.last_setup.forget();
        if let Some(name) = schema {
            schema::make(admin, name)?;
        }
        let Some(line) = setup else { return Ok(()) };
        runner.run(&self.job("setup", line, environment), stop, &mut |_, _| {})?.seconds?;
        if let Some(name) = schema {
            schema::settle(admin, name)?;
        }
        // What was loaded is not to be written in the window. The trial has warned already where the
        // role may not.
        let _ = admin.batch_execute("CHECKPOINT");
        self.last_setup.remember(recipe);
        Ok(())
    }
}

/// What its metrics mean, for the manifest.
pub fn declared(spec: &CommandSpec) -> Vec<DeclaredMetric> {
    let one = |metric: &MetricSpec| DeclaredMetric {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        better: match metric.better {
            Better::Higher => Direction::HigherIsFaster,
            Better::Lower => Direction::LowerIsFaster,
            Better::Neither => Direction::Neutral,
        },
    };
    spec.metrics.iter().map(one).collect()
}

impl Workload for Command {
    fn info(&self) -> WorkloadInfo {
        let CommandSettings { spec, run_time, sessions, .. } = &self.settings;
        let hidden = |text: &str| hide(text, self.secret.as_ref());
        let line = |line: &Line| match line {
            Line::Words(words) => words.iter().map(|w| json!(hidden(w.text()))).collect(),
            Line::Shell(text) => json!(hidden(text.text())),
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
            keys.insert(format!("parameters.{name}"), json!(hidden(text.text())));
        }
        WorkloadInfo {
            kind: "command".to_owned(),
            primary_metric: spec.primary().name.clone(),
            keys,
        }
    }

    /// One run of the program, where it says itself how long that takes.
    fn extent(&self) -> Extent {
        self.settings.run_time.map_or(Extent::Transactions(1), Extent::Time)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let mut runner = Runner::open(&self.host)?;
        let seed = derive(setup.seed, "command", 0);
        let Setup { params, settings, stop, .. } = setup;
        let environment =
            CommandEnvironment::new(&self.settings, &params, &settings, seed, &runner.dir);
        for (name, value) in &environment.env {
            runner.set(name, value)?;
        }
        if let Some(secret) = &self.secret {
            runner.set_secret("PGPASSWORD", secret.clone())?;
        }
        self.make_data(&mut runner, (&environment, self.recipe(&params)), &stop, admin)?;
        if let Some(line) = &self.settings.spec.warm_up
            && !self.settings.warmup.is_zero()
        {
            // With the window's it would read beforehand just what the window reads.
            let seed = derive(seed, "command-warm-up", 0);
            let environment =
                CommandEnvironment::new(&self.settings, &params, &settings, seed, &runner.dir);
            let job = self.job("warm_up", line, &environment);
            runner.run(&job, &stop, &mut |_, _| {}).and_then(|done| done.seconds)?;
        }
        let pinned = read_back(&params, &environment.options, &settings)?;
        Ok(Box::new(PreparedCommand { command: self, runner, environment, pinned, stop }))
    }

    fn before_trial(&self, _admin: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }

    fn dataset(&self, _admin: &mut Client) -> Result<Option<DatasetInfo>, postgres::Error> {
        Ok(None)
    }

    /// They come with what the program left.
    fn metrics(&self, _: &Totals, _: f64) -> Vec<(&'static str, Option<f64>)> {
        Vec::new()
    }

    fn clean_up(&self, admin: &mut Client) -> Result<(), postgres::Error> {
        let Some(name) = &self.settings.spec.schema else { return Ok(()) };
        match schema::remove(admin, name) {
            Err(CommandError::Postgres { source, .. }) => Err(source),
            _ => Ok(()),
        }
    }
}

/// The condition's settings, as a session has them that is given the same options.
fn read_back(
    params: &ConnectParams,
    options: &str,
    settings: &[(String, String)],
) -> Result<BTreeMap<String, String>, CommandError> {
    let mut pinned = BTreeMap::new();
    if settings.is_empty() {
        return Ok(pinned);
    }
    let mut params = params.clone();
    params.options = Some(options.to_owned());
    let mut session = connect::connect(&params)?;
    for (name, _) in settings {
        let found = session
            .query_one("SELECT current_setting($1)", &[name])
            .map_err(|source| CommandError::Postgres { doing: "reading a setting", source })?;
        pinned.insert(name.clone(), found.get(0));
    }
    Ok(pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, experiment};

    /// The command at a point with so many sessions.
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
    fn data_are_made_again_where_the_setup_says_something_else() {
        let params = connect::resolve("host=h user=u dbname=d", &connect::Env::default()).unwrap();
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
            assert!(made.is(&one.recipe(&params)), "{keys}");
            assert_eq!(!made.is(&four.recipe(&params)), other, "{keys}");
            made.clone().forget();
            assert!(!made.is(&one.recipe(&params)), "{keys}");
        }
    }
}
