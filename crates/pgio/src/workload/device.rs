//! The workload `device`: the storage itself, measured by fio without PostgreSQL.
//!
//! The tests are from the DRBD User's Guide (throughput: sequential direct writes of 1 MiB;
//! latency: small sequential direct writes) and random reads and writes of 8 kB at two depths.
//! [`place`] is the target of the I/O, [`fio`] builds arguments and parses output, [`bench`] runs fio
//! on a host, and repeats all tests for `pgio device`, and [`work`] is the workload. Nothing here
//! prints.

pub mod bench;
pub mod fio;
pub mod place;
mod work;

use std::time::Duration;

use crate::config::value::DeviceTest;
use crate::exit_code::{CONNECT, FAILED, HasExitCode, INTERRUPTED, REFUSED, USAGE};
use crate::host::called;
use crate::host::exec::ExecError;
use crate::host::signature::Refusal;
use crate::workload::error::{EngineError, WorkError};
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics;

pub use bench::Bench;
pub use fio::{Extent, FioResult, Job};
pub use place::Place;
pub use work::Device;
pub(super) use work::PART;

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
pub struct Test {
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
pub const REGION: u64 = 512 * MIB;
/// The smallest region that gives a meaningful measurement.
pub const SMALLEST_REGION: u64 = 4 * MIB;
/// The number of writes of the latency test.
const LATENCY_WRITES: u64 = 1000;

impl Test {
    /// Writes the whole region once: reads of other blocks do not reach the medium, and DRBD's
    /// activity log and a device's own tables are cold the first time.
    pub const FILL: Test = Test { kind: DeviceTest::Throughput, block: MIB, depth: 1 };

    pub fn writes(&self) -> bool {
        self.kind != DeviceTest::RandomRead
    }

    /// Returns the stored name, such as `latency-4096` or `random_read-8192-32`.
    pub fn name(&self) -> String {
        let Test { block, depth, kind } = self;
        match kind {
            DeviceTest::Throughput | DeviceTest::Latency => format!("{}-{block}", kind.name()),
            DeviceTest::RandomRead | DeviceTest::RandomWrite => {
                format!("{}-{block}-{depth}", kind.name())
            }
        }
    }

    /// Returns the test's primary metric.
    pub fn metric(&self) -> &'static str {
        match self.kind {
            DeviceTest::Throughput => "device_bytes_per_second",
            DeviceTest::Latency => metrics::latency_name(CLASS, Statistic::Mean),
            DeviceTest::RandomRead | DeviceTest::RandomWrite => "device_operations_per_second",
        }
    }
}

/// Returns all tests in order with their extent: the User's Guide's numbers, and random I/O for a time.
/// If the sector size is unknown or 4 kB, the test of one sector is left out.
pub fn user_guide_tests(sector: Option<u64>, seconds: Duration) -> Vec<(Test, Extent)> {
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
