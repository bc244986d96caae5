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
    use crate::config::experiment::tests::{error, read};
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

    #[test]
    fn sizes_have_a_numeric_value_on_an_axis() {
        let text = "[workload]\nkind = 'device'\ntest = 'random_read'\nblock_size = ['4K', '1M']\n\
                    [[condition]]\nname = 'a'\n";
        let axes = &read(text).workloads[0].axes;
        let at: Vec<Option<f64>> = axes[0].values.iter().map(|v| v.at).collect();
        assert_eq!(at, [Some(4096.0), Some(1_048_576.0)]);
    }

    #[test]
    fn each_test_is_a_workload_with_a_name_of_its_own() {
        let all = "[[workload]]\nkind = 'device'\n";
        let one = "[[workload]]\nname = 'device-latency'\nkind = 'device'\ntest = 'latency'\n";
        let condition = "[[condition]]\nname = 'a'\n";
        let names = |text: &str| -> Vec<String> {
            read(text).workloads.into_iter().map(|workload| workload.name).collect()
        };
        assert_eq!(
            names(&format!("{all}{condition}")),
            ["device-throughput", "device-latency", "device-random_read", "device-random_write"]
        );
        for (text, name) in [(format!("{one}{all}"), "latency"), (all.repeat(2), "throughput")] {
            let refused = error(&format!("{text}{condition}"));
            let expected = format!("`device-{name}` is the name of two workloads");
            assert!(refused.contains(&expected), "{refused}");
        }
    }

    #[test]
    #[cfg(feature = "background")]
    fn a_companion_runs_one_test() {
        let beside = "[targets.n1]\nprivate = true\n[[condition]]\nname = 'a'\ntarget = 'n1'\n\
                      [[background]]\ntarget = 'n1'\nconditions = ['a']\nkind = 'device'\n";
        let refused = error(beside);
        assert!(refused.contains("background.test: must name one test"), "{refused}");
    }
}
