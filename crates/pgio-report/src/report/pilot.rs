//! The plan from a pilot as a document: how many blocks, and how much time, decide about a margin.

use super::format::{self, NONE};
use super::margin;
use super::table::{Column, Document, Table, columns};
use pgio_results::units::human;
use pgio_verdict::pilot::{Needed, Plan, TrialTime};

/// A bound of the noise that is more than this many times its estimate could be much lower.
const MAX_UNCERTAINTY: f64 = 2.0;

/// Noise beyond this share of the value is only noise.
const MAX_NOISE: f64 = 10.0;

/// One row for each workload. All plans are of one file, so margin and blocks are the same.
pub fn document(plans: &[Plan]) -> Document {
    let Some(first) = plans.first() else { return Document::default() };
    let share = margin::share(first.margin);
    let own = format::counted(first.blocks as usize, "block");
    let mut columns = columns("experiment | metric | > pilot | > noise | > at most");
    columns.extend(first.needed.iter().map(|needed| Column::right(power(needed.power))));
    columns.push(Column::right(format!("decided by {own}")));
    let table = Table {
        title: String::new(),
        columns,
        rows: plans.iter().map(row).collect(),
        notes: notes(plans),
    };
    Document {
        title: format!("Blocks needed to decide whether an effect exceeds {share}"),
        tables: vec![table],
        ..Document::default()
    }
}

fn row(plan: &Plan) -> Vec<String> {
    let mut cells = vec![
        plan.experiment.clone(),
        format::metric_name(&plan.metric),
        format::counted(plan.pilot_blocks, "block"),
        noise(plan.spread.sd_log),
        noise(plan.spread.upper),
    ];
    cells.extend(plan.needed.iter().map(|needed| blocks_and_time(plan, needed)));
    cells.push(plan.smallest_margin.map_or_else(|| NONE.to_owned(), margin::share));
    cells
}

fn noise(log: f64) -> String {
    match log.exp_m1() {
        share if share > MAX_NOISE => "over 1,000 %".to_owned(),
        share => format::size(share),
    }
}

/// The number of blocks, with their time on a second line.
fn blocks_and_time(plan: &Plan, needed: &Needed) -> String {
    let Some(blocks) = needed.blocks else {
        return format!("over {}", human::count(u64::from(benchmath::power::MAX_BLOCKS)));
    };
    let counted = format::counted(blocks as usize, "block");
    let trials = f64::from(blocks) * plan.trials_per_block as f64;
    match plan.trial_time {
        Some(time) => format!("{counted}\n{}", format::long_time(trials * time.seconds())),
        None => counted,
    }
}

fn notes(plans: &[Plan]) -> Vec<String> {
    let mut notes = vec![
        "Noise: the standard deviation of the ratio of two equal trials of one block, pooled over all \
         conditions of the pilot; \"at most\" is its 90 % upper bound."
            .to_owned(),
        "The blocks are an upper bound, because they are computed from the upper bound of the noise, \
         which the true noise exceeds in only one of ten pilots."
            .to_owned(),
        "80 % power: each comparison is decided with this probability if its effect is zero or at \
         least twice the margin; an effect closer to the margin needs more blocks."
            .to_owned(),
        "The last column is the smallest margin that the `blocks` of the file decide with 80 % power."
            .to_owned(),
    ];
    if plans.iter().any(|plan| plan.spread.upper > MAX_UNCERTAINTY * plan.spread.sd_log) {
        notes.push(
            "A pilot of more blocks knows the noise better, which lowers the bound.".to_owned(),
        );
    }
    notes.extend(plans.iter().map(|plan| {
        let whose = match plans {
            [_] => String::new(),
            _ => format!(" of {}", plan.experiment),
        };
        basis(plan, &whose)
    }));
    notes
}

/// What the times are computed from.
fn basis(plan: &Plan, whose: &str) -> String {
    let trials = format::counted(plan.trials_per_block, "trial");
    let (seconds, from) = match plan.trial_time {
        Some(TrialTime::Measured(seconds)) => (seconds, "from start to start in the pilot"),
        Some(TrialTime::Estimated(seconds)) => {
            (seconds, "each by the estimate of `pgio compare --plan`")
        }
        None => {
            return format!("Time{whose}: unknown; the pilot does not show when trials began.");
        }
    };
    format!(
        "Time{whose}: {trials} per block, {} {from}; repeats, loading and burn-in are not counted.",
        format::long_time(seconds)
    )
}

fn power(power: f64) -> String {
    format!("{:.0} % power", power * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;
    use insta::assert_snapshot;
    use pgio_verdict::pilot::plan;
    use pgio_verdict::test_support::demo;

    fn demo_plan() -> Plan {
        let mut stored = demo();
        stored.trials.retain(|t| t.place.as_ref().is_some_and(|p| p.block <= 4));
        plan(&stored, 0.05, 6).unwrap()
    }

    #[test]
    fn noise_above_1000_percent_is_shown_as_that() {
        assert_eq!(noise(0.05_f64.ln_1p()), "5.0 %");
        assert_eq!(noise(37_000_000.0_f64.ln_1p()), "over 1,000 %");
        assert_eq!(noise(f64::INFINITY), "over 1,000 %");
    }

    #[test]
    fn a_plan_states_noise_blocks_and_time() {
        let plan = Plan { trial_time: Some(TrialTime::Measured(11.5)), ..demo_plan() };
        assert_snapshot!(text::render(&document(&[plan])));
    }

    #[test]
    fn workloads_have_a_row_and_a_time_each() {
        let measured = Plan { trial_time: Some(TrialTime::Measured(61.0)), ..demo_plan() };
        let mut endless = Plan { experiment: "other".to_owned(), ..demo_plan() };
        endless.trial_time = Some(TrialTime::Estimated(3.0));
        endless.needed[1].blocks = None;
        endless.smallest_margin = None;
        let unknown = Plan { trial_time: None, ..demo_plan() };
        assert_snapshot!(text::render(&document(&[measured, endless, unknown])));
    }

    #[test]
    fn times_have_a_unit_of_their_size() {
        let shown = [2.14, 119.0, 2040.0, 18_720.0, 300_000.0].map(format::long_time);
        assert_eq!(shown, ["2.1 s", "119.0 s", "34.0 min", "5.2 h", "3.5 days"]);
    }
}
