//! `pgio run`: runs one trial on the loaded data set; prints the classic lines, then latencies and checks.
//!
//! `experiment::application::single` runs the trial; this file prints it and writes the files that the user
//! names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::exit::{FILES, Failure, Outcome, TRIAL};
use super::flags::{self, ForRun, Source};
use super::output::{self, Status};
use super::progress::named_rate;
use super::signals;
use crate::config::nearest;
use crate::config::resolve::Extent;
use crate::experiment::application::single::{
    self, OpenedRun, SingleEvent, SingleResult, SingleRun,
};
use crate::feature;
use crate::workload::Progress;
use pgio_connect::ConnectParams;
use pgio_report::report::{classic, trial as trial_report};
use pgio_results::files::Directory;
use pgio_results::model::{CheckVerdict, Outcome as Ended, Trial};
use pgio_results::{store, units, wire};

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
    /// Fail with exit code 5 also if others disturbed the trial (foreign-load, foreign-sessions, steal)
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    source: Source<ForRun>,
}

/// What others did on the machine. One trial is compared with nothing, so its numbers stand, with a remark.
const DISTURBANCES: &[&str] = &["foreign-load", "foreign-sessions", "steal"];

fn tolerable(id: &str) -> Result<String, String> {
    let valid = feature::tolerable();
    let known = valid.contains(&id).then(|| id.to_owned());
    known.ok_or_else(|| format!("no check that can make a trial invalid; {}", nearest(id, &valid)))
}

pub(super) fn run(args: &Args) -> Outcome {
    let keys = flags::read_keys(&args.source)?;
    let stop = signals::stop_on_signals()?;
    let mut tolerate = args.tolerate.clone();
    if !args.strict {
        tolerate.extend(DISTURBANCES.iter().map(|id| (*id).to_owned()));
    }
    let run = SingleRun {
        keys: &keys,
        telemetry: args.telemetry,
        tolerate: &tolerate,
        monitor_dir: args.classic_files.as_deref(),
        stop: &stop,
    };
    let mut display = Display { head: None, length: String::new(), status: Status::new() };
    let mut opened = single::open(run, &mut |event| display.show(event))?;
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        let shown = shown_connect_string(&keys.connect_string(), &opened.params);
        display.head = Some(head(&opened, shown));
    }
    if let Extent::Time(window) = opened.settings.extent() {
        display.length = format!(" of {:.0}", window.as_secs_f64());
    }
    // A pipe or a terminal has a directory that needs no file.
    let is_file = |path: &&Path| *path != Path::new("-") && (path.is_file() || !path.exists());
    let json = args.json.as_deref().filter(is_file);
    for dir in [json.map(parent), args.classic_files.as_deref()] {
        dir.map_or(Ok(()), make_ready)?;
    }
    let SingleResult { trial, error, monitors } = opened.run(&mut |event| display.show(event))?;
    // A file that cannot be written costs neither the record nor the report.
    let stored = args.json.as_ref().map_or(Ok(()), |path| store_json(path, &trial));
    let classic = args.classic_files.as_ref();
    let classic = classic.map_or(Ok(()), |dir| write_classic_files(dir, &mut opened, &trial));
    let written = stored.and(monitors.map_err(Failure::from)).and(classic);
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

fn head(opened: &OpenedRun<'_>, connect_string: String) -> classic::Head {
    let settings = &opened.settings;
    classic::Head {
        started_at: Timestamp::now().to_string(),
        connect_string,
        shared_buffers: opened.server.info.shared_buffers.clone(),
        tables: settings.tables(),
        sessions_per_table: classic::sessions_per_table(settings.sessions(), settings.tables()),
        scale: settings.scale.to_string(),
        blocks_per_table: settings.scale.blocks(),
    }
}

/// Shows the events of the trial.
struct Display {
    /// Printed when the trial begins; none if only JSON is printed.
    head: Option<classic::Head>,
    /// ` of 120` if the window has a fixed length in seconds.
    length: String,
    status: Status,
}

impl Display {
    fn show(&mut self, event: &SingleEvent<'_>) {
        match event {
            SingleEvent::OtherInterrupted(other) => output::warn_unfinished(other),
            SingleEvent::Warns(warning) => output::warn(warning),
            SingleEvent::Begins { monitored } => {
                if let Some(head) = &self.head {
                    output::print(&classic::head(head, *monitored, &TimeZone::system()));
                }
            }
            SingleEvent::Progress(progress) => {
                self.status.show(&progress_line(progress, &self.length));
            }
            SingleEvent::Ended => self.status.clear(),
        }
    }
}

/// Returns the line that a terminal shows while the sessions work; `length` as in [`Display`].
fn progress_line(progress: &Progress, length: &str) -> String {
    let time = format!("{:.0}{length} s", progress.elapsed);
    match named_rate("block_visits_per_second", progress) {
        Some(rate) => format!("{time}, {rate}"),
        // No counts have arrived yet.
        None => time,
    }
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
    let holds_secret = params.password.as_ref().is_some_and(|p| p.is_exactly_in(text));
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
    Directory::open_or_create(dir)
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

fn write_classic_files(dir: &Path, opened: &mut OpenedRun<'_>, trial: &Trial) -> Outcome {
    store::write_durably(
        &dir.join("pgio_session_detail.out"),
        &printable::lines(&classic::session_detail(trial)),
    )?;
    // The original lists the objects it creates for a run; here every session runs a DO block.
    let tags = "DO\n".repeat(trial.sessions.len());
    store::write_durably(&dir.join("pgio_objects_creation.out"), &tags)?;
    // Sizes of an unreachable server are unknown; the trial's own error reports that.
    if let Some(text) = opened.table_sizes() {
        let file = dir.join("pgio_data_load_table_sizes.out");
        store::write_durably(&file, &printable::lines(&text))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_shows_the_rate_of_the_counts_that_arrived() {
        let at = |progress: Progress| progress_line(&progress, " of 120");
        assert_eq!(at(Progress { elapsed: 0.9, ..Progress::default() }), "1 of 120 s");
        let covered = Progress { elapsed: 2.9, covered: 2.0, ..Progress::default() };
        let visits = Progress { block_visits: 20_000, commits: 600, ..covered };
        assert_eq!(at(visits), "3 of 120 s, 10,000 blocks/s", "not 6,897");
        let scans = Progress { blocks_scanned: 4000, ..covered };
        assert_eq!(at(scans), "3 of 120 s, 2,000 blocks/s", "not 0");
    }
}
