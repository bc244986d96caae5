//! Runs one trial on the loaded data set, without an experiment file and without a condition: `pgio run`.
//!
//! [`open`] connects and refuses what cannot run; [`OpenedRun::run`] makes the trial. Between the two, the caller
//! checks that it can write the results, because the trial may take hours. Nothing is stored here.
//!
//! Prints nothing: events go to an observer, and errors are an enum. Next: `experiment::trial`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::error::SingleError;
use crate::config::SlobSettings;
use crate::config::experiment::Checkpoint;
use crate::dataset::lines;
use crate::experiment::admin::{
    self, InterruptedRun, beside_warning, open_admin, refuse_other_runs,
};
use crate::experiment::live::LiveError;
use crate::experiment::target::{self, ConnectionKeys};
use crate::experiment::trial::{self, Request, TrialResult};
use crate::experiment::{environment, slob, state};
use crate::feature::Held;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts};
use crate::pg::server::{self, Server};
use crate::telemetry::sysstat::{FileError, Monitors};
use crate::telemetry::{Survey, TelemetrySources};
use crate::treatment::Resource;
use crate::treatment::journal::Claims;
use crate::workload::{EngineError, Generator, Progress, Workload};
use pgio_connect::ConnectParams;
use pgio_results::checks;
use pgio_results::model::{Trial, Warning};

/// The input of a single trial.
#[derive(Debug, Clone, Copy)]
pub struct SingleRun<'a> {
    /// The server and the work.
    pub keys: &'a ConnectionKeys,
    /// Sampling interval of telemetry; zero disables it.
    pub telemetry: Duration,
    /// Checks that only warn.
    pub tolerate: &'a [String],
    /// Where iostat, vmstat and mpstat write; none: they do not run.
    pub monitor_dir: Option<&'a Path>,
    pub stop: &'a Stop,
}

/// What happens before and during the trial.
#[derive(Debug)]
pub enum SingleEvent<'a> {
    OtherInterrupted(&'a InterruptedRun),
    Warns(&'a Warning),
    /// The trial begins.
    Begins {
        /// Whether iostat, vmstat and mpstat all run.
        monitored: bool,
    },
    Progress(Progress),
    /// The trial ended, successfully or not.
    Ended,
}

/// Receives events.
pub type SingleObserver<'a> = dyn FnMut(&SingleEvent<'_>) + 'a;

/// A single trial, ready to run.
pub struct OpenedRun<'a> {
    pub params: ConnectParams,
    pub server: Server,
    pub settings: SlobSettings,
    run: SingleRun<'a>,
    run_id: String,
    admin: Client,
    workload: Arc<dyn Workload>,
    held: Vec<Held>,
}

/// The result of a single trial.
#[derive(Debug)]
pub struct SingleResult {
    /// Complete, failed or interrupted.
    pub trial: Trial,
    /// The error that ended the trial, if any.
    pub error: Option<EngineError>,
    /// Whether the files of iostat, vmstat and mpstat are complete.
    pub monitors: Result<(), FileError>,
}

/// Connects, and refuses if an interrupted run changed the server or if the data set does not fit the keys.
pub fn open<'a>(
    run: SingleRun<'a>,
    observe: &mut SingleObserver<'_>,
) -> Result<OpenedRun<'a>, SingleError> {
    let held = environment::held();
    held.iter().for_each(|held| observe(&SingleEvent::Warns(&held.warning)));
    let run_id = state::new_run_id();
    let mut warn = |warning: &_| observe(&SingleEvent::Warns(warning));
    let text = run.keys.connect_string();
    let params = target::params_with_warnings(&text, &run_id, &mut warn)?;
    for other in admin::refuse_unfinished([&params])? {
        observe(&SingleEvent::OtherInterrupted(&other));
    }
    let (mut admin, server) = open_admin(&params, &run_id)?;
    let identity = server::identity(&mut admin).map_err(LiveError::from)?;
    admin::refuse_changed(&[Resource::server(&identity)].into(), &Claims::default())?;
    let beside = refuse_other_runs(&mut admin, &server.info.database, &run_id, false)?;
    if let Some(warning) = beside_warning(&beside, &params.describe()) {
        observe(&SingleEvent::Warns(&warning));
    }
    server::check_database(&server, run.keys.layer.dbname.as_deref()).map_err(LiveError::from)?;
    let (work, warnings) = slob::loaded(run.keys.layer.clone(), &mut admin)?;
    for warning in warnings {
        observe(&SingleEvent::Warns(&warning));
    }
    let settings = work.settings.clone();
    let workload = Arc::new(work);
    Ok(OpenedRun { params, server, settings, run, run_id, admin, workload, held })
}

impl OpenedRun<'_> {
    /// Runs the trial. Call it in the main thread: the monitors end with the thread that started them.
    pub fn run(&mut self, observe: &mut SingleObserver<'_>) -> Result<SingleResult, FileError> {
        let monitors = self.run.monitor_dir.map(Monitors::start).transpose()?;
        for warning in monitors.iter().filter_map(|monitors| monitors.warning.as_ref()) {
            observe(&SingleEvent::Warns(warning));
        }
        let monitored = monitors.as_ref().is_some_and(Monitors::complete);
        observe(&SingleEvent::Begins { monitored });
        let (mut trial, error) = self.measure(observe);
        observe(&SingleEvent::Ended);
        for check in &mut trial.checks {
            checks::tolerate(check, self.run.tolerate);
        }
        // If the server is unreachable, the table keeps our mark and `destroy` finds it.
        let _ = self.workload.clean_up(&mut self.admin);
        let held = self.held.iter().map(|held| (held.fact.to_owned(), held.what.clone()));
        Arc::make_mut(&mut trial.environment).extend(held);
        // A file that cannot be written does not cost the record.
        let monitors = monitors.map_or(Ok(()), Monitors::finish);
        Ok(SingleResult { trial, error, monitors })
    }

    fn measure(&mut self, observe: &mut SingleObserver<'_>) -> (Trial, Option<EngineError>) {
        let hosts = Hosts::new();
        let sources = (!self.run.telemetry.is_zero()).then(|| {
            let (params, server, cadence) = (&self.params, &self.server, self.run.telemetry);
            let survey = Survey { params, server, cadence, hosts: &hosts, host: None };
            TelemetrySources::survey(&survey, &mut self.admin)
        });
        let request = Request {
            member: None,
            generator: Generator::default(),
            run_id: &self.run_id,
            place: None,
            params: &self.params,
            server: &self.server,
            workload: &self.workload,
            declared: &[],
            session_settings: Vec::new(),
            reads_settings: false,
            warmup: self.settings.warmup,
            checkpoint: Checkpoint::Before,
            seed: self.settings.seed.unwrap_or_else(state::new_seed),
            stop: self.run.stop,
            sources: sources.as_ref(),
            hosts: &hosts,
            server_host: sources.as_ref().and_then(TelemetrySources::server_host).map(Host::name),
            private: false,
        };
        let TrialResult { trial, error, .. } =
            trial::run(&request, &mut [], &mut self.admin, &mut |progress| {
                observe(&SingleEvent::Progress(progress));
            });
        (trial, error)
    }

    /// Lists the sizes of all tables as the original pgio does; none if the server cannot be reached any more.
    pub fn table_sizes(&mut self) -> Option<String> {
        lines::table_sizes(&mut self.admin).ok()
    }
}

impl fmt::Debug for OpenedRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenedRun({})", self.params.describe())
    }
}
