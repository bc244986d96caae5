//! Shows on stderr the progress of an experiment, repeats with their reasons, and the remaining time:
//! `12/36, on, 3,300/s, 2:10 left (4 repeated: foreign-load)`.
//!
//! On a terminal this line is rewritten in place, below a table of the conditions (`progress_table`); otherwise one
//! line per trial. [`Display`] shows the events of a whole experiment, [`ProgressLine`] the events of one
//! workload's trials.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::output::{self, Status};
use super::progress_table::ConditionTable;
use super::setup::{self, Lines};
use crate::config::experiment::{Experiment, WorkloadSpec};
use crate::experiment::event::{Event, WorkloadBegins};
use crate::experiment::pace::Pace;
use crate::experiment::run::Decision;
use crate::workload::{Counted, Progress};
use pgio_results::model::{Outcome, Trial};
use pgio_results::units::human;
use pgio_results::{BURN_IN_BLOCK, Warning, metrics};
use pgio_verdict as analysis;

/// Minimum columns for a condition's name on a narrow terminal.
const MIN_NAME_WIDTH: usize = 8;

/// Advises more blocks; none if there are enough.
pub(super) fn few_blocks_text(e: &Experiment) -> Option<String> {
    let enough = e.rules.enough_blocks;
    (e.blocks < enough && e.rules.precision.is_none()).then(|| {
        format!(
            "with fewer than {enough} blocks, one noisy condition can hide the effects of the others: blocks = {}",
            e.blocks
        )
    })
}

/// Describes the size of a sweep, shown before it runs; none without axes.
pub(super) fn size_text(e: &Experiment, workload: &WorkloadSpec) -> Option<String> {
    if workload.axes.is_empty() {
        return None;
    }
    let size = e.size_of(workload);
    let burn_in = size.trial.filter(|_| e.burns_in(workload)).unwrap_or_default();
    let lasts = size
        .total_duration(e.blocks)
        .map(|time| time + burn_in)
        .map_or_else(String::new, |time| format!(", {} of warm-up and windows", seconds(time)));
    Some(format!(
        "{} cells ({} conditions, {} points){}, in {} blocks: {} trials{lasts}",
        size.cells,
        e.conditions_of(workload).count(),
        workload.count_points(e.combination),
        if e.aa { " and the A/A twin" } else { "" },
        e.blocks,
        size.trials_per_block * u64::from(e.blocks),
    ))
}

pub(crate) fn seconds(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    if s < 120.0 { format!("{s:.1} s") } else { format!("{:.1} min", s / 60.0) }
}

/// Shows the events of an experiment.
#[derive(Debug)]
pub(super) struct Display<'a> {
    experiment: &'a Experiment,
    status: Status,
    /// Present while the trials of a workload run.
    line: Option<ProgressLine>,
}

impl Display<'_> {
    pub(super) fn new(experiment: &Experiment) -> Display<'_> {
        Display { experiment, status: Status::new(), line: None }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::OtherInterrupted(other) => output::warn_unfinished(other),
            Event::ServerStarts(step) => self.status.show(&step.to_string()),
            Event::ServerStarted => self.status.clear(),
            Event::Loads(event) => setup::show_load(event, Lines::None, &mut self.status),
            Event::NothingLeft { dir } => {
                output::note(&format!("the experiment in {} is already complete", dir.display()));
            }
            Event::WorkloadBegins(begins) => self.begin(begins),
            Event::WorkloadEnds { .. } => self.line = None,
            Event::BlockLimit { blocks } => output::note(&format!(
                "stopped at the limit of {blocks} blocks; the intervals are wider than requested"
            )),
            Event::Warns(warning) if self.line.is_none() => {
                self.status.clear();
                output::warn(warning);
            }
            event => self.line.iter_mut().for_each(|line| line.update(event)),
        }
    }

    fn begin(&mut self, begins: &WorkloadBegins<'_>) {
        self.status.clear();
        let WorkloadBegins { workload, pace, primary, open_ended, .. } = begins;
        if let Some(size) = size_text(self.experiment, workload) {
            output::note(&format!("{}: {size}", workload.name));
        }
        let mut line = ProgressLine::new(pace.clone(), (*primary).to_owned(), *open_ended);
        line.advice = few_blocks_text(self.experiment);
        self.line = Some(line);
    }
}

#[derive(Debug)]
struct ProgressLine {
    status: Status,
    pace: Pace,
    /// The primary metric, shown if it is a rate.
    primary: String,
    /// Repeats by the check that caused them, and in total.
    reasons: BTreeMap<String, usize>,
    repeats: usize,
    /// Whether more blocks may follow than are counted.
    open_ended: bool,
    /// Warnings already shown: a load before each trial repeats them.
    warned: BTreeSet<Warning>,
    table: ConditionTable,
    /// Printed when the first trial begins, so that a refusal stands alone.
    advice: Option<String>,
}

impl ProgressLine {
    fn new(pace: Pace, primary: String, open_ended: bool) -> ProgressLine {
        ProgressLine {
            status: Status::new(),
            pace,
            primary,
            reasons: BTreeMap::new(),
            repeats: 0,
            open_ended,
            warned: BTreeSet::new(),
            table: ConditionTable::default(),
            advice: None,
        }
    }

    fn update(&mut self, event: &Event<'_>) {
        if let (Event::Resets { .. } | Event::Begins { .. }, Some(advice)) =
            (event, self.advice.take())
        {
            self.print_note(&advice);
        }
        match event {
            Event::Resets { planned, condition } => {
                self.pace.begin(std::slice::from_ref(planned), Instant::now());
                self.show(condition, Some("loading the data set"), "");
            }
            Event::Begins { planned, condition } => {
                self.pace.begin(planned, Instant::now());
                self.show(condition, Some("preparing"), "");
            }
            Event::Progress { condition, progress } => {
                let rate = rate(&self.primary, progress);
                self.show(condition, rate.as_deref(), progress.status.text());
            }
            Event::Ended { trial, .. } => self.add_trial(trial),
            Event::Decided { decision, condition } => self.show_decision(*decision, condition),
            Event::Calibrates { slice } => {
                let text = format!("weaving: trying slices of {} ms", slice.as_millis());
                self.status.show(&text);
            }
            Event::Calibrated(calibration) => self.print_note(&analysis::weaving(calibration)),
            Event::Warns(warning) => {
                if self.warned.insert((*warning).clone()) {
                    self.status.clear();
                    output::warn(warning);
                }
            }
            Event::WidthChecked { width, precision } => {
                self.print_note(&width.describe(*precision));
            }
            Event::OtherInterrupted(_)
            | Event::ServerStarts(_)
            | Event::ServerStarted
            | Event::Loads(_)
            | Event::NothingLeft { .. }
            | Event::WorkloadBegins(_)
            | Event::WorkloadEnds { .. }
            | Event::BlockLimit { .. } => {}
        }
    }

    fn show(&mut self, condition: &str, state: Option<&str>, message: &str) {
        let Some(width) = self.status.width() else { return };
        let mut lines = self.table.lines(width, self.status.height(), condition);
        lines.push(self.line(condition, state, message, width));
        self.status.show_all(&lines);
    }

    /// Returns at most `width` characters; the condition's name is shortened first.
    fn line(&self, condition: &str, state: Option<&str>, message: &str, width: usize) -> String {
        let head = format!("{}/{}, ", self.pace.number(), self.pace.trials());
        let mut tail = state.map_or_else(String::new, |state| format!(", {state}"));
        if let Some(left) = self.pace.remaining(Instant::now()) {
            let at_least = if self.open_ended { "at least " } else { "" };
            tail += &format!(", {at_least}{} left", clock_text(left));
        }
        tail += &self.repeats_text();
        let taken = head.chars().count() + tail.chars().count();
        let room = width.saturating_sub(taken).max(MIN_NAME_WIDTH);
        let mut line = head + &shorten(condition, room) + &tail;
        if !message.is_empty() {
            line += &format!(": {message}");
        }
        shorten(&line, width)
    }

    /// ` (4 repeated: foreign-load)`
    fn repeats_text(&self) -> String {
        if self.repeats == 0 {
            return String::new();
        }
        let mut why: Vec<(&String, &usize)> = self.reasons.iter().collect();
        why.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        let why: Vec<String> = match why.as_slice() {
            [(only, _)] => vec![(*only).clone()],
            several => several.iter().map(|(id, times)| format!("{id} {times}")).collect(),
        };
        format!(" ({} repeated: {})", self.repeats, why.join(", "))
    }

    fn add_trial(&mut self, trial: &Trial) {
        self.pace.end_window(Instant::now());
        self.table.add(trial);
        let place = trial.place.as_ref();
        let condition = place.map_or("", |p| p.condition.as_str());
        if let Outcome::Failed { error } = &trial.outcome {
            let block = match place.map_or(BURN_IN_BLOCK, |p| p.block) {
                BURN_IN_BLOCK => "burn-in".to_owned(),
                block => format!("block {block}"),
            };
            self.print_note(&format!("{block}, {condition}: failed: {error}"));
        }
        if self.status.width().is_none() {
            let state = match &trial.outcome {
                Outcome::Complete => Measured::from_trial(trial).map(Measured::text),
                Outcome::Failed { .. } => Some("failed".to_owned()),
                Outcome::Interrupted => Some("interrupted".to_owned()),
            };
            output::note(&self.line(condition, state.as_deref(), "", usize::MAX));
        }
    }

    fn show_decision(&mut self, decision: Decision<'_>, condition: &str) {
        match decision {
            Decision::Repeats { planned, why, checks } => {
                self.pace.add(planned.cell);
                self.repeats += 1;
                self.table.repeat(condition);
                for id in checks {
                    *self.reasons.entry(id.clone()).or_default() += 1;
                }
                let (block, attempt) = (planned.block, planned.attempt);
                self.print_note(&format!(
                    "block {block}, {condition}: invalid ({why}); repeat {attempt}"
                ));
            }
            Decision::RepeatsBaseline { planned } => self.pace.add(planned.cell),
            Decision::Excludes { planned, why } => self.print_note(&format!(
                "block {}, {condition}: invalid ({why}) after {} attempts; excluded",
                planned.block,
                planned.attempt + 1
            )),
            Decision::FurtherBlock { .. } => self.pace.add_block(),
        }
    }

    fn print_note(&mut self, text: &str) {
        self.status.clear();
        output::note(text);
    }
}

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
pub(super) fn named_rate(primary: &str, progress: &Progress) -> Option<String> {
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
pub(super) struct Measured<'a> {
    pub(super) metric: &'a str,
    pub(super) value: f64,
}

impl Measured<'_> {
    pub(super) fn from_trial(trial: &Trial) -> Option<Measured<'_>> {
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

    pub(super) fn text(self) -> String {
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

pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::{Planned, plan};

    fn line_of(trials: u32) -> ProgressLine {
        let pace = Pace::new(vec![Some(Duration::from_secs(10))], &plan(1, trials, 1));
        ProgressLine::new(pace, "commits_per_second".to_owned(), false)
    }

    fn at(block: u32) -> Planned {
        Planned { block, position: 1, cell: 0, attempt: 0 }
    }

    fn repeats(line: &mut ProgressLine, ids: &[&str]) {
        let checks: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let decision =
            Decision::Repeats { planned: &at(1), why: "other processes", checks: &checks };
        line.update(&Event::Decided { decision, condition: "on" });
    }

    #[test]
    fn the_line_has_place_rate_time_and_repeats() {
        let mut line = line_of(13);
        for block in 1..=12 {
            line.update(&Event::Begins { planned: &[at(block)], condition: "on" });
        }
        // The trials so far took no time.
        assert_eq!(line.line("on", Some("3,300/s"), "", 80), "12/13, on, 3,300/s, 0:00 left");
        for _ in 0..4 {
            repeats(&mut line, &["foreign-load"]);
        }
        let text = line.line("on", Some("3,300/s"), "", 80);
        assert_eq!(text, "12/17, on, 3,300/s, 0:00 left (4 repeated: foreign-load)");
        repeats(&mut line, &["foreign-load", "checkpoints"]);
        let text = line.line("on", None, "progress: 5.0 s", 200);
        assert_eq!(
            text,
            "12/18, on, 0:00 left (5 repeated: foreign-load 5, checkpoints 1): progress: 5.0 s"
        );
    }

    #[test]
    fn the_line_is_no_wider_than_the_terminal() {
        let mut line = line_of(3);
        line.update(&Event::Begins { planned: &[at(1)], condition: "on" });
        let name = "on, and the standby's disk limited to 500 IOPS";
        for width in 1..120 {
            let text = line.line(name, Some("3,300/s"), "output of a program", width);
            assert!(text.chars().count() <= width, "{width}: {text}");
        }
        // The name gives way before the time does.
        let text = line.line(name, Some("3,300/s"), "", 40);
        assert_eq!(text, "1/3, on, and the st…, 3,300/s, 0:30 left");
    }

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
