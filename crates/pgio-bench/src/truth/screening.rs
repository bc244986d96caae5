//! Ten factors of which two do something, and only together. Each commit waits for `commit_delay` before it
//! flushes, but only if it waits for the flush at all: with `synchronous_commit = off` the delay costs
//! nothing. The other eight are settings of the planner, which an INSERT of one row does not use. Both
//! effects and their interaction must be found in every experiment; a verdict on anything else accuses an
//! inert setting. Telemetry is off, as in `commit_delay`.

use super::rounds::{Plan, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio_verdict::effects::{Effect, FactorEffects, LevelEffect};
use pgio_verdict::{Analysis, Verdict};

const DELAY: &str = "commit_delay";
const SYNC: &str = "synchronous_commit";
/// Settings that do nothing here, with two values each.
const INERT_SETTINGS: [(&str, &str, &str); 8] = [
    ("enable_hashjoin", "\"on\"", "\"off\""),
    ("enable_mergejoin", "\"on\"", "\"off\""),
    ("enable_hashagg", "\"on\"", "\"off\""),
    ("geqo", "\"on\"", "\"off\""),
    ("from_collapse_limit", "8", "12"),
    ("join_collapse_limit", "8", "12"),
    ("default_statistics_target", "100", "200"),
    ("gin_fuzzy_search_limit", "0", "1000"),
];
/// The delay costs more than this share where commits wait, and no such cost is shown where they do not.
const MATTERS: f64 = 0.05;
/// One experiment in this many may accuse an inert setting.
const EXPERIMENTS_PER_ACCUSATION: usize = 20;

fn text(plan: &Plan) -> String {
    let mut text = format!(
        "{}matters = \"{}%\"\ntelemetry = \"0\"\n\n[target]\nprivate = true\n\n[workload]\n\
         kind = \"commit\"\nsessions = 1\n\n[[factor]]\nname = \"{DELAY}\"\n\
         low = {{ postgres = {{ commit_delay = 0, commit_siblings = 0 }} }}\n\
         high = {{ postgres = {{ commit_delay = 5000, commit_siblings = 0 }} }}\n",
        plan.head("screening", false),
        MATTERS * 100.0
    );
    for (name, low, high) in [(SYNC, "\"on\"", "\"off\"")].into_iter().chain(INERT_SETTINGS) {
        text += &format!("\n[[factor]]\nname = \"{name}\"\nsetting = [{low}, {high}]\n");
    }
    text
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let text = text(plan);
    output::line("experiment  found  delay while on  delay while off  smallest  accused");
    let mut all = Vec::new();
    for number in 1..=plan.experiments {
        let round = plan.round(&format!("{number:03}"), scratch.path(), &stop)?;
        let judged = judge(&round.analysis(&text)?)?;
        output::line(&judged.line(number));
        all.push(judged);
    }
    sum_up(&all)
}

/// The answer of one experiment.
#[derive(Debug)]
struct ScreeningVerdict {
    found: bool,
    /// The effect of the delay at both levels of synchronous_commit.
    given: Option<[LevelEffect; 2]>,
    smallest: f64,
    /// Effects that do not exist.
    accused: Vec<String>,
}

fn judge(analysis: &Analysis) -> Result<ScreeningVerdict, Failure> {
    let missing = || Failure::message(FAILED, "the analysis has no effects of factors");
    Ok(judge_effects(analysis.factor_effects.as_ref().ok_or_else(missing)?))
}

fn judge_effects(screened: &FactorEffects) -> ScreeningVerdict {
    let named = |factors: &[&str]| screened.effects.iter().find(|e| e.factors == factors);
    let with = |name: &str, verdict: Verdict| {
        named(&[name]).is_some_and(|e| e.comparison.verdict == verdict)
    };
    let both = named(&[DELAY, SYNC]).filter(|e| e.comparison.verdict.is_decided());
    let given = both.and_then(|e| e.conditional.as_ref()).filter(|c| c.factor == DELAY);
    let given = given.map(|c| [c.low, c.high]);
    let only_while_on = given.is_some_and(|[on, off]| {
        let costs = |at: LevelEffect| at.interval.high.is_some_and(|high| high < 1.0 - MATTERS);
        costs(on) && !costs(off)
    });
    let accuses = |e: &&Effect| e.comparison.verdict.is_decided() && !is_planted(e);
    ScreeningVerdict {
        found: only_while_on && with(DELAY, Verdict::Slower) && with(SYNC, Verdict::Faster),
        given,
        smallest: screened.minimum_detectable_effect.unwrap_or(f64::NAN),
        accused: (screened.effects.iter().filter(accuses))
            .map(|e| e.comparison.condition.clone())
            .collect(),
    }
}

/// Whether this effect exists: a planted factor's, or their interaction under any of its names.
fn is_planted(effect: &Effect) -> bool {
    let planted = |name: &String| name == DELAY || name == SYNC;
    let aliased = effect.aliases.iter().any(|pair| pair.iter().all(planted));
    effect.factors.iter().all(planted) || aliased
}

impl ScreeningVerdict {
    fn line(&self, number: usize) -> String {
        let found = if self.found { "yes" } else { "NO" };
        let at = |n: usize| self.given.and_then(|given| given[n].ratio).unwrap_or(f64::NAN);
        let accused =
            if self.accused.is_empty() { "none".to_owned() } else { self.accused.join(", ") };
        format!(
            "{number:10}  {found:5}  {:14.3}  {:15.3}  {:7.1} %  {accused}",
            at(0),
            at(1),
            self.smallest * 100.0
        )
    }
}

fn sum_up(all: &[ScreeningVerdict]) -> Outcome {
    let found = all.iter().filter(|j| j.found).count();
    let accused = all.iter().filter(|j| !j.accused.is_empty()).count();
    let allowed = all.len().div_ceil(EXPERIMENTS_PER_ACCUSATION);
    let text = format!(
        "planted effects found in {found} of {} experiments, all are required; inert settings accused in \
         {accused}, {allowed} allowed",
        all.len()
    );
    if found < all.len() || accused > allowed {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{screened, screened_as};

    #[test]
    fn the_planted_effect_must_be_found_and_any_other_is_a_false_alarm() {
        let judged = |stored| judge(&analyze(&stored)).unwrap();
        let right = judged(screened(6));
        assert!(right.accused.is_empty(), "{right:?}");
        // There the delay matters while synchronous_commit is low, and here that is on.
        assert!(right.found, "{right:?}");
        assert!(sum_up(&[right]).is_ok());
        let nothing = judged(screened_as(6, 0.02, 5, |_| 1.0));
        assert!(!nothing.found && nothing.accused.is_empty());
        assert!(sum_up(&[nothing]).is_err());
        let jit = judged(screened_as(6, 0.02, 5, |high| if high[3] { 1.2 } else { 1.0 }));
        assert_eq!(jit.accused, ["jit"]);
    }
}
