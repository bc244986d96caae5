//! Names and order of all fields of the three documents.

use insta::assert_snapshot;

use super::{device, render};
use crate::analysis::across::across as compared;
use crate::analysis::analyze;
use crate::analysis::device::results;
use crate::analysis::test_support::{demo, replicated, set};
use pgio_results::Warning;
use pgio_results::test_support::device_record;

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
    assert_snapshot!(rounded(&device::render(&record, &results(&record))));
}
