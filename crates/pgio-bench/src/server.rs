//! A private server with a loaded and cached data set, trials on it, and the figures that all benches show.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use benchmath::summary;
use pgio_connect::Client;

use pgio::cli::exit::{FAILED, Failure, Outcome, TRIAL};
use pgio::cli::setup::{self, Lines};
use pgio::cli::{flags, output, signals};
use pgio::config::experiment::Checkpoint;
use pgio::config::{ConnectString, Layer};
use pgio::dataset::{LoadSpec, SpaceCheck};
use pgio::experiment::admin::open_admin;
use pgio::experiment::trial::{self, Request};
use pgio::experiment::{slob, state};
use pgio::host::stop::Stop;
use pgio::host::{Hosts, LOCAL};
use pgio::pg::private::{PrivateCluster, Spec, VersionRequest};
use pgio::pg::server::Server;
use pgio::telemetry::TelemetrySources;
use pgio::workload::slob::Slob;
use pgio::workload::{Progress, Workload};
use pgio_connect::ConnectParams;
use pgio_results::model::{Outcome as Ended, Trial};
use pgio_results::units::{Layout, Scale};

/// A private server with a cached data set, and an admin connection.
pub(super) struct Bench {
    pub(super) params: ConnectParams,
    pub(super) admin: Client,
    pub(super) server: Server,
    pub(super) stop: Stop,
    pub(super) run_id: String,
    /// Held as long as the server is used; the last owner drops it.
    pub(super) cluster: Arc<PrivateCluster>,
}

/// Starts a private server, below this directory if one is given, and perhaps a synchronous standby.
pub(super) fn private(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
    settings: &[(&str, &str)],
    standby: bool,
) -> Result<PrivateCluster, Failure> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::new(FAILED, e).context("cannot find this program"))?;
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Ok(PrivateCluster::start(&Spec {
        pg,
        base_dir: base_dir.map(Path::to_owned),
        primary_settings: settings.iter().map(own).collect(),
        standby,
        ..Spec::new(exe)
    })?)
}

/// Returns a data set of this many tables, which are loaded at once.
pub(super) fn data_set(scale: &Scale, tables: u32, base_table: bool) -> LoadSpec {
    LoadSpec {
        tables,
        streams: tables,
        scale: scale.to_string(),
        blocks: scale.blocks(),
        seed: 42,
        base_table,
        tablespace: None,
        layout: Layout::default(),
        scan: None,
        space: SpaceCheck::Required,
    }
}

impl Bench {
    pub(super) fn start(
        pg: Option<VersionRequest>,
        settings: &[(&str, &str)],
    ) -> Result<Bench, Failure> {
        let stop = signals::stop_on_signals()?;
        let cluster = Arc::new(private(pg, None, settings, false)?);
        let run_id = state::new_run_id();
        let params = flags::params(&ConnectString::new(cluster.primary_conninfo()), &run_id)?;
        let (admin, server) = open_admin(&params, &run_id)?;
        output::line(&format!(
            "PostgreSQL {}, {} cores, {}",
            server.info.version,
            std::thread::available_parallelism().map_or(0, usize::from),
            settings.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
        ));
        Ok(Bench { params, admin, server, stop, run_id, cluster })
    }

    /// Writes dirty pages now, so that they are not charged to the next run.
    pub(super) fn settle(&mut self) -> Outcome {
        self.admin
            .batch_execute("CHECKPOINT")
            .map_err(|e| Failure::new(FAILED, e).context("cannot checkpoint"))?;
        rustix::fs::sync();
        Ok(())
    }

    pub(super) fn load(&mut self, scale: &Scale, tables: u32, base_table: bool) -> Outcome {
        let spec = data_set(scale, tables, base_table);
        setup::load(&mut self.admin, &self.params, &spec, &self.stop, Lines::None)?;
        Ok(())
    }

    /// Returns `slob` on the loaded data set.
    pub(super) fn loaded(&mut self, layer: Layer) -> Result<Slob, Failure> {
        let (slob, warnings) = slob::loaded(layer, &mut self.admin)?;
        output::warn_all(&warnings);
        Ok(slob)
    }

    pub(super) fn trial(
        &mut self,
        workload: &Arc<dyn Workload>,
        warmup: Duration,
    ) -> Result<Trial, Failure> {
        self.observed_trial(workload, warmup, None, &mut |_| {})
    }

    pub(super) fn observed_trial(
        &mut self,
        workload: &Arc<dyn Workload>,
        warmup: Duration,
        sources: Option<&TelemetrySources>,
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
            reads_settings: false,
            warmup,
            checkpoint: Checkpoint::Before,
            seed: 42,
            stop: &self.stop,
            sources,
            hosts: &Hosts::new(),
            server_host: Some(LOCAL),
            private: true,
            member: None,
            generator: Default::default(),
        };
        let trial = trial::run(&request, &mut [], &mut self.admin, observe).trial;
        match &trial.outcome {
            Ended::Complete => Ok(trial),
            Ended::Interrupted => Err(Failure::interrupted()),
            Ended::Failed { error } => Err(Failure::message(TRIAL, error.clone())),
        }
    }
}

/// Returns a metric of the trial; not a number if it has no value.
pub(super) fn metric(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(f64::NAN)
}

/// Formats ratios as `median 2.91 (2.80 to 3.05)`.
pub(super) fn spread(values: &[f64], decimals: usize) -> String {
    let [median, least, most] =
        [0.5, 0.0, 1.0].map(|q| summary::quantile(values, q).unwrap_or(f64::NAN));
    format!("median {median:.decimals$} ({least:.decimals$} to {most:.decimals$})")
}
