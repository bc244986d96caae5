//! Reads and runs experiment files, shows them, and writes report pages beside the results.
//!
//! `experiment::application` does the work and `pgio_report::directories` writes the pages; `compare`, `demo`,
//! `plan` and `pgio-bench truth` share this file.

use std::path::{Path, PathBuf};

use super::exit::{FILES, Failure, INTERRUPTED, TRIAL, USAGE};
use super::progress::Display;
use super::{flags, output, signals};
use crate::config::experiment::limits::FILE_BYTES;
use crate::experiment::application::{self, Job, Run};
use crate::experiment::event::Event;
use crate::feature;
use crate::pg::words;
use pgio_report::directories;
use pgio_results::files;
use pgio_results::store::{self, StoreError};

pub(super) fn read(file: &Path) -> Result<Job, Failure> {
    read_with(file, &[])
}

/// With values from flags, which replace the values of the file's keys of the same name.
pub(super) fn read_with(file: &Path, flags: &[(&str, &str)]) -> Result<Job, Failure> {
    let shown = file.display().to_string();
    let mut text = files::read_text(file, FILE_BYTES)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot read {shown}")))?;
    text = application::with_nodes(text, &shown)?;
    for (key, value) in flags {
        text = application::with_value(&text, key, value).ok_or_else(|| {
            let hint = format!("write [experiment] and {key} = \"{value}\" into the file instead");
            Failure::message(USAGE, format!("--{key}: no line can be added to {shown}; {hint}"))
        })?;
    }
    let stem = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    parse(&text, &shown, &stem)
}

/// Parses an experiment; ./pgio.conf provides keys that the text lacks.
pub fn parse(text: &str, file: &str, stem: &str) -> Result<Job, Failure> {
    Ok(Job::parse(text, file, stem, flags::read_conf_keys()?)?)
}

/// Runs it and returns the result directory of each workload. `hear` receives the events as well.
pub fn perform(
    job: &Job,
    run: &Run<'_>,
    hear: &mut dyn FnMut(&Event<'_>),
) -> Result<Vec<PathBuf>, Failure> {
    let mut display = Display::new(&job.experiment);
    let dirs = application::perform(job, run, &mut |event| {
        display.show(&event);
        if let Event::WorkloadEnds { dir } = &event {
            note_unwritten(dir, directories::write_page(dir, &feature::findings()));
        }
        hear(&event);
    });
    let dirs = dirs.map_err(|error| signals::replace_if_stopped(error.into()))?;
    if job.experiment.workloads.len() > 1 {
        let written =
            directories::write_index(run.out, &job.experiment.name, &dirs, &feature::findings());
        note_unwritten(run.out, written);
    }
    Ok(dirs)
}

/// The results are stored already, so a page that cannot be written is only a warning.
fn note_unwritten(dir: &Path, written: Result<(), StoreError>) {
    if let Err(error) = written {
        let page = directories::page_path(dir);
        let why = words::sentence(&error);
        output::note(&format!("warning: cannot write {}: {why}", page.display()));
    }
}

/// After a stop or failed trials: prints where the complete trials are and how to continue.
pub(super) fn note_kept_trials(why: &Failure, out: &Path) {
    if [INTERRUPTED, TRIAL].contains(&why.code()) && store::experiments(out).is_ok() {
        let out = out.display();
        output::note(&format!("complete trials are kept in {out}; continue with --resume {out}"));
    }
}
