//! The conditions so far, one line each, above the line of progress on a terminal:
//!
//! ```text
//!   condition   trials     last   median  repeated
//!   on               4  1,190/s  1,203/s
//! > off              3  3,310/s  3,297/s         1
//! ```
//!
//! It shows what was measured and judges nothing: the report does, with intervals.

use super::progress::{Measured, shorten};
use pgio_results::model::Trial;

const HEADINGS: [&str; 5] = ["condition", "trials", "last", "median", "repeated"];
/// The columns of a narrow terminal, and the least for a condition's name.
const MIN_NAME_WIDTH: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ConditionTable(Vec<ConditionProgress>);

#[derive(Debug, Default)]
struct ConditionProgress {
    condition: String,
    /// Complete trials, without those that were repeated.
    values: Vec<f64>,
    last: String,
    median: String,
    repeated: usize,
}

impl ConditionProgress {
    fn cells(&self) -> [String; 5] {
        let repeated = if self.repeated == 0 { String::new() } else { self.repeated.to_string() };
        let trials = self.values.len().to_string();
        [self.condition.clone(), trials, self.last.clone(), self.median.clone(), repeated]
    }
}

impl ConditionTable {
    fn entry(&mut self, condition: &str) -> &mut ConditionProgress {
        let at = self.0.iter().position(|s| s.condition == condition).unwrap_or_else(|| {
            self.0.push(ConditionProgress {
                condition: condition.to_owned(),
                ..ConditionProgress::default()
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Adds a trial if it measured a rate. The burn-in trial never counts.
    pub(super) fn add(&mut self, trial: &Trial) {
        let Some(place) = trial.place.as_ref().filter(|place| !place.is_burn_in()) else { return };
        let Some(measured) = Measured::from_trial(trial).filter(|_| trial.is_valid()) else {
            return;
        };
        let condition = self.entry(&place.condition);
        condition.values.push(measured.value);
        condition.last = measured.text();
        condition.median = Measured { value: median(&condition.values), ..measured }.text();
    }

    pub(super) fn repeat(&mut self, condition: &str) {
        self.entry(condition).repeated += 1;
    }

    /// Returns the table within this width and half this height; nothing before the first trial.
    pub(super) fn lines(&self, width: usize, height: usize, current: &str) -> Vec<String> {
        let room = (height / 2).saturating_sub(2);
        if self.0.is_empty() || room == 0 {
            return Vec::new();
        }
        // The current condition is always there.
        let at = self.0.iter().position(|s| s.condition == current).unwrap_or(0);
        let first = (at + 1).saturating_sub(room);
        let shown = &self.0[first..(first + room).min(self.0.len())];
        let head = HEADINGS.map(str::to_owned);
        let rows: Vec<_> = shown.iter().map(ConditionProgress::cells).collect();
        let widest = |column: usize| {
            let widths = rows.iter().chain([&head]).map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let numbers: [usize; 4] = [1, 2, 3, 4].map(widest);
        let taken = 2 + numbers.iter().map(|n| n + 2).sum::<usize>();
        let name = widest(0).min(width.saturating_sub(taken)).max(MIN_NAME_WIDTH);
        let line = |mark: &str, row: &[String; 5]| {
            let mut line = format!("{mark} {:<name$}", shorten(&row[0], name));
            for (text, wide) in row[1..].iter().zip(numbers) {
                line += &format!("  {text:>wide$}");
            }
            shorten(line.trim_end(), width)
        };
        let mut lines = vec![line(" ", &head)];
        for row in &rows {
            lines.push(line(if row[0] == current { ">" } else { " " }, row));
        }
        let hidden = self.0.len() - shown.len();
        if hidden > 0 {
            lines.push(shorten(&format!("  and {hidden} more"), width));
        }
        lines
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::test_support::full_trial;

    fn trial(condition: &str, value: f64) -> Trial {
        let mut trial = full_trial();
        trial.checks.clear();
        trial.workload.primary_metric = "commits_per_second".to_owned();
        trial.metrics.get_mut("commits_per_second").unwrap().value = Some(value);
        let place = trial.place.as_mut().unwrap();
        (place.condition, place.block) = (condition.to_owned(), 1);
        trial
    }

    fn table() -> ConditionTable {
        let mut table = ConditionTable::default();
        for (condition, value) in [("on", 1190.0), ("off", 3310.0), ("on", 1210.0), ("off", 3200.0)]
        {
            table.add(&trial(condition, value));
        }
        table.add(&trial("off", 3400.0));
        table.repeat("off");
        table
    }

    #[test]
    fn each_condition_has_a_line() {
        let lines = table().lines(80, 24, "off");
        assert_eq!(
            lines,
            [
                "  condition  trials     last   median  repeated",
                "  on              2  1,210/s  1,200/s",
                "> off             3  3,400/s  3,310/s         1",
            ]
        );
    }

    #[test]
    fn it_fits_the_terminal_and_keeps_the_current_condition() {
        let mut table = table();
        for n in 0..40 {
            table.add(&trial(&format!("a condition with a long name, number {n}"), 100.0));
        }
        for width in 1..100 {
            for line in table.lines(width, 24, "on") {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        let current = "a condition with a long name, number 30";
        let lines = table.lines(100, 24, current);
        assert_eq!(lines.len(), 12, "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with(&format!("> {current}"))), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "  and 32 more");
        assert!(table.lines(80, 3, "on").is_empty(), "no room");
        assert!(ConditionTable::default().lines(80, 24, "on").is_empty());
    }

    #[test]
    fn the_progress_table_leaves_out_invalid_and_burn_in_trials() {
        let mut table = ConditionTable::default();
        let mut invalid = trial("on", 100.0);
        invalid.checks.push(pgio_results::model::Check::invalid("steal", "stolen", "wait"));
        table.add(&invalid);
        let mut burn_in = trial("on", 100.0);
        burn_in.place.as_mut().unwrap().block = pgio_results::BURN_IN_BLOCK;
        table.add(&burn_in);
        assert!(table.0.is_empty());
    }
}
