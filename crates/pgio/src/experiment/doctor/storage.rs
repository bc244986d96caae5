//! Storage of the server's files: device, file system, queue settings, free space.
//!
//! A volatile write cache that acknowledges flushes can only be suspected here; a trial shows more,
//! because it knows the commit rate.

use pgio_connect::Client;
use pgio_results::Check;
use pgio_results::telemetry::Storage;
use pgio_results::units::{BLOCK_BYTES, human};

use super::subject::{Subject, Work};
use crate::dataset::{self, Dataset, DatasetError, verify};
use crate::experiment::slob::{self, SlobError};
use crate::experiment::trial_checks::lies_on;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::pg::words;
use crate::telemetry::TelemetrySources;
use crate::workload::EngineError;

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

/// `memory` is the server's machine's, if known.
pub(super) fn judge_data(
    subject: &Subject,
    shared_buffers: i64,
    memory: Option<u64>,
    client: &mut Client,
) -> Vec<Check> {
    let on_data_set = subject.work.iter().filter(|w| w.kind.def().data_set);
    let mut checks = Vec::new();
    for work in on_data_set {
        match find_data_set(work, client) {
            Ok(found) => {
                checks.push(check_data_set(&found));
                let buffers = shared_buffers.unsigned_abs();
                checks.push(check_cache(found.used_bytes(), buffers, memory));
            }
            Err(error) => {
                checks.push(Check::invalid("data-set", words::sentence(&error), remedy(&error)));
            }
        }
    }
    // Workloads and points of a sweep share one data set.
    let mut distinct: Vec<Check> = Vec::new();
    for check in checks {
        if !distinct.contains(&check) {
            distinct.push(check);
        }
    }
    distinct
}

fn find_data_set(work: &Work, client: &mut Client) -> Result<Dataset, SlobError> {
    let mark = verify::read_mark(client)?;
    let settings = slob::settings_on(&mark, work.layer.clone())?;
    let blocks = Some(settings.scale.blocks());
    let found = dataset::check_for_run(client, settings.tables(), blocks)?;
    found.check_keys(&work.layer)?;
    slob::refuse_published(client, &settings, &found.schema, mark.layout.unlogged)?;
    Ok(found)
}

/// `pgio setup` would refuse a user's table as well.
fn remedy(error: &SlobError) -> &'static str {
    match error {
        SlobError::Dataset(DatasetError::NotOurs { .. }) => {
            "drop the table if you do not need it, or use another database or schema"
        }
        SlobError::Dataset(DatasetError::Untrusted(_)) => {
            "connect as the owner of the tables, or load again with `pgio setup`"
        }
        SlobError::Engine(EngineError::Published(_)) => "use another database",
        SlobError::Dataset(_) | SlobError::Resolve(_) | SlobError::Engine(_) => {
            "load it with `pgio setup`, or correct the keys"
        }
    }
}

fn check_data_set(found: &Dataset) -> Check {
    const ID: &str = "data-set";
    let tables = if found.tables == 1 { "table" } else { "tables" };
    let size = |blocks: u64| human::bytes(blocks * BLOCK_BYTES);
    let mut text = format!("{} {tables} of {}", found.tables, size(found.mark.blocks));
    if found.blocks < found.mark.blocks {
        text += &format!(", of which the workload uses {} each", size(found.blocks));
    }
    match found.warnings.first() {
        None => Check::ok(ID, text),
        Some(warning) => {
            Check::warning(ID, format!("{}: {}", warning.what, warning.why), &warning.try_this)
        }
    }
}

/// The same rule as in a trial's check: between shared_buffers and memory, reads are served by the page cache.
fn check_cache(bytes: u64, buffers: u64, memory: Option<u64>) -> Check {
    const ID: &str = "cache";
    let [data, small] = [bytes, buffers].map(human::bytes);
    let large = memory.map_or_else(|| "unknown".to_owned(), human::bytes);
    let sizes = format!("{data} of data, shared_buffers {small}, memory {large}");
    match memory {
        _ if bytes <= buffers => {
            Check::ok(ID, format!("{sizes}: shared_buffers serves all reads; no disk is measured"))
        }
        Some(memory) if bytes < memory => Check::warning(
            ID,
            format!("{sizes}: the page cache serves reads instead of the disk"),
            "load more data than fits into memory, or leave less memory free",
        ),
        _ => Check::ok(ID, sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict::{Ok as Fine, Warning};
    use pgio_results::telemetry::Device;
    use pgio_results::units::Layout;

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

    #[test]
    fn a_part_of_the_data_set_is_named_and_its_size_judged() {
        let found = Dataset {
            schema: "public".to_owned(),
            mark: dataset::Mark {
                version: 3,
                scale: "4G".to_owned(),
                blocks: 524_288,
                tables: 2,
                seed: 1,
                layout: Layout::default(),
            },
            tables: 2,
            blocks: 8192,
            bytes: 9 << 30,
            scan: None,
            warnings: Vec::new(),
        };
        let used = "2 tables of 4 GiB, of which the workload uses 64 MiB each";
        assert_eq!(check_data_set(&found).message, used);
        assert_eq!(found.used_bytes(), 144 << 20);
        let whole = Dataset { blocks: 524_288, ..found };
        assert_eq!(check_data_set(&whole).message, "2 tables of 4 GiB");
        assert_eq!(whole.used_bytes(), 9 << 30);
    }

    #[test]
    fn a_users_table_is_not_to_be_loaded_over() {
        let (schema, name) = ("public".to_owned(), "pgio1".to_owned());
        let foreign = DatasetError::NotOurs { schema, name };
        assert!(!remedy(&foreign.into()).contains("pgio setup"));
        assert!(remedy(&DatasetError::NoDataset.into()).contains("pgio setup"));
    }

    #[test]
    fn data_that_fits_into_the_page_cache_measures_no_disk() {
        assert_eq!(check_cache(10, 10, Some(100)).verdict, Fine);
        assert_eq!(check_cache(11, 10, Some(100)).verdict, Warning);
        assert_eq!(check_cache(100, 10, Some(100)).verdict, Fine);
        assert_eq!(check_cache(11, 10, None).verdict, Fine);
    }
}
