//! `--plan`: every trial and every change, read from the file alone.

use super::job::Job;
use crate::experiment::plan::plan;
use crate::units::exact_duration;

impl Job {
    /// `--plan`: read from the file alone.
    pub(super) fn plan_text(&self) -> String {
        let e = &self.experiment;
        let mut text = format!(
            "Experiment {}: {} blocks, seed {}, baseline {}.\n",
            e.name, e.blocks, self.seed, e.baseline
        );
        for workload in &e.workloads {
            // The file was parsed with these treatments already.
            let Ok(conditions) = self.conditions(workload) else { continue };
            let window = workload.layer.run_time.unwrap_or(e.duration);
            let warmup = workload.layer.warmup.unwrap_or(e.warmup);
            let length = match workload.layer.transactions {
                Some(n) => format!("{n} transactions"),
                None => format!("a window of {}", exact_duration(window)),
            };
            text += &format!(
                "\nWorkload {} ({}): {} of warm-up, then {length}.\n",
                workload.name,
                workload.kind.name(),
                exact_duration(warmup)
            );
            for c in &conditions {
                let changes: Vec<String> = c.treatments.iter().flat_map(|t| t.describe()).collect();
                let changes =
                    if changes.is_empty() { "nothing".to_owned() } else { changes.join(", ") };
                text += &format!("  {} changes {changes}\n", c.name);
            }
            for p in plan(conditions.len(), e.blocks, self.seed) {
                text += &format!(
                    "  block {:2}, trial {}: {}\n",
                    p.block, p.position, conditions[p.condition].name
                );
            }
            let trials = conditions.len() as f64 * f64::from(e.blocks);
            if workload.layer.transactions.is_none() {
                let total = trials * (window.as_secs_f64() + warmup.as_secs_f64());
                text += &format!("  {trials} trials, {total:.0} s of warm-up and windows\n");
            }
        }
        text
    }
}
