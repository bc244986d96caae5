//! The readings around a window and the evidence inside it, for plain and for woven trials.
//!
//! Each function reads one thing and says in its error which, so that the caller keeps what was read before.
//! Their order is the trial's: see `measure` in `trial` and in `woven`. Next: `counters`.

use std::collections::BTreeMap;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::counters::{self, Readings};
use super::request::Request;
use crate::config::experiment::Checkpoint;
use crate::experiment::environment;
use crate::pg::server;
use crate::telemetry::Standbys;
use crate::workload::EngineError;
use pgio_results::model::{DatasetInfo, Evidence, ServerInfo, Trial, Warning, When};

/// Interval of reading evidence inside the window; longer where reading takes more than [`EVIDENCE_SHARE`].
const EVIDENCE_EVERY: Duration = Duration::from_millis(250);
/// Reading evidence takes at most this fraction (1/n) of the time: it is work on the measured hosts, and
/// some conditions need more of it than others.
const EVIDENCE_SHARE: u32 = 20;

/// A server that is prepared for a trial.
pub(super) struct PreparedServer {
    settings: ServerSettings,
    /// Why the checkpoint that was asked for failed.
    warning: Option<Warning>,
}

/// What a record says of the server and a condition may change.
struct ServerSettings {
    shared_buffers: String,
    fsync: String,
    full_page_writes: String,
    started: i64,
}

impl PreparedServer {
    pub(super) fn record(&self, trial: &mut Trial) {
        let ServerSettings { shared_buffers, fsync, full_page_writes, started } = &self.settings;
        trial.server.started = Some(*started);
        trial.server.shared_buffers.clone_from(shared_buffers);
        trial.server.fsync.clone_from(fsync);
        trial.server.full_page_writes.clone_from(full_page_writes);
        trial.warnings.extend(self.warning.clone());
    }
}

/// Prepares the server before any session connects: first the workload's data, last the checkpoint.
pub(super) fn prepare_server(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<PreparedServer, EngineError> {
    request.workload.before_trial(admin).map_err(failed("preparing the trial"))?;
    let settings = read_server_settings(admin)?;
    let warning = if request.checkpoint == Checkpoint::None {
        None
    } else {
        server::checkpoint(admin, request.server).err()
    };
    Ok(PreparedServer { settings, warning })
}

/// Reads the size of the data, where the workload has a data set.
pub(super) fn read_dataset(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<Option<DatasetInfo>, EngineError> {
    request.workload.dataset(admin).map_err(failed("measuring the data set"))
}

/// Facts of hosts, by name.
pub(super) type HostFacts = BTreeMap<String, String>;

/// Prepares the work and meanwhile reads the facts of hosts and standbys. One after the other, the sessions would
/// stand still between warm-up and window, and a short trial would take a twentieth longer.
pub(super) fn prepare_and_read_host<T>(
    request: &Request<'_>,
    prepare: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(T, HostFacts), EngineError> {
    let sources = request.sources;
    thread::scope(|scope| {
        let read = || environment::read_host(sources, Standbys::Read);
        let reading = thread::Builder::new().spawn_scoped(scope, read);
        let prepared = prepare();
        let facts = match reading {
            Ok(reading) => reading.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
            // No more threads may start.
            Err(_) => read(),
        };
        Ok((prepared?, facts))
    })
}

/// Adds the server's settings to the facts of hosts.
pub(super) fn read_environment(
    host: HostFacts,
    admin: &mut Client,
) -> Result<BTreeMap<String, String>, EngineError> {
    let mut found = environment::read_settings(admin).map_err(failed("reading settings"))?;
    found.extend(host);
    Ok(found)
}

/// Reads again what may not change inside the window.
pub(super) fn read_environment_again(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<BTreeMap<String, String>, EngineError> {
    read_environment(environment::read_host(request.sources, Standbys::Skip), admin)
}

pub(super) fn read_counters(
    request: &Request<'_>,
    admin: &mut Client,
    when: When,
) -> Result<Readings, EngineError> {
    Ok(counters::readings(request.server.info.version_num, admin, when)?)
}

/// Reads durability and the size of the data at the end of a window into the records of all its trials.
pub(super) fn read_end(
    request: &Request<'_>,
    admin: &mut Client,
    trials: &mut [Trial],
) -> Result<(), EngineError> {
    let ServerSettings { fsync, full_page_writes, .. } = read_server_settings(admin)?;
    let now = read_dataset(request, admin)?;
    for trial in trials {
        let ServerInfo { fsync: first, full_page_writes: second, .. } = &mut trial.server;
        // A setting that was off at either end was not on throughout.
        for (found, after) in [(first, &fsync), (second, &full_page_writes)] {
            if after == "off" {
                found.clone_from(after);
            }
        }
        if let (Some(info), Some(now)) = (&mut trial.dataset, &now) {
            info.bytes_after = now.bytes_after;
        }
    }
    Ok(())
}

/// Reads them anew for each trial: its condition may have restarted the server.
fn read_server_settings(admin: &mut Client) -> Result<ServerSettings, EngineError> {
    let row = admin
        .query_one(
            "SELECT current_setting('shared_buffers'), current_setting('fsync'), \
                    current_setting('full_page_writes'), \
                    extract(epoch FROM pg_postmaster_start_time())::bigint",
            &[],
        )
        .map_err(failed("reading settings"))?;
    Ok(ServerSettings {
        shared_buffers: row.try_get(0)?,
        fsync: row.try_get(1)?,
        full_page_writes: row.try_get(2)?,
        started: row.try_get(3)?,
    })
}

/// Makes the error of what was being done, for `map_err`.
pub(super) fn failed(doing: &'static str) -> impl Fn(pgio_connect::Error) -> EngineError {
    move |source| EngineError::Postgres { doing, source }
}

/// When evidence is read inside a window.
pub(super) struct EvidencePace(Instant);

impl EvidencePace {
    pub(super) fn new() -> EvidencePace {
        EvidencePace(Instant::now())
    }

    pub(super) fn restart(&mut self, at: Instant) {
        self.0 = at;
    }

    /// Reads if it is time; the next time depends on how long that takes.
    pub(super) fn read_if_due(&mut self, read: impl FnOnce()) {
        let now = Instant::now();
        if self.0 <= now {
            read();
            self.0 = now + EVIDENCE_EVERY.max(now.elapsed() * EVIDENCE_SHARE);
        }
    }
}

/// Adds what is not yet known.
pub(super) fn add_new(known: &mut Vec<Evidence>, found: Vec<Evidence>) {
    for evidence in found {
        if !known.contains(&evidence) {
            known.push(evidence);
        }
    }
}

/// Returns the error of a condition that is not in force before its window.
pub(super) fn refuse_unproved(evidence: &[Evidence]) -> Result<(), EngineError> {
    for e in evidence {
        if let (false, Some(expected)) = (e.holds(), &e.expected) {
            return Err(EngineError::NotInForce(format!(
                "{} was {} instead of {expected}",
                e.what, e.found
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::test_support::full_trial;

    #[test]
    fn a_record_has_the_settings_that_its_condition_gave_the_server() {
        let mut trial = full_trial();
        let settings = ServerSettings {
            shared_buffers: "4GB".to_owned(),
            fsync: "off".to_owned(),
            full_page_writes: "on".to_owned(),
            started: 1_764_000_000,
        };
        PreparedServer { settings, warning: None }.record(&mut trial);
        let found = &trial.server;
        assert_eq!(
            [&found.shared_buffers, &found.fsync, &found.full_page_writes],
            ["4GB", "off", "on"]
        );
        assert_eq!(found.started, Some(1_764_000_000));
    }
}
