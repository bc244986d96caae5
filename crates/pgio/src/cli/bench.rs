//! `pgio bench`: pgio itself measured, as ratios within one run.
//!
//! Machines are noisy, so two things are always run in turn (A B A B …) and a ratio is taken of
//! each pair; what is printed is the median of the ratios with the smallest and the largest. The
//! original is given by the path of its checkout; none of its code is here.

mod client;
mod command;
mod draw;
mod driver;
mod load;
mod report;
mod telemetry;
mod truth;
mod updates;
mod upstream;
mod visits;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use benchmath::summary;
use postgres::Client;

use super::connection;
use super::exit::{Failure, USAGE};
use super::{Outcome, output, setup, signals, state};
use crate::config::ConnectString;
use crate::config::experiment::Checkpoint;
use crate::dataset::LoadSpec;
use crate::experiment::live;
use crate::experiment::trial::{self, Request};
use crate::host::stop::Stop;
use crate::host::{Hosts, LOCAL};
use crate::pg::connect::ConnectParams;
use crate::pg::private::{PrivateCluster, Spec, VersionRequest};
use crate::pg::server::Server;
use crate::results::model::{Outcome as Ended, Trial};
use crate::telemetry::Scene;
use crate::units::{Layout, Scale};
use crate::workload::{Progress, Workload};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Block visits/s on a cached table, against the original's mypgio()
    Visits(Versus),
    /// Loading 4 tables, against the original's setup.sh (needs bash and psql)
    Load(Versus),
    /// What the draw of a key costs the server, by way of drawing: a loop with it against one without
    Draw {
        /// Draws in each loop
        #[arg(long, default_value_t = 500_000)]
        draws: u32,
        /// Pairs of loops
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// The client-side engine against pgbench (needs pgbench)
    Client(client::Args),
    /// What the driver itself costs while many sessions wait
    Driver {
        #[arg(long, default_value_t = 200)]
        sessions: u32,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// What telemetry costs: the same work with it and without
    Telemetry(telemetry::Args),
    /// What it costs pgbench to be run as a workload (needs pgbench)
    Command(command::Args),
    /// Half of the calls updates, four sessions on one table: does the table stay as it is?
    Updates {
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        seconds: u64,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// Time and memory of a report by the number of trials, on results that are made up
    Report(report::Args),
    /// Whole experiments of which the right answer is known: how often is it found?
    Truth(truth::Args),
}

#[derive(Debug, clap::Args)]
struct Versus {
    /// A checkout of the original pgio 1.0
    #[arg(long, value_name = "DIR")]
    upstream: PathBuf,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each run, where it has one
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// Size of each table
    #[arg(long, value_name = "SIZE")]
    scale: Option<Scale>,
    #[arg(long, value_name = "VERSION", default_value = "15")]
    pg: VersionRequest,
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Visits(versus) => visits::run(versus),
        What::Load(versus) => load::run(versus),
        What::Draw { draws, rounds, pg } => draw::run(*draws, *rounds, *pg),
        What::Client(args) => client::run(args),
        What::Driver { sessions, pg } => driver::run(*sessions, *pg),
        What::Telemetry(args) => telemetry::run(args),
        What::Command(args) => command::run(args),
        What::Updates { seconds, pg } => updates::run(Duration::from_secs(*seconds), *pg),
        What::Report(args) => report::run(args),
        What::Truth(args) => truth::run(args),
    }
}

/// A private server with everything cached, and the connection to command it.
struct Bench {
    params: ConnectParams,
    admin: Client,
    server: Server,
    stop: Stop,
    run_id: String,
    /// Held for as long as it is used; the last to be dropped.
    cluster: Arc<PrivateCluster>,
}

impl Bench {
    fn start(pg: Option<VersionRequest>, settings: &[(&str, &str)]) -> Result<Bench, Failure> {
        let stop = signals::stop_on_signals()?;
        let exe = std::env::current_exe().map_err(|e| {
            Failure::new(super::exit::FAILED, e).context("cannot find this program")
        })?;
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let primary_settings = settings.iter().map(own).collect();
        let cluster =
            Arc::new(PrivateCluster::start(&Spec { pg, primary_settings, ..Spec::new(exe) })?);
        let run_id = state::new_run_id();
        let params = connection::params(&ConnectString::new(cluster.primary_conninfo()), &run_id)?;
        let (admin, server) = live::open_admin(&params, &run_id)?;
        output::line(&format!(
            "PostgreSQL {}, {} cores, {}",
            server.info.version,
            std::thread::available_parallelism().map_or(0, usize::from),
            settings.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
        ));
        Ok(Bench { params, admin, server, stop, run_id, cluster })
    }

    /// What a run has left to be written must not be charged to the next.
    fn settle(&mut self) -> Outcome {
        self.admin
            .batch_execute("CHECKPOINT")
            .map_err(|e| Failure::new(super::exit::FAILED, e).context("cannot checkpoint"))?;
        rustix::fs::sync();
        Ok(())
    }

    fn load(&mut self, scale: &Scale, tables: u32, base_table: bool) -> Outcome {
        let spec = LoadSpec {
            tables,
            streams: tables,
            scale: scale.to_string(),
            blocks: scale.blocks(),
            seed: 42,
            base_table,
            tablespace: None,
            layout: Layout::default(),
            scan: None,
        };
        setup::load(&mut self.admin, &self.params, &spec, &self.stop, false)?;
        Ok(())
    }

    fn trial(&mut self, workload: &Arc<dyn Workload>, warmup: Duration) -> Result<Trial, Failure> {
        self.observed_trial(workload, warmup, None, &mut |_| {})
    }

    fn observed_trial(
        &mut self,
        workload: &Arc<dyn Workload>,
        warmup: Duration,
        scene: Option<&Scene>,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<Trial, Failure> {
        let request = Request {
            run_id: &self.run_id,
            place: None,
            params: &self.params,
            server: &self.server,
            workload,
            declared: &[],
            session_settings: Vec::new(),
            warmup,
            checkpoint: Checkpoint::Before,
            seed: 42,
            stop: &self.stop,
            scene,
            hosts: &Hosts::new(),
            server_host: Some(LOCAL),
            private: true,
        };
        let trial = trial::run(&request, &mut [], &mut self.admin, observe).trial;
        match &trial.outcome {
            Ended::Complete => Ok(trial),
            Ended::Interrupted => Err(Failure::interrupted()),
            Ended::Failed { error } => Err(Failure::message(super::exit::TRIAL, error.clone())),
        }
    }
}

fn metric(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(f64::NAN)
}

/// `median 2.91 (2.80 to 3.05)`.
fn spread(values: &[f64], decimals: usize) -> String {
    let of = |q| summary::quantile(values, q).unwrap_or(f64::NAN);
    format!("median {:.decimals$} ({:.decimals$} to {:.decimals$})", of(0.5), of(0.0), of(1.0))
}

fn missing(what: &str) -> Failure {
    Failure::message(USAGE, format!("--upstream: {what}"))
}
