//! The workload `device`: the storage itself, measured by fio without PostgreSQL.
//!
//! The tests are from the DRBD User's Guide (throughput: sequential direct writes of 1 MiB;
//! latency: small sequential direct writes) and random reads and writes of 8 kB at two depths.
//! [`place`] is the target of the I/O, [`fio`] builds arguments and parses output, [`bench`] runs fio
//! on a host, and repeats all tests for `pgio device`, and [`work`] is the workload. Nothing here
//! prints.

mod bench;
mod command;
mod fio;
mod place;
mod settings;
mod work;

use std::sync::Arc;
use std::time::Duration;

use self::settings::{DeviceSettings, DeviceTest, DeviceTests};
use self::work::Device;
use crate::config::Layer;
use crate::config::keys::own_keys;
use crate::config::kinds::{PLAIN, Parts, WINDOW, WorkloadDef, WorkloadKind};
use crate::config::value::{Bytes, Kind};
use crate::exit_code::{CONNECT, FAILED, HasExitCode, INTERRUPTED, REFUSED, USAGE};
use crate::experiment::application::{WorkPlace, WorkloadCode};
use crate::feature::Feature;
use crate::host::exec::ExecError;
use crate::host::signature::Refusal;
use crate::host::{Host, LOCAL, called};
use crate::workload::EngineError;
use crate::workload::error::WorkError;
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics;

use self::bench::Bench;
use self::fio::{Extent, Job};

pub(crate) static FEATURE: Feature = Feature {
    name: "device",
    workloads: &[WorkloadCode {
        kind: KIND,
        check_programs: |_, others, _| {
            let installed = if others { Ok(()) } else { bench::check_installed(&Host::local()) };
            Ok(installed.map_err(EngineError::from)?)
        },
        prepare: |_, layer, place, _, _| Ok(Arc::new(prepare(layer, place)?)),
        part: Some(work::PART),
    }],
    programs: &[("fio", "figures of the bare device", "fio")],
    examples: &[example!("device")],
    commands: &[command::COMMAND],
    ..Feature::NONE
};

const KIND: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "device",
    keys: &[WINDOW, names! { seed }],
    own: keys::ALL,
    tests_device: true,
    reset: "its file or device is written once in full, if writing is allowed",
    measures: |metric| match metric.kind {
        metrics::Kind::Latency(class, _) => class == CLASS,
        metrics::Kind::Quantity => ["device_bytes_", "device_operations_"]
            .iter()
            .any(|prefix| metric.name.starts_with(prefix)),
        metrics::Kind::Work(_) | metrics::Kind::Mean(_) | metrics::Kind::Declared => false,
    },
    indivisible: |_, layer, _| {
        let message = "drivers measure a place on their own hosts, not the target's device; write path in [workload]";
        keys::path.of(layer).is_none().then(|| message.to_owned())
    },
    // A window measures one kind of I/O.
    parts: Some(Parts { key: "test", split: settings::split }),
    ..PLAIN
});

own_keys! {
    path: String, Kind::Text, None,
        "block device, file, or directory for a scratch file (default: the target's device)";
    test: DeviceTests, Kind::OneOf(DeviceTests::NAMES), Some("all"),
        "test to run; all runs each test as a separate workload";
    size: Bytes, Kind::Bytes, Some("512M"),
        "size of the scratch file, or of the part of a device or file to use";
    block_size: Bytes, Kind::Bytes, None,
        "size of each read or write (default: 1M for throughput, 4K for latency, 8K for random tests)";
    depth: u32, Kind::Whole(1..=1024), Some("1"),
        "reads or writes in flight";
    destroy: bool, Kind::Switch, Some("FALSE"),
        "allow write tests to overwrite the content of a device or file";
    uuid: String, Kind::Text, None,
        "UUID of the file system or other content that destroy may overwrite";
}

/// Prepares `device` on the target's host; without one it runs on this machine, or `servers` refuses it.
fn prepare(layer: Layer, place: &WorkPlace<'_>) -> Result<Device, EngineError> {
    let target = place.target;
    let name = target.host.as_deref().unwrap_or(LOCAL);
    let host = target.hosts.get(name).cloned().unwrap_or_else(|| Arc::new(Host::local()));
    let device = Device::new(DeviceSettings::resolve(layer), target.device.as_deref(), host)?;
    if !place.others {
        device.check_place()?;
    }
    Ok(device)
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "fio is not on {}: install it there, with `apt-get install fio` on Debian and Ubuntu or `dnf install fio` on Fedora and RHEL",
        called(host)
    )]
    NoFio { host: String },
    #[error("{0}")]
    Place(String),
    #[error("{refusal}{hint}")]
    Refused { refusal: Refusal, hint: &'static str },
    #[error("fio failed on {place}: {reason}")]
    Failed { place: String, reason: String },
    #[error("cannot parse fio's output for {place}: {why}")]
    Answer { place: String, why: String },
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Host(#[from] ExecError),
}

impl HasExitCode for DeviceError {
    fn code(&self) -> u8 {
        match self {
            DeviceError::Place(_) => USAGE,
            DeviceError::NoFio { .. } | DeviceError::Refused { .. } => REFUSED,
            DeviceError::Stopped => INTERRUPTED,
            DeviceError::Host(_) => CONNECT,
            DeviceError::Failed { .. } | DeviceError::Answer { .. } => FAILED,
        }
    }
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        match error {
            DeviceError::Stopped => EngineError::Stopped,
            other => EngineError::Work(WorkError::new(other)),
        }
    }
}

/// One access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    pub kind: DeviceTest,
    /// Bytes.
    pub block: u64,
    /// I/O depth.
    pub depth: u32,
}

/// The class in histograms and latency names.
const CLASS: Class = Class::Device;
const MIB: u64 = 1 << 20;
/// PostgreSQL's block size.
const BLOCK: u64 = 8192;
const RANDOM_DEPTH: u32 = 32;

/// The size of the throughput test, and of the region that all tests use.
pub(super) const REGION: u64 = 512 * MIB;
/// The smallest region that gives a meaningful measurement.
pub(super) const SMALLEST_REGION: u64 = 4 * MIB;
/// The number of writes of the latency test.
const LATENCY_WRITES: u64 = 1000;

impl Test {
    /// Writes the whole region once: reads of other blocks do not reach the medium, and DRBD's
    /// activity log and a device's own tables are cold the first time.
    pub(super) const FILL: Test = Test { kind: DeviceTest::Throughput, block: MIB, depth: 1 };

    pub(super) fn writes(&self) -> bool {
        self.kind != DeviceTest::RandomRead
    }

    /// Returns the stored name, such as `latency-4096` or `random_read-8192-32`.
    pub(super) fn name(&self) -> String {
        let Test { block, depth, kind } = self;
        match kind {
            DeviceTest::Throughput | DeviceTest::Latency => format!("{}-{block}", kind.name()),
            DeviceTest::RandomRead | DeviceTest::RandomWrite => {
                format!("{}-{block}-{depth}", kind.name())
            }
        }
    }

    /// Returns the test's primary metric.
    pub(super) fn metric(&self) -> &'static str {
        match self.kind {
            DeviceTest::Throughput => "device_bytes_per_second",
            DeviceTest::Latency => metrics::latency_name(CLASS, Statistic::Mean),
            DeviceTest::RandomRead | DeviceTest::RandomWrite => "device_operations_per_second",
        }
    }
}

/// Returns all tests in order with their extent: the User's Guide's numbers, and random I/O for a time.
/// If the sector size is unknown or 4 kB, the test of one sector is left out.
pub(super) fn user_guide_tests(sector: Option<u64>, seconds: Duration) -> Vec<(Test, Extent)> {
    let latency = |block| {
        (Test { kind: DeviceTest::Latency, block, depth: 1 }, Extent::Bytes(LATENCY_WRITES * block))
    };
    let random = |kind, depth| {
        let warmup = Duration::ZERO;
        (Test { kind, block: BLOCK, depth }, Extent::Time { warmup, window: seconds })
    };
    let mut all = vec![(Test::FILL, Extent::Bytes(REGION)), latency(4096)];
    all.extend(sector.filter(|s| *s < 4096).map(latency));
    all.extend(
        [DeviceTest::RandomRead, DeviceTest::RandomWrite]
            .iter()
            .flat_map(|kind| [random(*kind, 1), random(*kind, RANDOM_DEPTH)]),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_guide_tests_add_a_latency_test_for_small_sectors() {
        let names = |sector| -> Vec<String> {
            user_guide_tests(sector, Duration::from_secs(3))
                .iter()
                .map(|(test, _)| test.name())
                .collect()
        };
        assert_eq!(
            names(Some(512)),
            [
                "throughput-1048576",
                "latency-4096",
                "latency-512",
                "random_read-8192-1",
                "random_read-8192-32",
                "random_write-8192-1",
                "random_write-8192-32",
            ]
        );
        assert_eq!(names(Some(4096)).len(), 6);
        assert_eq!(names(None), names(Some(4096)));
        let all = user_guide_tests(Some(512), Duration::from_secs(3));
        assert_eq!(all[0].1, Extent::Bytes(512 << 20));
        assert_eq!(all[2].1, Extent::Bytes(512_000));
    }
}
