//! `pgio run`: runs one trial on the loaded data set; prints the classic lines, then latencies and checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use postgres::Client;

use super::exit::{FILES, Failure, Outcome, TRIAL};
use super::flags::{ForRun, Source};
use super::output::{self, Status};
use super::{connection, signals};
use crate::config::experiment::Checkpoint;
use crate::config::nearest;
use crate::config::resolve::Extent;
use crate::dataset::sizes;
use crate::experiment::admin::open_admin;
use crate::experiment::error::LiveError;
use crate::experiment::trial::{self, Request, TrialResult};
use crate::experiment::{conflicts, environment, slob, state};
use crate::host::{Host, Hosts};
use crate::pg::server;
use crate::telemetry::sysstat::Monitors;
use crate::telemetry::{Survey, TelemetrySources};
use crate::treatment::Resource;
use crate::treatment::journal::Claims;
use crate::workload::Workload;
use pgio_connect::ConnectParams;
use pgio_report::report::{classic, session_detail, trial as trial_report};
use pgio_results::model::{CheckVerdict, Outcome as Ended, Trial};
use pgio_results::units::{self, human};
use pgio_results::{checks, store, wire};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Store the trial as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Write the original's files to this directory: iostat.out, vmstat.out, mpstat.out,
    /// pgio_diskstats.out, pgio_session_detail.out, pgio_objects_creation.out and
    /// pgio_data_load_table_sizes.out
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    classic_files: Option<PathBuf>,
    /// Sampling interval of telemetry on server and host; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::parse_duration)]
    telemetry: Duration,
    /// Let a trial count that this check would make invalid; may be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = tolerable)]
    tolerate: Vec<String>,
    #[command(flatten)]
    source: Source<ForRun>,
}

fn tolerable(id: &str) -> Result<String, String> {
    let valid = checks::tolerable();
    let known = valid.contains(&id).then(|| id.to_owned());
    known.ok_or_else(|| format!("no check that can make a trial invalid; {}", nearest(id, &valid)))
}

pub(super) fn run(args: &Args) -> Outcome {
    let given = connection::given(&args.source)?;
    let held = environment::held_ballast();
    held.clone().map(environment::ballast_warning).iter().for_each(output::warn);
    let run_id = state::new_run_id();
    let params = connection::params_of(&given, &run_id)?;
    conflicts::refuse_unfinished([&params])?.iter().for_each(output::warn_unfinished);
    let stop = signals::stop_on_signals()?;
    let (mut admin, found) = open_admin(&params, &run_id)?;
    let identity = server::identity(&mut admin).map_err(LiveError::from)?;
    conflicts::refuse_changed(&[Resource::server(&identity)].into(), &Claims::default())?;
    server::check_database(&found, given.layer.dbname.as_deref())?;
    let (slob, warnings) = slob::loaded(given.layer.clone(), &mut admin)?;
    output::warn_all(&warnings);
    let settings = slob.settings.clone();

    let connect_string = shown_connect_string(&given.connect_string(), &params);
    let head = classic::Head {
        started_at: Timestamp::now().to_string(),
        connect_string,
        shared_buffers: found.info.shared_buffers.clone(),
        tables: settings.tables(),
        sessions_per_table: (settings.sessions() / settings.tables()).max(1),
        scale: settings.scale.to_string(),
        blocks_per_table: settings.scale.blocks(),
    };
    // A pipe or a terminal has a directory that needs no file.
    let is_file = |path: &&Path| *path != Path::new("-") && (path.is_file() || !path.exists());
    let json = args.json.as_deref().filter(is_file);
    for dir in [json.map(parent), args.classic_files.as_deref()] {
        dir.map_or(Ok(()), make_ready)?;
    }
    let monitors = args.classic_files.as_deref().map(Monitors::start).transpose()?;
    monitors.iter().filter_map(|m| m.warning.as_ref()).for_each(output::warn);
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        let running = monitors.as_ref().is_some_and(Monitors::complete);
        output::print(&classic::head(&head, running, &TimeZone::system()));
    }
    let workload: Arc<dyn Workload> = Arc::new(slob);
    let hosts = Hosts::new();
    let sources = (!args.telemetry.is_zero()).then(|| {
        let (params, server, hosts) = (&params, &found, &hosts);
        let survey = Survey { params, server, cadence: args.telemetry, hosts, host: None };
        TelemetrySources::survey(&survey, &mut admin)
    });
    let request = Request {
        member: None,
        generator: Default::default(),
        run_id: &run_id,
        place: None,
        params: &params,
        server: &found,
        workload: &workload,
        declared: &[],
        session_settings: Vec::new(),
        warmup: settings.warmup,
        checkpoint: Checkpoint::Before,
        seed: settings.seed.unwrap_or_else(state::new_seed),
        stop: &stop,
        sources: sources.as_ref(),
        hosts: &hosts,
        server_host: sources.as_ref().and_then(TelemetrySources::server_host).map(Host::name),
        private: false,
    };
    let mut status = Status::new();
    let whole = match settings.extent() {
        Extent::Time(window) => format!(" of {:.0}", window.as_secs_f64()),
        _ => String::new(),
    };
    let TrialResult { mut trial, error, .. } =
        trial::run(&request, &mut [], &mut admin, &mut |p| {
            let rate = p.block_visits as f64 / p.elapsed.max(1e-3);
            status.show(&format!("{:.0}{whole} s, {} blocks/s", p.elapsed, human::rate(rate)));
        });
    status.clear();
    for check in &mut trial.checks {
        checks::tolerate(check, &args.tolerate);
    }
    // If the server is unreachable, the table keeps our mark and `destroy` finds it.
    let _ = workload.clean_up(&mut admin);
    Arc::make_mut(&mut trial.environment)
        .extend(held.map(|held| (environment::BALLAST.to_owned(), held)));
    // A file that cannot be written costs neither the record nor the report.
    let finished: Outcome = monitors.map_or(Ok(()), |monitors| Ok(monitors.finish()?));
    let stored = args.json.as_ref().map_or(Ok(()), |path| store_json(path, &trial));
    let classic = args.classic_files.as_ref();
    let classic = classic.map_or(Ok(()), |dir| write_classic_files(dir, &mut admin, &trial));
    let written = stored.and(finished).and(classic);
    if let Some(error) = error {
        if trial.outcome == Ended::Interrupted && !trial.metrics.is_empty() && !to_stdout {
            output::print(&trial_report::render(&trial));
        }
        return Err(error.into());
    }
    if !to_stdout {
        output::print(&classic::tail(&trial));
        output::print(&trial_report::render(&trial));
    }
    written?;
    refuse_invalid(&trial)
}

/// The record and the report are complete; the exit code says that the numbers do not count.
fn refuse_invalid(trial: &Trial) -> Outcome {
    let invalid = trial.checks.iter().filter(|c| c.verdict == CheckVerdict::Invalid);
    let ids: Vec<&str> = invalid.map(|c| c.id.as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids = ids.join(",");
    let message = format!("the trial is invalid: {ids}; to let it count, add --tolerate {ids}");
    Err(Failure::message(TRIAL, message))
}

/// Returns the connection string as given, unless it contains a password.
fn shown_connect_string(given: &crate::config::ConnectString, params: &ConnectParams) -> String {
    let text = given.expose();
    let holds_secret =
        params.password.as_ref().is_some_and(|p| text.contains(p.expose()) || p.is_in(text));
    // Escapes may hide a password, so anything suspicious counts as one.
    if holds_secret || pgio_connect::names_secret(text) || text.contains('@') {
        params.without_secrets()
    } else {
        text.to_owned()
    }
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks before the window that results can be written after it.
fn make_ready(dir: &Path) -> Outcome {
    fs::create_dir_all(dir)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot create {}", dir.display())))?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot write in {}", dir.display())))
}

fn store_json(path: &Path, trial: &Trial) -> Outcome {
    let text = wire::to_json_pretty(trial) + "\n";
    if path == Path::new("-") {
        output::document(&printable::json(&text));
        return Ok(());
    }
    Ok(store::write_named(path, &text)?)
}

fn write_classic_files(dir: &Path, admin: &mut Client, trial: &Trial) -> Outcome {
    store::write_durably(
        &dir.join("pgio_session_detail.out"),
        &printable::lines(&session_detail::render(trial)),
    )?;
    // The original lists the objects it creates for a run; here every session runs a DO block.
    let tags = "DO\n".repeat(trial.sessions.len());
    store::write_durably(&dir.join("pgio_objects_creation.out"), &tags)?;
    // Sizes of an unreachable server are unknown; the trial's own error reports that.
    if let Ok(text) = sizes::table_sizes(admin) {
        let file = dir.join("pgio_data_load_table_sizes.out");
        store::write_durably(&file, &printable::lines(&text))?;
    }
    Ok(())
}
