//! What the server's files lie on: device, file system, queue, room.
//!
//! A cache that answers before it has written can only be suspected from here; a trial tells more,
//! since it knows the rate of commits.

use crate::experiment::lies_on;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::results::Check;
use crate::results::telemetry::Storage;
use crate::telemetry::TelemetrySources;
use crate::units::human;

const ID: &str = "storage";

/// File systems of memory, and the layers of containers.
const NO_DISK: &[&str] = &["tmpfs", "ramfs", "overlay"];
/// Mount options by which flushes are not passed on.
const NO_BARRIER: &[&str] = &["nobarrier", "barrier=0", "sync=disabled"];
/// Schedulers that order requests by their own idea of fairness.
const REORDERING: &[&str] = &["bfq", "cfq"];
/// Less may not do for the WAL of an experiment.
const ROOM_BYTES: u64 = 2 << 30;

/// `device` is what the experiment says is measured.
pub(super) fn judge(sources: &TelemetrySources, device: Option<&str>) -> Vec<Check> {
    let found = sources.storage();
    let mut checks: Vec<Check> = found.iter().map(place_of).collect();
    let unknown = sources.warnings().iter();
    checks
        .extend(unknown.map(|w| Check::warning(ID, format!("{}: {}", w.what, w.why), &w.try_this)));
    checks.extend(device.map(|device| lies_on(found, device)));
    let data = found.iter().find(|s| s.role == "data");
    checks.extend(sources.server_host().zip(data).and_then(|(host, data)| room(host, data)));
    checks
}

fn place_of(storage: &Storage) -> Check {
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
    if NO_DISK.contains(&storage.file_system.as_str()) {
        let remedy = "put the data on a disk's own file system";
        return Check::warning(ID, format!("{text}: no disk is measured"), remedy);
    }
    if let Some(option) = option(NO_BARRIER) {
        return Check::warning(
            ID,
            format!("{text}, {option}: commits are answered without being kept"),
            "mount it without this option, or take it for what is measured",
        );
    }
    match queue("scheduler").filter(|s| REORDERING.contains(&s.as_str())) {
        None => Check::ok(ID, text),
        Some(_) => Check::warning(
            ID,
            text,
            "echo mq-deadline or none into the device's queue/scheduler, or keep it and say so",
        ),
    }
}

/// As df sees it, which is how much an ordinary user may still write.
fn room(host: &Host, storage: &Storage) -> Option<Check> {
    const ID: &str = "room-for-data";
    let printed = host.run(&CommandLine::new("df").args(["-Pk", &storage.directory])).ok()?;
    let free = available(&printed)?;
    let text = format!("{} free on {}", human::bytes(free), storage.mount_point);
    Some(if free >= ROOM_BYTES {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "make room: a server that runs out of it stops")
    })
}

/// Bytes, of the fourth column of the second line.
fn available(df: &str) -> Option<u64> {
    let kilobytes: u64 = df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::CheckVerdict::{Ok as Fine, Warning};
    use crate::results::telemetry::Device;

    fn storage(file_system: &str, options: &str, scheduler: &str) -> Storage {
        let queue = [("scheduler", scheduler), ("write_cache", "write back")];
        let queue = queue.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let device = Device { name: "vda".to_owned(), kind: "disk".to_owned(), queue };
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
    fn what_the_data_lie_on_is_told_and_what_is_odd_is_warned_of() {
        let usual = place_of(&storage("ext4", "rw,relatime", "none"));
        assert_eq!(usual.verdict, Fine);
        let said = "data: ext4 on vda, mounted on /, scheduler none, write cache write back";
        assert_eq!(usual.message, said);
        assert_eq!(place_of(&storage("tmpfs", "rw", "none")).verdict, Warning);
        assert_eq!(place_of(&storage("ext4", "rw,nobarrier", "none")).verdict, Warning);
        assert_eq!(place_of(&storage("ext4", "rw", "bfq")).verdict, Warning);
    }

    #[test]
    fn room_is_read_from_the_second_line() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                  /dev/vda 263000000 1 2048 45% /\n";
        assert_eq!(available(df), Some(2 << 20));
        assert_eq!(available("df: no such file"), None);
    }
}
