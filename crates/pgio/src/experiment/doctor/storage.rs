//! Storage of the server's files: device, file system, queue settings, free space.
//!
//! A volatile write cache that acknowledges flushes can only be suspected here; a trial shows more,
//! because it knows the commit rate.

use crate::experiment::trial_checks::lies_on;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::telemetry::TelemetrySources;
use pgio_results::Check;
use pgio_results::telemetry::Storage;
use pgio_results::units::human;

const ID: &str = "storage";

/// File systems in memory, and container layers.
const NO_DISK_FILE_SYSTEMS: &[&str] = &["tmpfs", "ramfs", "overlay"];
/// Mount options that suppress flushes.
const NO_BARRIER_OPTIONS: &[&str] = &["nobarrier", "barrier=0", "sync=disabled"];
/// Schedulers that reorder requests for fairness.
const REORDERING_SCHEDULERS: &[&str] = &["bfq", "cfq"];
/// Less may not hold the WAL of an experiment.
const MIN_FREE_BYTES: u64 = 2 << 30;

/// `device` is the device under test as the experiment names it.
pub(super) fn judge(sources: &TelemetrySources, device: Option<&str>) -> Vec<Check> {
    let found = sources.storage();
    // The survey has warned about directories that it could not read.
    let mut checks: Vec<Check> =
        found.iter().filter(|s| s.is_located()).map(check_storage).collect();
    let unknown = sources.warnings().iter();
    checks
        .extend(unknown.map(|w| Check::warning(ID, format!("{}: {}", w.what, w.why), &w.try_this)));
    checks
        .extend(device.map(|device| {
            lies_on(found, sources.kernel_name(device).as_deref().unwrap_or(device))
        }));
    let data = found.iter().find(|s| s.role == "data" && s.is_located());
    checks.extend(
        sources.server_host().zip(data).and_then(|(host, data)| check_free_space(host, data)),
    );
    checks
}

fn check_storage(storage: &Storage) -> Check {
    let devices: Vec<&str> = storage.devices.iter().map(|d| d.name.as_str()).collect();
    let queue = |name: &str| storage.devices.iter().find_map(|d| d.queue.get(name));
    let mut text = format!(
        "{}: {} on {}, mounted on {}",
        storage.role,
        storage.file_system,
        if devices.is_empty() { "no device".to_owned() } else { devices.join(", ") },
        storage.mount_point
    );
    for name in ["scheduler", "write_cache"] {
        if let Some(value) = queue(name) {
            text += &format!(", {} {value}", name.replace('_', " "));
        }
    }
    let option = |names: &[&str]| {
        storage.mount_options.split(',').find(|o| names.contains(o)).map(str::to_owned)
    };
    if NO_DISK_FILE_SYSTEMS.contains(&storage.file_system.as_str()) {
        let remedy = "put the data on a file system of a disk";
        return Check::warning(ID, format!("{text}: no disk is measured"), remedy);
    }
    if let Some(option) = option(NO_BARRIER_OPTIONS) {
        return Check::warning(
            ID,
            format!("{text}, {option}: commits are acknowledged before they are durable"),
            "mount it without this option, unless that is what you measure",
        );
    }
    match queue("scheduler").filter(|s| REORDERING_SCHEDULERS.contains(&s.as_str())) {
        None => Check::ok(ID, text),
        Some(_) => Check::warning(
            ID,
            text,
            "write mq-deadline or none to the device's queue/scheduler, or report the scheduler with the results",
        ),
    }
}

/// Free space as df shows it, which is what an ordinary user can use.
fn check_free_space(host: &Host, storage: &Storage) -> Option<Check> {
    const ID: &str = "room-for-data";
    let printed = host.run(&CommandLine::new("df").args(["-Pk", &storage.directory])).ok()?;
    let free = available_bytes(&printed)?;
    let text = format!("{} free on {}", human::bytes(free), storage.mount_point);
    Some(if free >= MIN_FREE_BYTES {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "free some space: a server without space for WAL stops")
    })
}

/// Returns bytes from the fourth column of the second line.
fn available_bytes(df: &str) -> Option<u64> {
    let kilobytes: u64 = df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict::{Ok as Fine, Warning};
    use pgio_results::telemetry::Device;

    fn storage(file_system: &str, options: &str, scheduler: &str) -> Storage {
        let queue = [("scheduler", scheduler), ("write_cache", "write back")];
        let queue = queue.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let device =
            Device { name: "vda".to_owned(), kind: "disk".to_owned(), queue, ..Device::default() };
        Storage {
            role: "data".to_owned(),
            file_system: file_system.to_owned(),
            mount_point: "/".to_owned(),
            mount_options: options.to_owned(),
            devices: vec![device],
            ..Storage::default()
        }
    }

    #[test]
    fn storage_is_described_and_unusual_storage_is_a_warning() {
        let usual = check_storage(&storage("ext4", "rw,relatime", "none"));
        assert_eq!(usual.verdict, Fine);
        let expected = "data: ext4 on vda, mounted on /, scheduler none, write cache write back";
        assert_eq!(usual.message, expected);
        assert_eq!(check_storage(&storage("tmpfs", "rw", "none")).verdict, Warning);
        assert_eq!(check_storage(&storage("ext4", "rw,nobarrier", "none")).verdict, Warning);
        assert_eq!(check_storage(&storage("ext4", "rw", "bfq")).verdict, Warning);
    }

    #[test]
    fn free_space_is_read_from_the_second_line() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                  /dev/vda 263000000 1 2048 45% /\n";
        assert_eq!(available_bytes(df), Some(2 << 20));
        assert_eq!(available_bytes("df: no such file"), None);
    }
}
