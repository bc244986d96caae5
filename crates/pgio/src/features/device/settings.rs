//! The tests that fio runs, and the settings of one.

use std::time::Duration;

use super::{KIND, keys};
use crate::config::Layer;
use crate::config::from_text::Value;
use crate::config::keys::{Use, required};
use crate::config::value::Kind;
use pgio_results::units::BLOCK_BYTES;

/// A test of the workload `device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum DeviceTest {
    /// Large sequential writes.
    Throughput,
    /// Small sequential writes.
    Latency,
    RandomRead,
    RandomWrite,
}

choice! { DeviceTest: Throughput "throughput", Latency "latency", RandomRead "random_read", RandomWrite "random_write" }

/// One test, or all tests, each as a separate workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceTests {
    All,
    One(DeviceTest),
}

impl DeviceTests {
    pub(super) const NAMES: &'static [&'static str] = &{
        let &[a, b, c, d] = DeviceTest::NAMES else { panic!("four tests") };
        ["all", a, b, c, d]
    };
}

impl Value for DeviceTests {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => DeviceTest::from_text(text, kind).map(Self::One),
        }
    }
}

/// Settings of the workload `device`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct DeviceSettings {
    /// Absent: the target's device.
    pub path: Option<String>,
    pub test: DeviceTest,
    /// Bytes.
    pub size: u64,
    /// Bytes per read or write.
    pub block_size: u64,
    pub depth: u32,
    pub destroy: bool,
    pub uuid: Option<String>,
    pub run_time: Duration,
}

impl DeviceSettings {
    pub(super) fn resolve(layer: Layer) -> Self {
        let all = layer.with_defaults(Use::Work(KIND));
        let test = match required(keys::test.of(&all)) {
            DeviceTests::One(test) => test,
            // The parser has split it into one workload per test.
            DeviceTests::All => DeviceTest::Throughput,
        };
        let block_size = match test {
            DeviceTest::Throughput => 1 << 20,
            DeviceTest::Latency => 4096,
            DeviceTest::RandomRead | DeviceTest::RandomWrite => BLOCK_BYTES,
        };
        Self {
            path: keys::path.of(&all),
            test,
            size: required(keys::size.of(&all)).0,
            block_size: keys::block_size.of(&all).map_or(block_size, |b| b.0),
            depth: required(keys::depth.of(&all)),
            destroy: required(keys::destroy.of(&all)),
            uuid: keys::uuid.of(&all),
            run_time: required(all.run_time),
        }
    }
}

/// Splits `test = "all"` into one workload per test.
pub(super) fn split(layer: &Layer) -> Vec<(&'static str, Layer)> {
    if !matches!(keys::test.of(layer), None | Some(DeviceTests::All)) {
        return Vec::new();
    }
    let part = |test: &DeviceTest| {
        let mut layer = layer.clone();
        keys::test.set(&mut layer, test.name()).expect("a test has a name that is read");
        (test.name(), layer)
    };
    DeviceTest::ALL.iter().map(|(_, test)| part(test)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::metrics::definition;

    #[test]
    fn only_what_fio_reports_is_measured() {
        let measures = |name| (KIND.def().measures)(definition(name).unwrap());
        assert!(measures("device_operations_per_second") && measures("device_latency_mean"));
        assert!(!measures("device_writes_per_second"), "of the server's device");
    }

    #[test]
    fn test_names_round_trip() {
        let kind = Kind::OneOf(DeviceTests::NAMES);
        for (_, test) in DeviceTest::ALL {
            assert!(DeviceTests::NAMES.contains(&test.name()));
            assert_eq!(DeviceTests::from_text(test.name(), &kind), Ok(DeviceTests::One(*test)));
        }
        assert_eq!(DeviceTests::from_text("all", &kind), Ok(DeviceTests::All));
        assert!(DeviceTests::from_text("some", &kind).unwrap_err().contains("all or throughput"));
    }
}
