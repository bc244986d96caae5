//! Shows a load of the data set: progress on a terminal, warnings, and the original's lines on request.

use postgres::Client;

use super::output::{self, Status};
use crate::dataset::{DatasetError, LoadEvent, LoadSpec, LoadSummary, lines};
use crate::experiment::slob;
use crate::host::stop::Stop;
use pgio_connect::ConnectParams;

/// Which lines a load prints to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    None,
    /// The lines of the original.
    Classic,
}

pub fn load(
    admin: &mut Client,
    params: &ConnectParams,
    spec: &LoadSpec,
    stop: &Stop,
    shown: Lines,
) -> Result<LoadSummary, DatasetError> {
    let mut status = Status::new();
    slob::load(admin, params, spec, stop, &mut |event| show(&event, shown, &mut status))
}

pub(super) fn show(event: &LoadEvent, shown: Lines, status: &mut Status) {
    let line = match *event {
        LoadEvent::Progress { done, total, elapsed } => {
            return status.show(&lines::progress(done, total, elapsed));
        }
        LoadEvent::Warning(ref warning) => {
            status.clear();
            return output::warn(warning);
        }
        LoadEvent::TableLoaded { .. } => return,
        LoadEvent::BaseLoaded { elapsed } => lines::base_loaded(elapsed),
        LoadEvent::ScanLoaded { elapsed } => lines::scan_loaded(elapsed),
        LoadEvent::BatchWaiting { count, elapsed } => lines::batch_waiting(count, elapsed),
        LoadEvent::GroupComplete { elapsed } => lines::group_complete(elapsed),
    };
    status.clear();
    if shown == Lines::Classic {
        output::line(&line);
    }
}
