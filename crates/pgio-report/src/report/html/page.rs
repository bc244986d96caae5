//! The data that the sections of the page share, and the frame of every page: head, landmarks, styles and scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use pgio_results::store::StoredExperiment;
use pgio_results::telemetry::Series;
use pgio_results::{Trial, TrialPosition};

use super::super::{format, margin};
use super::svg::LineStyles;
use crate::report::section::{self as report, Report};
use crate::report::table::Remark;
use pgio_verdict::{ALPHA, Analysis, TrialStatus};

/// The source, with everything that more than one section needs.
pub(super) struct Page<'a> {
    pub(super) stored: &'a StoredExperiment,
    pub(super) analysis: &'a Analysis,
    pub(super) sections: &'a [report::Section],
    pub(super) series: &'a [Option<Series>],
    pub(super) experiment: &'a str,
    pub(super) remarks: Vec<Remark>,
    pub(super) statuses: Vec<TrialStatus>,
    pub(super) looks: LineStyles,
}

impl<'a> Page<'a> {
    pub(super) fn report(&self) -> Report<'a> {
        Report { analysis: self.analysis, sections: self.sections }
    }

    /// Trials of a condition that count.
    pub(super) fn counted(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        self.trials(condition).filter(|(line, _)| self.statuses[line - 1] == TrialStatus::Counts)
    }

    /// All trials of a condition at the middle point, with their lines in trials.jsonl, without burn-in
    /// trials.
    pub(super) fn trials(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        let middle = self.stored.manifest.middle();
        let here = move |p: &TrialPosition| {
            p.condition == condition && p.point == *middle && !p.is_burn_in()
        };
        let is_here = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        (1..).zip(&stored.trials).filter(move |(_, t)| is_here(t))
    }

    /// The samples of the trial on this line, if there are any. Those of a woven window belong to no trial: they are
    /// of all its conditions, in seconds of the whole window, and stored with the first of its trials.
    pub(super) fn samples(&self, line: usize) -> Option<&'a Series> {
        let own = self.stored.trials.get(line - 1)?.woven.is_none();
        self.series.get(line - 1)?.as_ref().filter(|_| own)
    }

    /// All trials of a condition at any point, without burn-in trials.
    pub(super) fn trials_anywhere(&self, condition: &str) -> impl Iterator<Item = &'a Trial> {
        let here = move |p: &TrialPosition| p.condition == condition && !p.is_burn_in();
        let is_here = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        stored.trials.iter().filter(is_here)
    }

    /// Number of trials, without burn-in trials.
    pub(super) fn count(&self) -> usize {
        self.statuses.iter().filter(|s| **s != TrialStatus::BurnIn).count()
    }

    /// Whether charts show trials that do not count.
    pub(super) fn has_left_out(&self) -> bool {
        self.statuses.iter().any(|s| !matches!(s, TrialStatus::Counts | TrialStatus::BurnIn))
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = &'a str> {
        self.stored.manifest.conditions.iter().map(|c| c.name.as_str())
    }
}

/// A part of the page with its own heading.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) body: Markup,
}

pub(super) struct Shell<'a> {
    pub(super) title: &'a str,
    pub(super) header: Markup,
    pub(super) sections: &'a [Section],
    /// The first of them, which are printed before the appendix.
    pub(super) summary: usize,
    pub(super) footer: Markup,
    /// Whether it has charts that zoom.
    pub(super) zooms: bool,
}

/// Content security policy: the browser must not load anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:";
/// An empty icon, so that the browser requests none from a server.
const NO_ICON: &str = "data:,";

/// The styles and scripts of a page with charts that zoom, each as it stands in its element.
pub const STYLES: [&str; 2] =
    [include_str!("../../../assets/uplot/uPlot.min.css"), include_str!("page.css")];
pub const SCRIPTS: [&str; 2] =
    [include_str!("../../../assets/uplot/uPlot.iife.min.js"), include_str!("page.js")];

/// maud escapes what HTML would obey; the rest that a browser would, such as a turn of the direction of
/// writing, is spelled out in the page as a whole. Our own scripts and styles hold none of it.
pub(super) fn page(shell: &Shell<'_>) -> String {
    printable::page(&draw(shell).into_string()).into_owned()
}

/// A page without anything of one experiment in its header and footer.
pub(super) fn simple(title: &str, header: Markup, sections: &[Section], zooms: bool) -> String {
    let footer = html! { p { "Report by pgio " (env!("CARGO_PKG_VERSION")) "." } };
    page(&Shell { title, header, sections, summary: sections.len(), footer, zooms })
}

/// The page that stands in for a report until there is one; it has the same styles and scripts.
pub fn empty(title: &str) -> String {
    let header = html! {
        p.kind { "pgio experiment" } h1 { (title) } p { "The report appears between two trials." }
    };
    simple(title, header, &[], true)
}

/// A page as a server sends it, with this at the end of its head and at the top of its body. What it may load is then
/// for the server to say.
pub fn served(page: &str, head: &str, top: &str) -> String {
    let begins = format!("{head}</head><body>{top}");
    page.replacen(&policy().into_string(), "", 1).replacen("</head><body>", &begins, 1)
}

fn policy() -> Markup {
    html! { meta http-equiv="Content-Security-Policy" content=(POLICY); }
}

fn draw(shell: &Shell<'_>) -> Markup {
    let sections = shell.sections;
    let [charts_style, style] = STYLES;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                (policy())
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(format!("pgio {}", env!("CARGO_PKG_VERSION")));
                title { (shell.title) " – pgio" }
                link rel="icon" href=(NO_ICON);
                @if shell.zooms { style { (PreEscaped(charts_style)) } }
                style { (PreEscaped(style)) }
            }
            body {
                a.skip href="#main" { "Skip to the report" }
                header { (shell.header) }
                @if sections.len() > 1 {
                    nav aria-label="Sections" {
                        ul { @for s in sections { li { a href={ "#" (s.id) } { (s.title) } } } }
                    }
                }
                main #main tabindex="-1" {
                    @for (at, s) in sections.iter().enumerate() {
                        @if at == shell.summary { p.appendix aria-hidden="true" { "Appendix" } }
                        section aria-labelledby={ (s.id) } {
                            h2 #(s.id) { (s.title) }
                            (s.body)
                        }
                    }
                }
                footer { (shell.footer) }
                @if shell.zooms { @for script in SCRIPTS { script { (PreEscaped(script)) } } }
            }
        }
    }
}

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
    for (term, meaning) in page.sections.iter().flat_map(|section| &section.terms) {
        add(term, (*meaning).to_owned());
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
