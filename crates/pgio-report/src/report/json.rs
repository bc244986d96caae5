//! The documents for other programs: analyses, two experiments compared, and devices.
//!
//! The JSON schemas in docs/schema/ are generated from their types.

use serde::{Deserialize, Serialize};

use pgio_results::model::DeviceRecord;
use pgio_verdict::Comparison;
use pgio_verdict::device::{Described, TestResult};

/// The document as indented JSON, ended by a newline.
pub fn render(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .expect("plain data with string keys always serializes");
    printable::json(&text).into_owned() + "\n"
}

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

/// `pgio.device/1`: measurements and results of `pgio device`.
pub fn device(record: &DeviceRecord, results: &[TestResult]) -> String {
    let document = DeviceV1 {
        schema: DEVICE_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        measured: record.clone(),
        results: results.iter().map(device_result).collect(),
    };
    render(&document)
}

fn device_result(result: &TestResult) -> DeviceResultV1 {
    DeviceResultV1 {
        test: result.test.name.clone(),
        places: result.places.clone(),
        comparison: result.comparison.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use pgio_results::Warning;
    use pgio_results::test_support::device_record;
    use pgio_verdict::across::across as compared;
    use pgio_verdict::analyze;
    use pgio_verdict::device::results;
    use pgio_verdict::test_support::{demo, replicated, set};

    /// Numbers with six digits, because the last ones depend on the machine.
    fn rounded(json: &str) -> String {
        let line = |line: &str| {
            let number = line.rsplit(' ').next().unwrap_or_default().trim_end_matches(',');
            match number.parse::<f64>() {
                Ok(value) if number.contains('.') => line.replace(number, &format!("{value:.6e}")),
                _ => line.to_owned(),
            }
        };
        let lines: Vec<String> = json.lines().map(line).collect();
        lines.join("\n").replace(env!("CARGO_PKG_VERSION"), "VERSION")
    }

    #[test]
    fn an_analysis() {
        let mut stored = replicated(1);
        for t in &mut stored.trials {
            set(t, "riops", 5000.0);
            set(t, "device_reads_per_second", 500.0);
            t.warnings.push(Warning::new("a checkpoint", "it competes", "lengthen it"));
        }
        assert_snapshot!(rounded(&render(&analyze(&stored))));
    }

    #[test]
    fn two_experiments() {
        let mut b = demo();
        b.manifest.conditions.retain(|c| c.name == "local" || c.name == "on");
        b.trials.iter_mut().for_each(|t| t.server.version = "16.4".to_owned());
        assert_snapshot!(rounded(&render(&compared(&[demo()], &[b], &[]))));
    }

    #[test]
    fn devices() {
        let record = device_record(1, 0.5);
        assert_snapshot!(rounded(&device(&record, &results(&record))));
    }

    #[test]
    fn device_json_has_the_documented_names_and_reads_back() {
        let record = device_record(6, 0.5);
        let text = device(&record, &results(&record));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "pgio.device/1");
        assert_eq!(value["measured"]["runs"].as_array().unwrap().len(), 24);
        assert_eq!(value["results"][0]["comparison"]["verdict"], "slower");
        assert_eq!(value["results"][0]["places"][1]["runs"], 6);
        let read: DeviceV1 = serde_json::from_str(&text).unwrap();
        assert_eq!(read.results.len(), 2);
    }
}
