//! `pgio.device/1`: measurements and results of `pgio device`, for other programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ComparisonV1;
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
    pub places: Vec<DescribedV1>,
    /// The first place compared with the second in the test's metric; absent for one place.
    pub comparison: Option<ComparisonV1>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DescribedV1 {
    pub runs: usize,
    /// Median of the test's metric; `lowest` and `highest` are its extremes.
    pub median: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    /// Medians of all metrics.
    pub medians: BTreeMap<String, f64>,
}

/// Indented, ended by a newline.
pub fn render(record: &DeviceRecord, results: &[TestResult]) -> String {
    let document = DeviceV1 {
        schema: DEVICE_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        measured: record.clone(),
        results: results.iter().map(result).collect(),
    };
    let text = serde_json::to_string_pretty(&document)
        .expect("plain data with string keys always serializes");
    printable::json(&text).into_owned() + "\n"
}

fn result(result: &TestResult) -> DeviceResultV1 {
    DeviceResultV1 {
        test: result.test.name.clone(),
        places: result.places.iter().cloned().map(DescribedV1::from).collect(),
        comparison: result.comparison.clone().map(ComparisonV1::from),
    }
}

impl From<Described> for DescribedV1 {
    fn from(d: Described) -> Self {
        let Described { runs, median, lowest, highest, medians } = d;
        DescribedV1 { runs, median, lowest, highest, medians }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::device::results;
    use pgio_results::test_support::device_record;

    #[test]
    fn promised_names_are_there_and_it_reads_back() {
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
