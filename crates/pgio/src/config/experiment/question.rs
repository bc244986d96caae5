//! Of `[experiment]`: which comparisons answer the question, and the effect that is planned for.

use super::rules::share;
use super::section::Section;
use crate::config::error::{ConfigError, nearest};

/// Declared before the first trial, or it is no declaration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    /// The conditions whose primary comparison is judged; empty: all of them, as one family. One
    /// alone is judged by its own test.
    pub judge: Vec<String>,
    /// Metrics that are judged beside the primary one, in the same family.
    pub also_judge: Vec<String>,
    /// Of a ratio: 0.05 is 5 %. The report says how many blocks detect it.
    pub effect: Option<f64>,
}

pub(super) fn parse(head: &Section<'_>, conditions: &[&str]) -> Result<Question, ConfigError> {
    let judge = head.strings("judge")?.unwrap_or_default();
    if head.has("judge") && judge.is_empty() {
        return Err(head.error("judge", "names no condition: name one, or leave it out for all"));
    }
    if let Some(unknown) = judge.iter().find(|name| !conditions.contains(&name.as_str())) {
        let nearest = nearest(unknown, conditions);
        let message = format!("`{unknown}` is not a condition beside the baseline; {nearest}");
        return Err(head.error("judge", message));
    }
    let also_judge = head.strings("also_judge")?.unwrap_or_default();
    let twice = |all: &[String]| {
        all.iter().enumerate().find(|(i, name)| all[..*i].contains(name)).map(|(_, n)| n.clone())
    };
    for (key, all) in [("judge", &judge), ("also_judge", &also_judge)] {
        if let Some(name) = twice(all) {
            return Err(head.error(key, format!("names `{name}` twice")));
        }
    }
    let rule = "must be a share from 0.1% to below 100% such as \"5%\"";
    Ok(Question { judge, also_judge, effect: share(head, "effect", rule)? })
}
