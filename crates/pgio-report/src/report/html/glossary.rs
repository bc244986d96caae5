//! The terms of the page, explained for people who do not read statistics every day.
//!
//! Only terms that the page uses are listed. docs/METHODOLOGY.md defines the statistics.

use maud::html;

use super::super::{format, margin};
use super::page::{Page, Section};
use crate::analysis::ALPHA;

pub(super) fn section(page: &Page<'_>) -> Section {
    let terms = terms(page);
    let body = html! {
        dl.terms { @for (term, meaning) in &terms { div { dt { (term) } dd { (meaning) } } } }
    };
    Section { id: "terms", title: "Terms", body }
}

fn terms(page: &Page<'_>) -> Vec<(String, String)> {
    let analysis = page.analysis;
    let (baseline, metric) = (&analysis.baseline, format::metric_name(&analysis.primary_metric));
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |term: &str, meaning: String| all.push((term.to_owned(), meaning));
    let at_most = (1.0 / ALPHA).round();
    add(
        "shown, certain",
        format!(
            "The interval excludes \u{201c}no change\u{201d}. Of {at_most} experiments without any real effect, \
             about one reports a difference all the same. Certain: also on three starts of the servers or more, on a \
             machine without other work."
        ),
    );
    add(
        "not decided",
        "The interval includes \u{201c}no change\u{201d}. This does not prove that there is no difference; the \
         interval says how large it can still be."
            .to_owned(),
    );
    add("condition", "A named set of changes under which the same work runs.".to_owned());
    add("baseline", format!("The condition that the others are compared with: {baseline}."));
    add(
        "change, 95 % interval",
        format!(
            "How much {metric} differs from {baseline} in the typical block, and the range in which the true \
             value is expected. All intervals of the first table are meant to hold together."
        ),
    );
    add(
        "time per commit, per transaction, ...",
        format!(
            "The mean time of one such operation under {baseline}; for other conditions, what is added to it. \
             ~ marks a difference that may be none."
        ),
    );
    add("trial", "One run of the work under one condition; the unit of all statistics.".to_owned());
    add(
        "block",
        "One pass over all conditions in random order. Trials are compared within it.".to_owned(),
    );
    add("window", "The measured span of a trial, the same for all sessions.".to_owned());
    if let Some(aa) = &analysis.aa {
        add(
            "noise floor",
            format!("What {aa}, a second copy of {baseline}, differs from it: nothing but noise."),
        );
    }
    if let Some(share) = analysis.margin {
        add(
            "matters",
            format!(
                "The effect exceeds the margin of {} that the experiment names.",
                margin::share(share)
            ),
        );
        let risk = margin::share(ALPHA);
        add(
            &format!("shown ({risk} risk each)"),
            format!(
                "Two tests exclude a difference above the margin. The risk of {risk} is that of each condition \
                 alone."
            ),
        );
    }
    if !analysis.decompositions.is_empty() {
        add(
            "SyncRep",
            "The wait of a commit until the synchronous standby has confirmed it.".to_owned(),
        );
        add("WAL flush", "The wait until the write-ahead log is safe on the disk.".to_owned());
    }
    if analysis.conditions.iter().any(|c| c.metrics.keys().any(|name| name.contains("_p9"))) {
        add(
            "p50, p95, p99",
            "Half, 95 % and 99 % of the operations are at most this slow.".to_owned(),
        );
    }
    if analysis.sweep.is_some() {
        add("knee", "The load from which more load adds more waiting than work.".to_owned());
    }
    if !page.remarks.is_empty() {
        add(
            "INVALID, warning",
            "A trial whose measurement is not sound does not count; a warning names a doubt and its remedy."
                .to_owned(),
        );
    }
    all
}
