//! `pgio.device/1`: measurements and results of `pgio device`, for other programs.

use serde::{Deserialize, Serialize};

use crate::analysis::Comparison;
use crate::analysis::device::{Described, TestResult};
use pgio_results::device::DeviceRecord;

pub const DEVICE_SCHEMA: &str = "pgio.device/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceV1 {
    /// Always `pgio.device/1`.
    pub schema: String,
    /// The version of pgio that wrote it.
    pub pgio: String,
    pub measured: DeviceRecord,
    pub results: Vec<DeviceResultV1>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceResultV1 {
    /// A name in `measured.tests`.
    pub test: String,
    /// In the order of `measured.places`.
    pub places: Vec<Described>,
    /// The first place compared with the second in the test's metric; absent for one place.
    pub comparison: Option<Comparison>,
}

/// Indented, ended by a newline.
pub fn render(record: &DeviceRecord, results: &[TestResult]) -> String {
    let document = DeviceV1 {
        schema: DEVICE_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        measured: record.clone(),
        results: results.iter().map(result).collect(),
    };
    super::render(&document)
}

fn result(result: &TestResult) -> DeviceResultV1 {
    DeviceResultV1 {
        test: result.test.name.clone(),
        places: result.places.clone(),
        comparison: result.comparison.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::device::results;
    use pgio_results::test_support::device_record;

    #[test]
    fn device_json_has_the_documented_names_and_reads_back() {
        let record = device_record(6, 0.5);
        let text = render(&record, &results(&record));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "pgio.device/1");
        assert_eq!(value["measured"]["runs"].as_array().unwrap().len(), 24);
        assert_eq!(value["results"][0]["comparison"]["verdict"], "slower");
        assert_eq!(value["results"][0]["places"][1]["runs"], 6);
        let read: DeviceV1 = serde_json::from_str(&text).unwrap();
        assert_eq!(read.results.len(), 2);
    }
}
