//! The lead of a report in sentences, before the first table: the noise and the knees of a sweep; in a factorial design,
//! which factors matter.

use super::{format, screening, sentence, sweep};
use crate::analysis::Analysis;

pub fn lead(analysis: &Analysis) -> Vec<String> {
    if let Some(screened) = screening::factorial(analysis) {
        return screening::lead(analysis, screened);
    }
    let trust = std::iter::once(sentence::trust(analysis));
    trust.chain(woven(analysis)).chain(sweep::knees(analysis)).collect()
}

/// How large a carry-over between woven conditions could have been seen: that none was found is no evidence of less.
pub(super) fn woven(analysis: &Analysis) -> Option<String> {
    let woven = analysis.woven?;
    let excluded = match woven.excluded {
        Some(share) => {
            format!("exclude only a carry-over above {} between conditions", format::size(share))
        }
        None => "are too few to exclude any carry-over between conditions".to_owned(),
    };
    Some(format!("Woven slices of {} {excluded}.", format::seconds(woven.slice_seconds)))
}
