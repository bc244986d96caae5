//! Keys of `[experiment]` that declare the question: the comparisons to judge, the margin beyond which
//! an effect matters, and the effect to plan for.

use benchmath::margin::LARGEST_SHARE;

use super::section::Section;
use crate::config::error::{ConfigError, nearest};

/// The question that the experiment answers, fixed before the first trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    /// Conditions whose primary comparison is judged; empty: all of them, as one family. A single
    /// condition is judged by its own test.
    pub judge: Vec<String>,
    /// Metrics that are judged in addition to the primary one, in the same family.
    pub also_judge: Vec<String>,
    /// The effect as a fraction: 0.05 is 5 %. The report shows how many blocks detect it.
    pub effect: Option<f64>,
    /// The margin, as a fraction: the report decides whether an effect exceeds it.
    pub matters: Option<f64>,
}

pub(super) fn parse(head: &Section<'_>, conditions: &[&str]) -> Result<Question, ConfigError> {
    let judge = head.strings("judge")?.unwrap_or_default();
    if head.has("judge") && judge.is_empty() {
        return Err(
            head.error("judge", "names no condition; name one, or remove judge to judge all")
        );
    }
    if let Some(unknown) = judge.iter().find(|name| !conditions.contains(&name.as_str())) {
        let nearest = nearest(unknown, conditions);
        let message = format!("`{unknown}` is not a condition other than the baseline; {nearest}");
        return Err(head.error("judge", message));
    }
    let also_judge = head.strings("also_judge")?.unwrap_or_default();
    let duplicate = |all: &[String]| {
        all.iter().enumerate().find(|(i, name)| all[..*i].contains(name)).map(|(_, n)| n.clone())
    };
    for (key, all) in [("judge", &judge), ("also_judge", &also_judge)] {
        if let Some(name) = duplicate(all) {
            return Err(head.error(key, format!("names `{name}` twice")));
        }
    }
    let rule = "must be a share from 0.1% to below 100% such as \"5%\"";
    let effect = head.share("effect", rule)?;
    let rule = "must be a share from 0.1% to 50% such as \"5%\"";
    let matters = head.share("matters", rule)?;
    if let Some(share) = matters.filter(|share| *share > LARGEST_SHARE) {
        return Err(head.error("matters", format!("{rule}, not `{}%`", share * 100.0)));
    }
    Ok(Question { judge, also_judge, effect, matters })
}
