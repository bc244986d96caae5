//! The cells of a workload: its conditions at its points, ready to be run.
//!
//! Without axes there is one point, and cells are conditions. The baseline's twin is a cell of its
//! own, at the middle point. Points that differ only in conditions share the work, so a target
//! holds one workload per entry of [`layers`], not per point.

use super::job::Job;
use crate::config::Layer;
use crate::config::experiment::{
    AA_SUFFIX, AxisSpec, AxisValueSpec, Combination, Experiment, PointSpec, TreatmentSpec,
    WorkloadSpec,
};
use crate::experiment::live::LiveCell;
use crate::treatment::{self, TreatmentError};
use pgio_results::change::Change;
use pgio_results::points::{self, Cell, Point, Varied};

/// Returns the distinct work of a workload's points, the middle point's first.
pub fn layers(workload: &WorkloadSpec, kind: Combination) -> Vec<Layer> {
    let mut all: Vec<Layer> = Vec::new();
    for point in workload.points(kind) {
        let layer = workload.layer_at(&point);
        if !all.contains(&layer) {
            all.push(layer);
        }
    }
    all
}

/// Returns the middle point's cells first, conditions in the order of the file, the baseline's twin right
/// after it.
pub fn cells(job: &Job, workload: &WorkloadSpec) -> Result<Vec<LiveCell>, TreatmentError> {
    let e = &job.experiment;
    let varied = varied(e, workload)?;
    let layers = layers(workload, e.combination);
    let mut all = Vec::new();
    for (n, point) in workload.points(e.combination).iter().enumerate() {
        let layer = workload.layer_at(point);
        let work = layers.iter().position(|l| *l == layer).unwrap_or_default();
        for condition in e.conditions_of(workload).filter(|c| n == 0 || c.everywhere) {
            let twin = (n == 0 && e.aa && condition.name == e.baseline)
                .then(|| format!("{}{AA_SUFFIX}", condition.name));
            for name in [Some(condition.name.clone()), twin].into_iter().flatten() {
                let point_stored = stored_point(workload, point);
                all.push(LiveCell {
                    title: title(&name, varied.as_ref(), &point_stored),
                    cell: Cell { condition: name, point: point_stored },
                    target: condition.target.clone().unwrap_or_default(),
                    further_targets: condition.further_targets.clone(),
                    treatments: job.treatments.get(&workload.treatments_at(condition, point)),
                    work,
                });
            }
        }
    }
    Ok(all)
}

/// Returns the index of the baseline's cell at the middle point.
pub fn baseline_cell(e: &Experiment, cells: &[LiveCell]) -> usize {
    let is_baseline = |c: &LiveCell| c.cell.condition == e.baseline;
    cells.iter().position(is_baseline).expect("every workload runs under the baseline")
}

/// Returns axes and points as they are stored; none without axes.
pub fn varied(e: &Experiment, workload: &WorkloadSpec) -> Result<Option<Varied>, TreatmentError> {
    if workload.axes.is_empty() {
        return Ok(None);
    }
    let mut at_middle_only: Vec<String> =
        e.conditions_of(workload).filter(|c| !c.everywhere).map(|c| c.name.clone()).collect();
    at_middle_only.extend(e.aa.then(|| format!("{}{AA_SUFFIX}", e.baseline)));
    let axes = workload.axes.iter().enumerate();
    Ok(Some(Varied {
        kind: e.combination,
        axes: axes.map(|(n, axis)| stored_axis(workload, n, axis)).collect::<Result<_, _>>()?,
        points: workload.points(e.combination).iter().map(|p| stored_point(workload, p)).collect(),
        at_middle_only,
    }))
}

fn title(condition: &str, varied: Option<&Varied>, point: &Point) -> String {
    match varied.map(|varied| varied.describe_difference(point)).filter(|away| !away.is_empty()) {
        Some(away) => format!("{condition} ({away})"),
        None => condition.to_owned(),
    }
}

fn stored_point(workload: &WorkloadSpec, point: &PointSpec) -> Point {
    workload.at(point).map(|(axis, value)| (axis.name.clone(), json(&value.value))).collect()
}

fn stored_axis(
    workload: &WorkloadSpec,
    n: usize,
    axis: &AxisSpec,
) -> Result<points::Axis, TreatmentError> {
    let value = |(at, value): (usize, &AxisValueSpec)| {
        let specs: Vec<TreatmentSpec> = workload.templates_at(n, at);
        let parsed = treatment::parse_all(&specs)?;
        Ok::<_, TreatmentError>(points::AxisValue {
            value: json(&value.value),
            at: value.at,
            treatments: treatment::changes(&parsed).iter().map(Change::to_string).collect(),
        })
    };
    Ok(points::Axis {
        name: axis.name.clone(),
        unit: axis.unit.clone(),
        values: axis.values.iter().enumerate().map(value).collect::<Result<_, _>>()?,
        of_work: axis.varies_workload(),
    })
}

/// Converts a number or a text; an axis holds nothing else.
fn json(value: &toml::Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, first, job};

    #[test]
    fn without_axes_cells_are_conditions_and_the_twin_follows_its_baseline() {
        let job = job(COMMITS);
        let (spec, cells) = first(&job);
        let titles: Vec<&str> = cells.iter().map(|c| c.title.as_str()).collect();
        assert_eq!(titles, ["local", "local (A/A)", "on"]);
        assert!(
            cells.iter().all(|c| c.target == "target" && c.work == 0 && c.cell.point.is_empty())
        );
        assert_eq!(baseline_cell(&job.experiment, &cells), 0);
        assert!(varied(&job.experiment, spec).unwrap().is_none());
        let plain = first(&crate::experiment::application::scripted::job(
            &COMMITS.replace("seed = 7", "aa = false"),
        ))
        .1;
        assert_eq!(plain.len(), 2);
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn points_of_the_work_have_a_layer_each_and_the_twin_is_at_the_middle_only() {
        let job = job(&format!("{COMMITS}sessions = [1, 4]\n"));
        let (spec, cells) = first(&job);
        let found: Vec<(&str, usize)> = cells.iter().map(|c| (c.title.as_str(), c.work)).collect();
        let expected = [
            ("local", 0),
            ("local (A/A)", 0),
            ("on", 0),
            ("local (sessions = 4)", 1),
            ("on (sessions = 4)", 1),
        ];
        assert_eq!(found, expected);
        let layers = layers(spec, job.experiment.combination);
        let sessions: Vec<Option<u32>> = layers.iter().map(|l| l.sessions).collect();
        assert_eq!(sessions, [Some(1), Some(4)]);
        let varied = varied(&job.experiment, spec).unwrap().unwrap();
        assert_eq!(varied.points.len(), 2);
        assert!(varied.axes[0].of_work && varied.axes[0].values[0].treatments.is_empty());
        assert_eq!(varied.at_middle_only, ["local (A/A)"]);
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn points_of_conditions_share_the_work_and_store_what_they_change() {
        let axis = "[[axis]]\nname = 'delay'\nunit = 'µs'\nvalues = [0, 50]\n\
                    postgres = { commit_delay = '{delay}' }\n";
        let job = job(&format!("{COMMITS}{axis}"));
        let (spec, cells) = first(&job);
        assert!(cells.iter().all(|c| c.work == 0));
        assert_eq!(layers(spec, job.experiment.combination).len(), 1);
        let varied = varied(&job.experiment, spec).unwrap().unwrap();
        assert!(!varied.axes[0].of_work);
        let treatments = &varied.axes[0].values[1].treatments;
        assert!(treatments[0].contains("commit_delay"), "{treatments:?}");
        let at_fifty = cells.iter().find(|c| c.title == "on (delay = 50 µs)");
        let changes = treatment::changes(&at_fifty.unwrap().treatments);
        assert!(changes.iter().any(|c| c.sets("commit_delay")), "{changes:?}");
    }
}
