//! The rich experiment as a sweep: its conditions along sessions, the delay of a link and two words.
//!
//! The data is made up.

use std::path::Path;

use pgio::rng::SplitMix64;
use pgio_results::points::{Axis, AxisValue, Combination, Point, Varied};
use pgio_results::store::{Manifest, Store};
use serde_json::{Value, json};

use super::stored::{ARMS, EXPERIMENT, manifest, trial};

const BLOCKS: u32 = 8;
const TWIN: &str = "local (A/A)";

pub(crate) fn write(dir: &Path) {
    let sweep = sweep();
    let manifest = Manifest { varied: Some(sweep.clone()), blocks: BLOCKS, ..manifest() };
    let mut store = Store::create(dir, EXPERIMENT, &manifest).unwrap();
    let mut rng = SplitMix64::new(20_261_121);
    for block in 1..=BLOCKS {
        let mut position = 0;
        for (n, point) in sweep.points.iter().enumerate() {
            for arm in ARMS.iter().filter(|arm| n == 0 || arm.name != TWIN) {
                position += 1;
                let (mut made, _) = trial(arm, block, position, &mut rng);
                made.place.as_mut().unwrap().point = point.clone();
                let (rate, time) = factors(arm.name, point);
                for (name, metric) in &mut made.metrics {
                    let by = if name.contains("_latency_") { time } else { rate };
                    metric.value = metric.value.map(|value| value * by);
                }
                store.append(&made).unwrap();
            }
        }
    }
}

/// Factors of rate and latency: more than sixteen sessions gain nothing, and each ms of delay is two for
/// a session that waits for the standby.
fn factors(arm: &str, point: &Point) -> (f64, f64) {
    let number = |axis: &str| point[axis].as_f64().unwrap();
    let (sessions, delay) = (number("sessions"), number("delay"));
    let time = if arm.starts_with("local") { 1.0 } else { 1.0 + delay };
    let rate = sessions.min(16.0) / 4.0 / time;
    let flush = if point["fsync"] == "off" { 0.5 } else { 1.0 };
    (rate / flush, time * flush * (sessions / sessions.min(16.0)))
}

fn sweep() -> Varied {
    let value = |v: Value| AxisValue { at: v.as_f64(), value: v, treatments: Vec::new() };
    let axis = |name: &str, unit: Option<&str>, of_work: bool, values: &[Value]| Axis {
        name: name.to_owned(),
        unit: unit.map(str::to_owned),
        values: values.iter().cloned().map(value).collect(),
        of_work,
    };
    let point = |sessions: u64, delay: u64, fsync: &str| {
        let all = [("sessions", json!(sessions)), ("delay", json!(delay)), ("fsync", json!(fsync))];
        all.map(|(axis, value)| (axis.to_owned(), value)).into()
    };
    Varied {
        kind: Combination::OneAtATime,
        axes: vec![
            axis("sessions", None, true, &[1, 4, 16, 64].map(|n| json!(n))),
            axis("delay", Some("ms"), false, &[0, 1, 5].map(|n| json!(n))),
            axis("fsync", None, false, &["on", "off"].map(|word| json!(word))),
        ],
        points: vec![
            point(4, 1, "on"),
            point(1, 1, "on"),
            point(16, 1, "on"),
            point(64, 1, "on"),
            point(4, 0, "on"),
            point(4, 5, "on"),
            point(4, 1, "off"),
        ],
        at_middle_only: vec![TWIN.to_owned()],
    }
}
