//! The report of a demo: one table, and what was observed, before the verdict in sentences.
//!
//! Its reader has chosen neither the windows nor the settings, so what to do about a warning is left to the
//! whole report (`comparison`), which has the remedies. Stalls stand among the warnings: in windows of a
//! second they are mostly the machine's, and the verdict names those of its condition.

use super::table::Document;
use super::{comparison, outcomes};
use crate::analysis::Analysis;

pub fn brief(analysis: &Analysis) -> Document {
    let mut analysis = analysis.clone();
    analysis.checks.iter_mut().for_each(|finding| finding.remedy.clear());
    let mut document = comparison::document(&analysis);
    document.tables.truncate(1);
    document.headline = outcomes::without_stalls(&analysis);
    document.remarks = comparison::remarks_of(&analysis, |_| true);
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{experiment, trial};
    use crate::analysis::{Finding, STALLS, analyze};
    use crate::report::{document, text};
    use pgio_results::CheckVerdict;

    fn finding(id: &str, condition: &str) -> Finding {
        Finding {
            id: id.to_owned(),
            verdict: CheckVerdict::Warning,
            condition: Some(condition.to_owned()),
            trial: None,
            message: format!("of `{condition}`"),
            remedy: "use windows of at least 25 s".to_owned(),
        }
    }

    fn analysis() -> Analysis {
        let block = |block: u32| {
            let rate = 1000.0 + f64::from(block);
            ["local", "local (A/A)", "on"].map(|n| trial(n, block, &[("commits_per_second", rate)]))
        };
        let trials = (1..=6).flat_map(block).collect();
        let mut stored = experiment(&["local", "local (A/A)", "on"], trials);
        stored.manifest.aa = Some("local (A/A)".to_owned());
        let mut analysis = analyze(&stored);
        analysis.checks = vec![
            finding("telemetry-cost", "on"),
            finding(STALLS, "on"),
            finding(STALLS, "local (A/A)"),
        ];
        analysis
    }

    #[test]
    fn a_brief_report_omits_advice_that_its_reader_cannot_follow() {
        let analysis = analysis();
        assert!(text::render(&document(&analysis)).contains("windows of at least 25 s"));
        let text = text::render(&brief(&analysis));
        assert!(text.contains("telemetry-cost (on): of `on`"), "{text}");
        assert!(!text.contains("25 s"), "{text}");
    }

    #[test]
    fn stalls_follow_the_table_and_those_of_the_twin_do_so_everywhere() {
        let analysis = analysis();
        assert_eq!(document(&analysis).headline, ["Stalls: of `on`."]);
        let whole = text::render(&document(&analysis));
        assert!(whole.contains("warning: stalls (local (A/A)): of `local (A/A)`; use"), "{whole}");
        let brief = brief(&analysis);
        assert_eq!(brief.headline, [""; 0]);
        let text = text::render(&brief);
        assert!(text.contains("stalls (2 conditions: on; local (A/A))"), "{text}");
    }
}
