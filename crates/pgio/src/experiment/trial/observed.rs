//! Telemetry of a trial: starts and stops it around the window, records it, and adds its metrics.

use std::time::Duration;

use pgio_connect::Client;

use super::Request;
use super::record::put;
use crate::pg::server;
use crate::rng::derive;
use crate::telemetry::{self, Recorder, TrialPlan};
use crate::workload::WovenCondition;
use pgio_results::model::Trial;
use pgio_results::telemetry::Series;
use pgio_results::telemetry::{DeviceUse, Telemetry};
use pgio_results::waits::{GROUPS, by_group};

/// The default block size of PostgreSQL.
const BLOCK_BYTES: f64 = 8192.0;

/// `window` is the length of the window, if it has one.
pub(super) fn start<'a>(
    request: &Request<'a>,
    window: Option<Duration>,
    admin: &mut Client,
) -> Option<Recorder<'a>> {
    let sources = request.sources?;
    let needed = i64::from(telemetry::SESSIONS);
    let room = server::connections(admin).is_ok_and(|c| c.free() >= needed);
    let pid = admin.query_one("SELECT pg_backend_pid()", &[]).and_then(|row| row.try_get(0));
    let seed = derive(request.seed, "waits", 0);
    // The hosts of a joint window are observed once, for all its servers.
    let hosts = request.member.is_none();
    let plan = TrialPlan { window, has_connections: room, backend_pid: pid.ok(), hosts, seed };
    Some(Recorder::start(sources, plan))
}

/// Ends the samplers and keeps their samples.
pub(super) fn record(
    request: &Request<'_>,
    trial: &mut Trial,
    recorder: Recorder<'_>,
) -> Option<Series> {
    let (telemetry, series, warnings) = recorder.finish()?;
    trial.telemetry = Some(match request.member {
        Some(_) => without_pgio(telemetry),
        None => telemetry,
    });
    trial.warnings.extend(warnings);
    Some(series)
}

/// Removes pgio's own work, which is for all servers of a joint window together.
fn without_pgio(telemetry: Telemetry) -> Telemetry {
    Telemetry { driver_cpu_seconds: None, sampling_cpu_seconds: None, ..telemetry }
}

/// [`record`] of a woven window: each condition's trial has the waits of its own slices.
pub(super) fn record_woven(
    trials: &mut [Trial],
    recorder: Recorder<'_>,
    conditions: &[WovenCondition],
) -> Option<Series> {
    let spans: Vec<_> = conditions.iter().map(|c| c.spans.clone()).collect();
    let (telemetry, series, warnings, waits) = recorder.finish_woven(&spans)?;
    for (trial, waits) in trials.iter_mut().zip(waits) {
        trial.telemetry = Some(Telemetry { waits, ..telemetry.clone() });
        trial.warnings.extend(warnings.iter().cloned());
    }
    Some(series)
}

/// Call this after the server's counters are recorded, since one metric is the difference of both.
pub(super) fn add_metrics(trial: &mut Trial) {
    let Some(telemetry) = trial.telemetry.clone() else { return };
    // In a woven window the devices served all conditions.
    let own = trial.woven.is_none();
    if let Some(devices) = telemetry.devices_in_use().filter(|_| own) {
        let sum = |value: fn(&DeviceUse) -> f64| devices.iter().map(|d| value(d)).sum::<f64>();
        put(&mut trial.metrics, "device_reads_per_second", Some(sum(|d| d.reads_per_second)));
        put(&mut trial.metrics, "device_writes_per_second", Some(sum(|d| d.writes_per_second)));
        let flushed = telemetry.flushed_devices().unwrap_or_default();
        let flushes = flushed.iter().map(|d| d.flushes_per_second).sum::<Option<f64>>();
        let flushes = flushes.filter(|_| !flushed.is_empty());
        put(&mut trial.metrics, "device_flushes_per_second", flushes);
        let riops = trial.metrics.get("riops").and_then(|m| m.value);
        let read = sum(|d| d.read_bytes_per_second) / BLOCK_BYTES;
        // Read-ahead may read more than was requested.
        put(&mut trial.metrics, "page_cache_reads_per_second", riops.map(|r| (r - read).max(0.0)));
    }
    if let Some(waits) = &telemetry.waits {
        let seen = by_group(waits);
        let all: u64 = seen.values().sum();
        for group in GROUPS {
            let n = seen.get(group).copied().unwrap_or(0);
            put(&mut trial.metrics, group.metric(), (all > 0).then(|| n as f64 / all as f64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::model::Metric;
    use pgio_results::telemetry::{Device, HostUse, Probes, Storage, Waits};

    fn storage(role: &str, devices: &[&str]) -> Storage {
        let device = |name: &&str| Device { name: (*name).to_owned(), ..Device::default() };
        Storage {
            role: role.to_owned(),
            host: "local".to_owned(),
            devices: devices.iter().map(device).collect(),
            ..Storage::default()
        }
    }

    fn observed(storage: Vec<Storage>) -> Trial {
        let device = |reads: f64| DeviceUse {
            reads_per_second: reads,
            read_bytes_per_second: reads * 8192.0,
            flushes_per_second: Some(1.0),
            ..DeviceUse::default()
        };
        let uncounted = DeviceUse { flushes_per_second: None, ..device(100.0) };
        let devices = [
            ("dm-0", device(100.0)),
            ("dm-1", uncounted),
            ("vda", device(100.0)),
            ("vdb", device(7.0)),
        ];
        let devices = devices.map(own).into();
        let hosts = [("local", HostUse { devices, ..HostUse::default() })].map(own).into();
        let sightings = [("CPU", 3), ("IO:WalSync", 1)].map(own).into();
        let waits = Some(Waits { rounds: 4, sessions: 1, sightings, ..Waits::default() });
        let mut trial = Trial {
            telemetry: Some(Telemetry { hosts, storage, waits, ..Telemetry::default() }),
            ..Trial::new()
        };
        let riops = Metric::new(Some(250.0), "blocks/s");
        trial.metrics.insert("riops".to_owned(), riops);
        add_metrics(&mut trial);
        trial
    }

    fn own<T>((name, value): (&str, T)) -> (String, T) {
        (name.to_owned(), value)
    }

    fn value(trial: &Trial, name: &str) -> Option<f64> {
        trial.metrics.get(name).and_then(|m| m.value)
    }

    #[test]
    fn a_device_counts_once_and_the_disk_below_it_not_at_all() {
        let trial = observed(vec![
            storage("data", &["dm-0", "vda"]),
            storage("wal", &["vdb"]),
            storage("tablespace a", &["dm-0", "vda"]),
        ]);
        assert_eq!(value(&trial, "device_reads_per_second"), Some(107.0));
        assert_eq!(value(&trial, "device_flushes_per_second"), Some(2.0));
        assert_eq!(value(&trial, "page_cache_reads_per_second"), Some(143.0));
        let trial = observed(vec![storage("data", &["dm-1", "vda"])]);
        assert_eq!(value(&trial, "device_reads_per_second"), Some(100.0));
        assert_eq!(value(&trial, "device_flushes_per_second"), Some(1.0), "the disk's");
    }

    #[test]
    fn a_device_that_was_not_observed_leaves_the_sum_unknown() {
        let trial = observed(vec![storage("data", &["dm-0"]), storage("wal", &["sdz"])]);
        assert_eq!(value(&trial, "device_reads_per_second"), None);
        assert_eq!(value(&observed(Vec::new()), "device_reads_per_second"), None);
    }

    #[test]
    fn a_server_of_a_joint_window_keeps_its_own_probes() {
        let found = Telemetry {
            probes: Some(Probes { flush_seconds: Some(0.001), ..Probes::default() }),
            driver_cpu_seconds: Some(1.0),
            sampling_cpu_seconds: Some(0.1),
            ..Telemetry::default()
        };
        let own = without_pgio(found.clone());
        assert_eq!((own.driver_cpu_seconds, own.sampling_cpu_seconds), (None, None));
        assert_eq!(own.probes, found.probes);
    }

    #[test]
    fn shares_of_waits_add_up() {
        let trial = observed(Vec::new());
        assert_eq!(value(&trial, "wait_share_cpu"), Some(0.75));
        assert_eq!(value(&trial, "wait_share_flush"), Some(0.25));
        let all: f64 = GROUPS.iter().filter_map(|g| value(&trial, g.metric())).sum();
        assert_eq!(all, 1.0);
    }
}
