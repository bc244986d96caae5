//! The lead of a report: the verdict in sentences, before the first table.
//!
//! It has the largest effect, whether to trust it, the added commit latency, every other condition, and
//! the knees of a sweep; in a factorial design, which factors matter. `sentence` writes the sentences.

use super::sentence::{sentence, three_sentences};
use super::{screening, sweep};
use crate::analysis::Analysis;
use crate::analysis::sweep::COMMIT_MEAN;

pub fn lead(analysis: &Analysis) -> Vec<String> {
    if let Some(screened) = screening::factorial(analysis) {
        return screening::lead(analysis, screened);
    }
    let [effect, trust, commit] = three_sentences(analysis);
    let commits = analysis.conditions.iter().any(|c| c.metrics.contains_key(COMMIT_MEAN));
    let others = analysis
        .conditions
        .iter()
        .filter(|c| c.name != analysis.baseline && !analysis.is_aa(&c.name))
        .map(|c| sentence(analysis, &c.name))
        .filter(|sentence| *sentence != effect);
    let others: Vec<String> = others.collect();
    let mut all = vec![effect, trust];
    all.extend(commits.then_some(commit));
    all.extend(others);
    all.extend(sweep::knees(analysis));
    all
}
