//! The cells of a workload: its conditions at the points of its sweep, ready to be run.
//!
//! Without axes there is one point, and cells are conditions. The baseline's twin is a cell of its
//! own, at the middle point. Points that differ in conditions alone share the work, so a target
//! holds one workload for each of [`layers`], not for each point.

use super::job::Job;
use crate::cli::exit::Failure;
use crate::config::Layer;
use crate::config::experiment::{
    AA_SUFFIX, Axis, Experiment, PointSpec, SweepKind, TreatmentSpec, WorkloadSpec,
};
use crate::experiment::live::LiveCell;
use crate::results::change::Change;
use crate::results::sweep::{self, Cell, Point, Sweep};
use crate::treatment::{self, Parsed, TreatmentError};

/// The distinct works of a workload's points, the middle point's first.
pub(super) fn layers(workload: &WorkloadSpec, kind: SweepKind) -> Vec<Layer> {
    let mut all: Vec<Layer> = Vec::new();
    for point in workload.points(kind) {
        let layer = workload.layer_at(&point);
        if !all.contains(&layer) {
            all.push(layer);
        }
    }
    all
}

impl Job {
    /// The middle point's first, conditions in the order of the file, the baseline's twin right
    /// after it.
    pub(super) fn cells(&self, workload: &WorkloadSpec) -> Result<Vec<LiveCell>, Failure> {
        let e = &self.experiment;
        let sweep = self.sweep(workload)?;
        let layers = layers(workload, e.sweep);
        let mut all = Vec::new();
        for (n, point) in workload.points(e.sweep).iter().enumerate() {
            let layer = workload.layer_at(point);
            let work = layers.iter().position(|l| *l == layer).unwrap_or_default();
            for condition in e.conditions_of(workload).filter(|c| n == 0 || c.sweep) {
                let twin = (n == 0 && e.aa && condition.name == e.baseline)
                    .then(|| format!("{}{AA_SUFFIX}", condition.name));
                for name in [Some(condition.name.clone()), twin].into_iter().flatten() {
                    let point_stored = stored_point(workload, point);
                    all.push(LiveCell {
                        title: title(&name, sweep.as_ref(), &point_stored),
                        cell: Cell { condition: name, point: point_stored },
                        target: condition.target.clone().unwrap_or_default(),
                        treatments: self.treatments.get(&workload.treatments_at(condition, point)),
                        work,
                    });
                }
            }
        }
        Ok(all)
    }

    /// The baseline's at the middle point, which comes first.
    pub(super) fn baseline_cell(&self, cells: &[LiveCell]) -> usize {
        let is_baseline = |c: &LiveCell| c.cell.condition == self.experiment.baseline;
        cells.iter().position(is_baseline).expect("every workload runs under the baseline")
    }

    /// As it is stored; none without axes.
    pub(super) fn sweep(&self, workload: &WorkloadSpec) -> Result<Option<Sweep>, Failure> {
        let e = &self.experiment;
        if workload.axes.is_empty() {
            return Ok(None);
        }
        let mut at_middle_only: Vec<String> =
            e.conditions_of(workload).filter(|c| !c.sweep).map(|c| c.name.clone()).collect();
        at_middle_only.extend(e.aa.then(|| format!("{}{AA_SUFFIX}", e.baseline)));
        let axes = workload.axes.iter().enumerate();
        Ok(Some(Sweep {
            kind: match e.sweep {
                SweepKind::OneAtATime => sweep::SweepKind::OneAtATime,
                SweepKind::Grid => sweep::SweepKind::Grid,
            },
            axes: axes.map(|(n, axis)| stored_axis(workload, n, axis)).collect::<Result<_, _>>()?,
            points: workload.points(e.sweep).iter().map(|p| stored_point(workload, p)).collect(),
            at_middle_only,
        }))
    }
}

/// Every treatment of the file, at every point.
pub(super) fn parse_treatments(e: &Experiment) -> Result<Parsed, TreatmentError> {
    let mut parsed = Parsed::default();
    for workload in &e.workloads {
        for point in workload.points(e.sweep) {
            for condition in &e.conditions {
                parsed.add(workload.treatments_at(condition, &point))?;
            }
        }
    }
    Ok(parsed)
}

fn title(condition: &str, sweep: Option<&Sweep>, point: &Point) -> String {
    match sweep.map(|sweep| sweep.away(point)).filter(|away| !away.is_empty()) {
        Some(away) => format!("{condition} ({away})"),
        None => condition.to_owned(),
    }
}

fn stored_point(workload: &WorkloadSpec, point: &PointSpec) -> Point {
    workload.at(point).map(|(axis, value)| (axis.name.clone(), json(&value.value))).collect()
}

fn stored_axis(workload: &WorkloadSpec, n: usize, axis: &Axis) -> Result<sweep::Axis, Failure> {
    let value = |(at, value): (usize, &crate::config::experiment::AxisValue)| {
        let specs: Vec<TreatmentSpec> = workload.templates_at(n, at);
        let parsed = treatment::parse_all(&specs)?;
        Ok::<_, Failure>(sweep::AxisValue {
            value: json(&value.value),
            at: value.at,
            treatments: treatment::changes(&parsed).iter().map(Change::to_string).collect(),
        })
    };
    Ok(sweep::Axis {
        name: axis.name.clone(),
        unit: axis.unit.clone(),
        values: axis.values.iter().enumerate().map(value).collect::<Result<_, _>>()?,
        of_work: axis.of_work(),
    })
}

/// Numbers and texts, which is all that an axis holds.
fn json(value: &toml::Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
