//! Figures and times as progress shows them, on the terminal and on the live page.

use std::time::Duration;

use crate::workload::{Counted, Progress};
use pgio_results::metrics;
use pgio_results::model::Trial;
use pgio_results::units::human;

/// Returns the primary metric if it is a rate, else the rate that the work counts; none if it
/// counts nothing while running.
pub(crate) fn rate(primary: &str, progress: &Progress) -> Option<String> {
    let (counted, value) = mean_rate(primary, progress)?;
    Some(match counted.unit {
        60 => human::rate_per_minute(value),
        _ => human::rate(value),
    })
}

/// Returns the same rate with the name of what is counted, for a line that does not say what the primary metric is.
pub(crate) fn named_rate(primary: &str, progress: &Progress) -> Option<String> {
    let (counted, value) = mean_rate(primary, progress)?;
    let unit = metrics::definition(counted.metric)?.unit;
    Some(human::with_unit(value, &format!(" {unit}")))
}

/// Returns what is counted, and its mean rate in the unit of the metric.
fn mean_rate(primary: &str, progress: &Progress) -> Option<(Counted, f64)> {
    let counted = progress.primary_count(primary)?;
    Some((counted, f64::from(counted.unit) * progress.per_second(counted.count)?))
}

/// The rate of a complete trial: the primary metric if it is one, else what the work counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured<'a> {
    pub(crate) metric: &'a str,
    pub(crate) value: f64,
}

impl Measured<'_> {
    pub(crate) fn of_trial(trial: &Trial) -> Option<Measured<'_>> {
        let value = |name: &str| trial.metrics.get(name).and_then(|metric| metric.value);
        let primary = trial.workload.primary_metric.as_str();
        let names =
            [primary, "commits_per_second", "messages_per_minute", "block_visits_per_second"];
        let metric = names.into_iter().find(|name| {
            let is_rate = name.ends_with("_per_second") || name.ends_with("_per_minute");
            is_rate && value(name).is_some_and(|v| v > 0.0)
        })?;
        Some(Measured { metric, value: value(metric)? })
    }

    pub(crate) fn text(self) -> String {
        match self.metric {
            name if name.ends_with("_per_minute") => human::rate_per_minute(self.value),
            name if name.contains("bytes") => human::byte_rate(self.value),
            _ => human::rate(self.value),
        }
    }
}

/// `0:07`, `2:10`, `1:02:10`
pub(crate) fn clock_text(left: Duration) -> String {
    let seconds = left.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shown_as_on_a_clock() {
        for (milliseconds, shown) in [(0, "0:00"), (6_600, "0:07"), (130_000, "2:10")] {
            assert_eq!(clock_text(Duration::from_millis(milliseconds)), shown);
        }
        assert_eq!(clock_text(Duration::from_secs(3730)), "1:02:10");
    }

    #[test]
    fn the_rate_is_that_of_the_primary_metric() {
        let progress = Progress {
            elapsed: 2.9,
            covered: 2.0,
            commits: 6600,
            block_visits: 20_000,
            ..Progress::default()
        };
        let shown = |primary| rate(primary, &progress).unwrap();
        assert_eq!(shown("commits_per_second"), "3,300/s");
        assert_eq!(shown("block_visits_per_second"), "10,000/s");
        assert_eq!(shown("commit_p99"), "3,300/s");
        let mail = Progress { covered: 60.0, elapsed: 60.0, messages: 1500, ..Progress::default() };
        assert_eq!(rate("messages_per_minute", &mail).unwrap(), "1,500/min");
        let scans = Progress { covered: 2.0, blocks_scanned: 4000, ..Progress::default() };
        assert_eq!(rate("blocks_scanned_per_second", &scans).unwrap(), "2,000/s");
        assert_eq!(rate("device_latency", &Progress::default()), None);
        let named = |primary, progress| named_rate(primary, progress).unwrap();
        assert_eq!(named("commits_per_second", &progress), "3,300 commits/s");
        assert_eq!(named("messages_per_minute", &mail), "1,500 messages/min");
    }
}
