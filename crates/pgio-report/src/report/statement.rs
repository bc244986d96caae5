//! What an analysis says about one condition, made in one place: a claim, its size with the interval, how certain it
//! is, and the reasons to qualify it.
//!
//! Every format takes one of two forms. [`Statement::short`] is for a cell and a line of the terminal:
//! `costs about half of the commits: shown (5 % risk for all conditions)`. [`Statement::long`] adds the figures, for a
//! reader who has no table beside it. A claim follows from the verdict and its interval alone: a size is named in words
//! only if the whole interval is near it, else the nearest one that the whole interval exceeds or stays below.
//! [`effect`] is the cell of a table with figures. Next: `lead` has the first lines of a report.

use super::format::{self, ChangeText, NONE};
use super::{lead, margin};
use pgio_results::danger::Danger;
use pgio_results::metrics::Direction;
use pgio_verdict::shares::failed_more;
use pgio_verdict::{ALPHA, Analysis, Comparison, Decision, Finding, STALLS, State, Verdict};

/// The claim about the baseline.
pub(super) const BASELINE: &str = "the baseline";
/// The certainty of a verdict if no check contradicts it and the servers were started often enough.
const CERTAIN: &str = "certain";
/// One start of a server has one layout of memory and files, which no number of blocks averages out.
const MIN_STARTS: usize = 3;
/// Replaces it for a condition that failed in a larger share of its trials than the baseline.
const COMPLETED: &str = "shown in the trials that completed";

/// Shares that people have words for, in ascending order.
const NAMED_SHARES: [(f64, &str); 8] = [
    (0.1, "a tenth"),
    (0.2, "a fifth"),
    (0.25, "a quarter"),
    (1.0 / 3.0, "a third"),
    (0.5, "half"),
    (2.0 / 3.0, "two thirds"),
    (0.75, "three quarters"),
    (0.9, "nine tenths"),
];
/// `about`: both ends of the interval are this near, as a share of the whole and of the named share.
const TOLERANCE: f64 = 0.04;
const RELATIVE_TOLERANCE: f64 = 0.2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    condition: String,
    pub(super) claim: Claim,
    /// The change of the primary metric and its interval; of what was compared in enough blocks alone.
    pub(super) size: Option<ChangeText>,
    /// `commits/s −53.5 % [−55.3, −51.4] against local, 6 blocks`; may be empty.
    figures: String,
    /// `shown (5 % risk for all conditions), and it matters`; may be empty.
    certainty: String,
    /// What qualifies the claim: that it stalls or failed, that several causes are possible, what it endangers.
    reasons: Vec<String>,
    /// What only the long form has: how many blocks would decide, by which interval an effect does not matter.
    details: Vec<String>,
}

/// What is claimed, and on which ground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// A difference: `costs at least half of the commits`
    Differs(String),
    /// None beyond the margin: `no difference above 5 %`
    Within(String),
    /// Nothing: `not decided`, `undecided: 4 of 6 blocks valid`, `the baseline`
    Open(String),
    /// No trial counts; for the long form with the reason, in a clause of its own.
    Failed { what: String, clause: String },
}

impl Claim {
    pub(super) fn text(&self) -> &str {
        match self {
            Claim::Differs(text) | Claim::Within(text) | Claim::Open(text) => text,
            Claim::Failed { what, .. } => what,
        }
    }
}

impl Statement {
    /// The primary metric's verdict on one condition.
    pub fn new(analysis: &Analysis, condition: &str) -> Statement {
        let mut statement = Statement {
            condition: condition.to_owned(),
            claim: Claim::Open(BASELINE.to_owned()),
            size: None,
            figures: String::new(),
            certainty: String::new(),
            reasons: Vec::new(),
            details: Vec::new(),
        };
        if condition != analysis.baseline {
            match analysis.primary(condition) {
                Some(c) => statement.judge(analysis, c),
                None => statement.claim = Claim::Open("not compared".to_owned()),
            }
        }
        statement.reasons.extend(danger(analysis, condition).map(|danger| danger.to_string()));
        statement
    }

    /// A few words for one cell, with what the condition endangers.
    pub fn short(&self) -> String {
        let certainty = Some(&self.certainty).filter(|text| !text.is_empty());
        let certainty = certainty.map_or_else(String::new, |text| format!(": {text}"));
        format!("{}{certainty}{}", self.claim.text(), appended(&self.reasons))
    }

    /// A sentence that stands alone.
    pub fn long(&self) -> String {
        let named = || format!("{}: {}", self.condition, self.claim.text());
        let mut text = match &self.claim {
            Claim::Failed { clause, .. } => clause.clone(),
            Claim::Differs(_) | Claim::Within(_) | Claim::Open(_) => named(),
        };
        if !self.figures.is_empty() {
            text += &format!(", {}", self.figures);
        }
        if !self.certainty.is_empty() {
            text += &format!(": {}", self.certainty);
        }
        text + &appended(&self.details) + &appended(&self.reasons) + "."
    }

    fn judge(&mut self, analysis: &Analysis, c: &Comparison) {
        let described = analysis.condition(&c.condition);
        let needed = c.blocks_needed.map(|n| margin::blocks_and_time(analysis, n));
        if let Some(d) = described.filter(|d| d.state != State::Measured)
            && let Some(what) = lead::instead_of_effect(analysis, d)
        {
            self.claim = match lead::clause(analysis, d) {
                Some(clause) => Claim::Failed { what, clause },
                None => Claim::Open(what),
            };
            if d.state == State::Undecided {
                self.details.extend(needed.map(|blocks| format!("{blocks} needed")));
                self.details.extend(margin::decided_by(analysis, c));
            }
            return;
        }
        let is_aa = analysis.is_aa(&c.condition);
        (self.claim, self.certainty) = claim(analysis, c, is_aa);
        match c.verdict {
            Verdict::NotApplicable | Verdict::NotJudged => return,
            Verdict::TooFewBlocks => {
                self.details.extend(needed.map(|blocks| format!("{blocks} needed")));
            }
            Verdict::NoDifference if !is_aa => self.details.extend(
                needed.map(|blocks| format!("{blocks} needed to detect the planned effect")),
            ),
            _ => {}
        }
        if c.verdict != Verdict::TooFewBlocks {
            self.size = c.ratio.map(|r| format::change_as_known(r, c.interval, c.bound));
        }
        if let Some(size) = &self.size {
            let (metric, blocks) =
                (format::metric_name(&c.metric), format::counted(c.blocks, "block"));
            self.figures = format!("{metric} {size} against {}, {blocks}", analysis.baseline);
        }
        let cut_off = "the window's end cut off operations, so this is a bound";
        self.details.extend(c.bound.map(|_| cut_off.to_owned()));
        self.details.extend(margin::decided_by(analysis, c));
        if is_aa {
            return;
        }
        self.reasons.extend(stalls(analysis, &c.condition).then(|| "it stalls".to_owned()));
        let failed = described.and_then(failed_more);
        self.reasons.extend(failed.map(|share| format!("it {}", lead::failed_in(share))));
        let factors = described.map_or(0, |d| d.factors.len());
        let together = || format!("the effect of {} treatments together", format::small(factors));
        self.reasons.extend((factors > 1 && c.verdict.is_decided()).then(together));
    }
}

fn appended(parts: &[String]) -> String {
    parts.iter().map(|part| format!("; {part}")).collect()
}

/// What the condition endangers; the twin does what the baseline does.
pub(super) fn danger(analysis: &Analysis, condition: &str) -> Option<Danger> {
    analysis.condition(condition).filter(|_| !analysis.is_aa(condition))?.danger
}

/// The name for the first cell of its row, marked if it endangers something.
pub(super) fn marked_name(analysis: &Analysis, condition: &str) -> String {
    let mark = danger(analysis, condition).map_or("", |_| " (unsafe)");
    format!("{condition}{mark}")
}

pub(super) fn stalls(analysis: &Analysis, condition: &str) -> bool {
    let is_it = |f: &Finding| f.id == STALLS && f.condition.as_deref() == Some(condition);
    analysis.checks.iter().any(is_it)
}

/// `−53.5 % [−55.0, −51.9]`, or `~` where no difference was detected; of conditions and of factors.
pub fn effect(c: &Comparison, is_aa: bool) -> String {
    let known = |ratio| format::change_as_known(ratio, c.interval, c.bound);
    match (c.verdict, c.ratio) {
        (Verdict::NotApplicable, _) => NONE.to_owned(),
        (Verdict::TooFewBlocks, _) => {
            format!("~ {}{}", format::counted(c.blocks, "block"), needed_blocks(c, is_aa))
        }
        (_, None) => "~".to_owned(),
        (verdict, Some(ratio)) if verdict.is_decided() => known(ratio).to_string(),
        (_, Some(ratio)) if c.bound.is_some() => format!("~ {}", known(ratio)),
        (_, Some(ratio)) => {
            let interval = known(ratio).interval.unwrap_or_default();
            format!("~ {interval}{}", needed_blocks(c, is_aa))
        }
    }
}

/// How many blocks detect the planned effect, on a separate line. Empty for the twin, which has no
/// effect to detect.
pub(super) fn needed_blocks(c: &Comparison, is_aa: bool) -> String {
    match c.blocks_needed {
        Some(n) if !is_aa => format!("\n({} needed)", format::counted(n as usize, "block")),
        _ => String::new(),
    }
}

/// The claim and its certainty.
fn claim(analysis: &Analysis, c: &Comparison, is_aa: bool) -> (Claim, String) {
    let open = |claim: &str, why: String| (Claim::Open(claim.to_owned()), why);
    match c.verdict {
        Verdict::TooFewBlocks => open("undecided: too few blocks", String::new()),
        Verdict::NotApplicable | Verdict::NotJudged => {
            let zero = || format!("{} is zero in some block", format::metric_name(&c.metric));
            let why = c.warnings.first().filter(|_| c.ratio.is_none()).cloned();
            open("cannot be compared", why.unwrap_or_else(zero))
        }
        verdict if is_aa && verdict.is_decided() => {
            open("differs from itself", "distrust this experiment".to_owned())
        }
        _ if is_aa => {
            let bound = c.bound.map_or("", |_| "only a bound is known");
            open("the baseline again", bound.to_owned())
        }
        Verdict::NoDifference => no_difference(analysis, c),
        Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower => {
            (Claim::Differs(change(analysis, c)), certainty(analysis, c))
        }
    }
}

/// Whether the A/A twin shows a difference where there is none.
fn is_distrusted(analysis: &Analysis) -> bool {
    let twin = analysis.aa.as_ref().and_then(|aa| analysis.primary(aa));
    twin.is_some_and(|twin| twin.verdict.is_decided())
}

fn certainty(analysis: &Analysis, c: &Comparison) -> String {
    let sure = if is_distrusted(analysis) {
        "doubtful, because the baseline differs from itself"
    } else if analysis.own_baseline.is_some() {
        "to be confirmed, because this baseline was chosen afterwards"
    } else if !c.judged {
        "indicative, because `judge` does not name it"
    } else if fails_more(analysis, c) {
        COMPLETED
    } else if is_certain(analysis, c) {
        CERTAIN
    } else {
        &format!("shown ({} risk for all conditions)", margin::share(ALPHA))
    };
    let matters = match c.decision {
        Some(Decision::Matters) => ", and it matters",
        Some(Decision::DoesNotMatter) => ", and it does not matter",
        Some(Decision::Undecided) => ", whether it matters is open",
        None => "",
    };
    format!("{sure}{matters}")
}

/// Whether both sides ran on enough starts of their servers, on a machine that was not busy.
fn is_certain(analysis: &Analysis, c: &Comparison) -> bool {
    let starts = |name: &str| analysis.condition(name).map_or(0, |c| c.server_starts);
    let fewest = starts(&c.condition).min(starts(&analysis.baseline));
    fewest >= MIN_STARTS && lead::busy_trials(analysis) == 0
}

fn fails_more(analysis: &Analysis, c: &Comparison) -> bool {
    analysis.condition(&c.condition).and_then(failed_more).is_some()
}

/// How large a difference may have been missed, in the direction that is worse.
fn no_difference(analysis: &Analysis, c: &Comparison) -> (Claim, String) {
    if let (Some(Decision::DoesNotMatter), Some(share), false) =
        (c.decision, c.margin, is_distrusted(analysis))
    {
        // The tests are of this comparison alone.
        let shown = if fails_more(analysis, c) { COMPLETED } else { "shown" };
        let claim = format!("no difference above {}", margin::share(share));
        return (Claim::Within(claim), format!("{shown} ({} risk each)", margin::share(ALPHA)));
    }
    let direction = direction(analysis, c);
    let (less, more) =
        (c.interval.low.map(|low| 1.0 - low), c.interval.high.map(|high| high - 1.0));
    let missed = match direction {
        Direction::HigherIsFaster => less.map(|share| ("a loss", share)),
        Direction::LowerIsFaster => more.map(|share| ("a rise", share)),
        Direction::Neutral => less.zip(more).map(|(l, m)| ("a change", l.max(m))),
    };
    let possible = missed.map(|(what, share)| match share {
        share if share > 0.0 => format!("{what} of up to {} is possible", format::size(share)),
        _ => format!("{what} is unlikely"),
    });
    let is_open = c.decision == Some(Decision::Undecided);
    let open = is_open.then(|| "whether it matters is open".to_owned());
    let parts: Vec<String> = possible.into_iter().chain(open).collect();
    (Claim::Open("not decided".to_owned()), parts.join(", "))
}

fn direction(analysis: &Analysis, c: &Comparison) -> Direction {
    analysis.definition(&c.metric).map_or(Direction::Neutral, |def| def.direction)
}

/// What the interval of a change allows to be said about its size.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    About(&'static str),
    AtLeast(&'static str),
    AtMost(&'static str),
    /// At least this many times as much.
    Times(f64),
    Unclear,
}

/// The decided change.
fn change(analysis: &Analysis, c: &Comparison) -> String {
    let grows = c.ratio.is_some_and(|r| r > 1.0);
    let size = size(grows, c.interval.low, c.interval.high);
    let rate = format::rate_name(&c.metric);
    match rate.filter(|_| direction(analysis, c) == Direction::HigherIsFaster) {
        Some(rate) if grows => more(size, &rate.things),
        Some(rate) => fewer(size, &rate.things),
        None => raises_or_lowers(grows, size, &format::metric_name(&c.metric)),
    }
}

fn fewer(size: Size, things: &str) -> String {
    match size {
        Size::About(share) => format!("costs about {share} of the {things}"),
        Size::AtLeast(share) => format!("costs at least {share} of the {things}"),
        Size::AtMost(share) => format!("costs some {things}, at most {share}"),
        Size::Times(_) | Size::Unclear => format!("costs {things}, how many is unclear"),
    }
}

fn more(size: Size, things: &str) -> String {
    match size {
        Size::About("half") => format!("brings about half as many {things} again"),
        Size::AtLeast("half") => format!("brings at least half as many {things} again"),
        Size::About(share) => format!("brings about {share} more {things}"),
        Size::AtLeast(share) => format!("brings at least {share} more {things}"),
        Size::AtMost(share) => format!("brings some more {things}, at most {share}"),
        Size::Times(n) => format!("brings at least {n} times as many {things}"),
        Size::Unclear => format!("brings more {things}, how many is unclear"),
    }
}

fn raises_or_lowers(grows: bool, size: Size, what: &str) -> String {
    let verb = if grows { "raises" } else { "lowers" };
    match size {
        Size::About(share) => format!("{verb} the {what} by about {share}"),
        Size::AtLeast(share) => format!("{verb} the {what} by at least {share}"),
        Size::AtMost(share) => format!("{verb} the {what} by at most {share}"),
        Size::Times(n) => format!("{verb} the {what} to at least {n} times"),
        Size::Unclear => format!("{verb} the {what}, by how much is unclear"),
    }
}

/// The size of a change from the interval of its ratio; a side that is not known is as far as it can be.
fn size(grows: bool, low: Option<f64>, high: Option<f64>) -> Size {
    let (near, far) = if grows {
        (low.map_or(0.0, |r| r - 1.0), high.map_or(f64::INFINITY, |r| r - 1.0))
    } else {
        (high.map_or(0.0, |r| 1.0 - r), low.map_or(1.0, |r| 1.0 - r))
    };
    if grows && near >= 1.0 {
        return Size::Times((near + 1.0).floor());
    }
    let is_near =
        |named: f64, end: f64| (end - named).abs() <= TOLERANCE.min(named * RELATIVE_TOLERANCE);
    let middle = f64::midpoint(near, far);
    let about = NAMED_SHARES
        .iter()
        .filter(|(named, _)| is_near(*named, near) && is_near(*named, far))
        .min_by(|a, b| (a.0 - middle).abs().total_cmp(&(b.0 - middle).abs()));
    let exceeded = NAMED_SHARES.iter().rev().find(|(named, _)| near >= *named);
    let stayed_below = NAMED_SHARES.iter().find(|(named, _)| far <= *named);
    match (about, exceeded, stayed_below) {
        (Some((_, name)), ..) => Size::About(name),
        (None, Some((_, name)), _) => Size::AtLeast(name),
        (None, None, Some((_, name))) => Size::AtMost(name),
        (None, None, None) => Size::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::lead::in_one_sentence;
    use pgio_results::Check;
    use pgio_results::change::Change;
    use pgio_results::store::StoredExperiment;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{demo, experiment, failing, trial};
    use proptest::prelude::*;

    /// The size of an interval with both sides.
    fn within(low: f64, high: f64) -> Size {
        size(low > 1.0, Some(low), Some(high))
    }

    fn share_of(name: &str) -> f64 {
        NAMED_SHARES.iter().find(|(_, known)| *known == name).unwrap().0
    }

    fn answers(stored: &StoredExperiment) -> Vec<String> {
        let analysis = analyze(stored);
        analysis.conditions.iter().map(|c| Statement::new(&analysis, &c.name).short()).collect()
    }

    /// The rate of the trials of one condition, times a factor.
    fn with_factor(condition: &str, factor: f64) -> StoredExperiment {
        let mut stored = demo();
        for t in &mut stored.trials {
            let is_it = t.place.as_ref().is_some_and(|p| p.condition == condition);
            let rate = t.metrics.get_mut("commits_per_second");
            if let Some(rate) = rate.filter(|_| is_it) {
                rate.value = rate.value.map(|v| v * factor);
            }
        }
        stored
    }

    #[test]
    fn a_size_in_words_holds_for_the_whole_interval() {
        for (low, high, expected) in [
            (0.48, 0.53, Size::About("half")),
            (0.45, 0.481, Size::AtLeast("half")),
            (0.2, 0.45, Size::AtLeast("half")),
            (0.93, 0.98, Size::AtMost("a tenth")),
            (0.05, 0.99, Size::Unclear),
            (1.24, 1.27, Size::About("a quarter")),
            (3.2, 9.0, Size::Times(3.0)),
        ] {
            assert_eq!(within(low, high), expected);
        }
        assert_eq!(size(true, Some(1.4), None), Size::AtLeast("a third"));
        assert_eq!(size(false, None, Some(0.97)), Size::Unclear);
    }

    #[test]
    fn the_demo_in_words() {
        insta::assert_snapshot!(answers(&demo()).join("\n"));
    }

    #[test]
    fn a_gain_that_endangers_the_data_says_so() {
        let mut stored = with_factor("on", 10.0);
        let change = Change::server("fsync", "off");
        stored.manifest.conditions.iter_mut().find(|c| c.name == "on").unwrap().changes =
            vec![change];
        let all = answers(&stored);
        let price = "unsafe: a power cut can corrupt the cluster";
        assert!(all[3].starts_with("brings at least") && all[3].ends_with(price), "{all:?}");
        assert!(all[..3].iter().all(|text| !text.contains("power cut")), "{all:?}");
        let analysis = analyze(&stored);
        let sentence = Statement::new(&analysis, "on").long();
        assert!(sentence.ends_with(&format!("; {price}.")), "{sentence}");
        let first = in_one_sentence(&analysis).unwrap();
        assert!(first.contains(&format!("many commits ({price})")), "beside the gain: {first}");
        assert_eq!(first.matches("nsafe").count(), 1, "said once: {first}");
        // Commits that nobody has but the primary are lost at a failover, if a standby would have had them.
        let conditions = &mut stored.manifest.conditions;
        conditions[0].changes = vec![Change::server("synchronous_commit", "local")];
        let names = "setting.synchronous_standby_names".to_owned();
        let baseline = |stored: &StoredExperiment| answers(stored).remove(0);
        for t in &mut stored.trials {
            t.telemetry = None;
            std::sync::Arc::make_mut(&mut t.environment).insert(names.clone(), String::new());
        }
        assert_eq!(baseline(&stored), "the baseline");
        for t in &mut stored.trials {
            std::sync::Arc::make_mut(&mut t.environment).insert(names.clone(), "s1".to_owned());
        }
        let expected = "the baseline; unsafe: a failover can lose acknowledged commits";
        assert_eq!(baseline(&stored), expected);
        // Its rate is not what a failover can lose.
        let cell = &crate::report::summary::answers(&analyze(&stored)).unwrap().rows[0][1];
        assert!(
            cell.starts_with("the baseline: ") && cell.ends_with("acknowledged commits"),
            "{cell}"
        );
        let analysis = analyze(&stored);
        let first = in_one_sentence(&analysis).unwrap();
        let rest = " Unsafe: under `local` a failover can lose acknowledged commits.";
        assert!(first.contains(&format!("({price})")) && first.ends_with(rest), "{first}");
        for rows in [
            crate::report::summary(&analysis, "x").tables.remove(0).rows,
            crate::report::comparison::primary((&analysis).into()).rows,
        ] {
            let names: Vec<&str> = rows.iter().map(|cells| cells[0].as_str()).collect();
            assert_eq!(names, ["local (unsafe)", "local-aa", "remote_write", "on (unsafe)"]);
        }
    }

    #[test]
    fn a_server_that_is_configured_unsafely_is_said_to_be() {
        let power_cut = " Unsafe: under every condition a power cut can corrupt the cluster.";
        let crash = " Unsafe: under every condition a crash can lose acknowledged commits.";
        for (name, value, pinned, expected) in [
            ("data.mount", "ext4 rw,nobarrier on /srv", "on", power_cut),
            ("host.kernel", "6", "off", crash),
            ("setting.synchronous_commit", "off", "on", ""),
        ] {
            let mut stored = demo();
            for t in &mut stored.trials {
                let facts = std::sync::Arc::make_mut(&mut t.environment);
                facts.insert(name.to_owned(), value.to_owned());
                t.settings.insert("synchronous_commit".to_owned(), pinned.to_owned());
            }
            for condition in &mut stored.manifest.conditions {
                condition.changes.clear();
            }
            let first = in_one_sentence(&analyze(&stored)).unwrap();
            assert_eq!(first.split_once('.').unwrap().1, expected, "{first}");
        }
    }

    #[test]
    fn the_answer_follows_from_margin_twin_direction_and_blocks() {
        let margin = |share| {
            let mut stored = demo();
            stored.manifest.rules.matters = Some(share);
            stored
        };
        let mut short = demo();
        short
            .trials
            .retain(|t| t.place.as_ref().is_some_and(|p| p.condition != "on" || p.block <= 2));
        let excluded = "no difference above 20 %: shown (5 % risk each)";
        for (stored, at, part) in [
            (margin(0.05), 3, "for all conditions), and it matters"),
            (margin(0.2), 2, excluded),
            (with_factor("local-aa", 0.5), 1, "differs from itself: distrust this experiment"),
            (with_factor("local-aa", 0.5), 3, ": doubtful"),
            (with_factor("on", 10.0), 3, "brings at least "),
            (short, 3, "undecided: "),
        ] {
            let all = answers(&stored);
            assert!(all[at].contains(part), "{part}: {all:?}");
        }
    }

    #[test]
    fn certain_needs_three_starts_of_the_servers_and_a_quiet_machine() {
        let answer = |starts: i64, busy: bool| {
            let mut stored = demo();
            for t in &mut stored.trials {
                t.server.started = Some(i64::from(t.place.as_ref().unwrap().block) % starts);
            }
            let check = Check::warning("foreign-load", "1.4 of 2 cores", "stop it");
            stored.trials[3].checks.extend(busy.then_some(check));
            answers(&stored).remove(3)
        };
        assert!(answer(3, false).ends_with(": certain"), "{}", answer(3, false));
        for open in [answer(2, false), answer(3, true)] {
            assert!(open.ends_with(": shown (5 % risk for all conditions)"), "{open}");
        }
        let mut stored = demo();
        stored.manifest.rules.judge = vec!["remote_write".to_owned()];
        let on = answers(&stored).remove(3);
        assert!(on.ends_with(": indicative, because `judge` does not name it"), "{on}");
    }

    #[test]
    fn the_answer_on_a_failing_condition_states_its_failed_trials() {
        let told = |fails: fn(u32) -> bool, level: f64, matters: Option<f64>| {
            let mut stored = failing(level, fails);
            stored.manifest.rules.matters = matters;
            answers(&stored).remove(1)
        };
        let half = |block: u32| block % 2 == 1;
        assert_eq!(
            told(half, 1.0, Some(0.05)),
            "no difference above 5 %: shown in the trials that completed (5 % risk each); it failed in 6 of 12 \
             trials"
        );
        assert_eq!(
            told(half, 0.5, None),
            "costs about half of the commits: shown in the trials that completed; it failed in 6 of 12 trials"
        );
        let shown = "costs about half of the commits: shown (5 % risk for all conditions)";
        assert_eq!(told(|_| false, 0.5, None), shown);
    }

    /// A baseline that stalls in every fourth block; in the others the two are equal.
    #[test]
    fn a_stall_of_the_baseline_is_not_one_of_the_condition() {
        let block = |block: u32| {
            ["local", "x"].map(|name| {
                let noise = f64::from((block * 7 + u32::from(name == "x")) % 11);
                let stall = if name == "local" && block % 4 == 1 { 0.67 } else { 1.0 };
                trial(name, block, &[("commits_per_second", (1000.0 + noise) * stall)])
            })
        };
        let stored = experiment(&["local", "x"], (1..=20).flat_map(block).collect());
        let analysis = analyze(&stored);
        let x = Statement::new(&analysis, "x").short();
        assert!(!x.contains("stalls"), "{x}");
        assert!(stalls(&analysis, "local"));
    }

    proptest! {
        /// Whatever the interval, the words hold at both of its ends.
        #[test]
        fn no_size_claims_more_than_its_interval(low in 0.01f64..8.0, width in 1.0f64..3.0) {
            let high = low * width;
            prop_assume!(low > 1.0 || high < 1.0);
            let ends = if low > 1.0 { [low - 1.0, high - 1.0] } else { [1.0 - high, 1.0 - low] };
            match within(low, high) {
                Size::About(name) => {
                    let named = share_of(name);
                    prop_assert!(ends.iter().all(|e| (e - named).abs() <= 0.041));
                }
                Size::AtLeast(name) => prop_assert!(ends.iter().all(|e| *e >= share_of(name))),
                Size::AtMost(name) => prop_assert!(ends.iter().all(|e| *e <= share_of(name))),
                Size::Times(n) => prop_assert!(ends.iter().all(|e| e + 1.0 >= n)),
                Size::Unclear => {}
            }
        }
    }
}
