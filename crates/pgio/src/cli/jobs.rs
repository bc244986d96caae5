//! Experiment files from the command line: read, run and shown, with their pages left beside the results.
//!
//! `experiment::application` runs them; here is what `compare`, `demo` and `pgio-bench truth` do around it.

use std::path::{Path, PathBuf};

use super::exit::{FILES, Failure, INTERRUPTED, TRIAL};
use super::progress::Display;
use super::{connection, output, report, signals};
use crate::config::experiment::limits::FILE_BYTES;
use crate::experiment::application::{self, Job, Run};
use crate::experiment::event::Event;
use crate::files;
use crate::results::store;

pub fn read(file: &Path) -> Result<Job, Failure> {
    let shown = file.display().to_string();
    let text = files::read_text(file, FILE_BYTES)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot read {shown}")))?;
    let stem = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    parse(&text, &shown, &stem)
}

/// With the keys of ./pgio.conf below those of the text.
pub fn parse(text: &str, file: &str, stem: &str) -> Result<Job, Failure> {
    Ok(Job::parse(text, file, stem, connection::conf_only()?)?)
}

/// Runs it, and returns the directories of its workloads' results. `hear` receives the events as well.
pub fn perform(
    job: &Job,
    run: &Run<'_>,
    hear: &mut dyn FnMut(&Event<'_>),
) -> Result<Vec<PathBuf>, Failure> {
    let mut display = Display::new(&job.experiment);
    let dirs = application::perform(job, run, &mut |event| {
        display.show(&event);
        if let Event::WorkloadEnds { dir } = &event {
            report::leave_page(dir);
        }
        hear(&event);
    });
    let dirs = dirs.map_err(|error| signals::stopped(error.into()))?;
    if job.experiment.workloads.len() > 1 {
        report::leave_index(run.out, &job.experiment.name, &dirs);
    }
    Ok(dirs)
}

/// After a stop, or trials that failed: where the others are, and how to go on.
pub fn note_kept(why: &Failure, out: &Path) {
    if [INTERRUPTED, TRIAL].contains(&why.code()) && store::experiments(out).is_ok() {
        let out = out.display();
        output::note(&format!("what is complete is kept in {out}; --resume {out} goes on with it"));
    }
}
