//! The section in whole reports, from made-up experiments.

use benchmath::factorial::Design;
use pgio_report::directories::LoadedReport;
use pgio_report::report::{self, csv, html, markdown, text};
use pgio_results::change::Change;
use pgio_results::factors::DesignKind;
use pgio_results::store::StoredExperiment;
use pgio_verdict::test_support::{FACTORS, one_at_a_time, screened, screened_as, screened_in, set};

use super::section;

fn analyze(stored: &StoredExperiment) -> LoadedReport {
    LoadedReport::new("".as_ref(), stored.clone(), &[section])
}

fn text(loaded: &LoadedReport) -> String {
    text::render(&report::document(loaded.report()))
}

fn matters(blocks: u32) -> LoadedReport {
    let mut stored = screened(blocks);
    stored.manifest.rules.matters = Some(0.05);
    analyze(&stored)
}

#[test]
fn a_screening_report_begins_with_the_factors_that_matter() {
    insta::assert_snapshot!(text(&matters(6)));
}

#[test]
fn the_lead_names_the_factors_that_change_the_metric() {
    let lead = report::lead(matters(6).report());
    assert!(
        lead[0].starts_with("Of 6 factors, two change commits/s: synchronous_commit +14"),
        "{lead:?}"
    );
    assert!(
        lead[1].starts_with("commit_delay and synchronous_commit act together: commit_delay: −3")
            && lead[1].contains("% [")
            && lead[1].ends_with("(aliased with wal_compression × work_mem)."),
        "{lead:?}"
    );
    assert!(
        lead[2].starts_with(
            "By the margin of 5 %, matters: synchronous_commit, commit_delay; does not matter: "
        ),
        "{lead:?}"
    );
    let none = report::lead(analyze(&screened_as(6, 0.02, 5, |_| 1.0)).report());
    assert_eq!(none[0], "No effect on commits/s was detected for any of 6 factors.");
    let few = report::lead(matters(4).report());
    assert_eq!(
        few[0],
        "The effects on commits/s cannot be judged yet: 4 of 4 blocks have a valid trial of every \
         cell; 6 blocks are needed."
    );
    let text = text(&matters(4));
    assert!(text.contains("7 contrasts of two factors each could not be judged."), "{text}");
    assert!(!text.contains("detected"), "{text}");
}

#[test]
fn without_effects_the_report_says_why() {
    let shown = |baseline: &str| {
        let stored = one_at_a_time().with_baseline(baseline).unwrap();
        text(&analyze(&stored))
    };
    let (own, other) = (shown("all low"), shown("fsync"));
    assert!(own.contains("What matters here") && !own.contains("no effects"), "{own}");
    let note = "Note: this design has no effects against the baseline `fsync`";
    assert!(other.contains(note) && !other.contains("What matters here"), "{other}");
    assert!(other.contains("warning: factors"), "{other}");
}

#[test]
fn levels_of_a_factor_show_only_differing_values() {
    let mut stored = screened(6);
    let factors = &mut stored.manifest.design.as_mut().unwrap().factors;
    let siblings = Change::server("commit_siblings", "0");
    factors[0].low = vec![siblings.clone(), Change::server("commit_delay", "0")];
    factors[0].high = vec![siblings, Change::server("commit_delay", "5000")];
    factors[3].low.clear();
    let loaded = analyze(&stored);
    let table = &loaded.sections[0].effects[0];
    let effect = |name: &str| &table.rows.iter().find(|row| row[0] == name).unwrap()[1];
    assert_eq!(
        (effect("commit_delay").as_str(), effect("jit").as_str()),
        ("0 → 5000", "as it is → high")
    );
}

#[test]
fn every_format_names_effects_and_aliases() {
    let loaded = matters(6);
    let page = markdown::render(&report::document(loaded.report()), &report::lead(loaded.report()));
    assert!(page.contains("commit_delay × synchronous_commit"), "{page}");
    let rows = csv::render(&csv::flat(loaded.report()));
    let effect = rows.lines().find(|l| l.contains(",commit_delay × synchronous_commit,")).unwrap();
    assert!(
        effect.ends_with(",commit_delay; synchronous_commit,wal_compression × work_mem"),
        "{effect}"
    );
    assert_eq!(rows.lines().filter(|l| l.contains(" × ")).count(), 7, "all contrasts");
    let gated = report::gate(&loaded.analysis).unwrap();
    assert_eq!(gated.gate, pgio_verdict::Gate::Undecided);
    assert!(gated.why.contains("no condition with a baseline"), "{}", gated.why);
}

#[test]
fn a_factor_that_depends_on_another_names_it() {
    let design = Design::full(2).unwrap();
    let rate = |high: &[bool]| if high[0] && high[1] { 0.91 } else { 1.0 };
    let mut stored = screened_in(&design, DesignKind::Full, (20, 0.01, 9), rate);
    stored.manifest.rules.matters = Some(0.05);
    let text = text(&analyze(&stored)).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("depends on {}", FACTORS[1])), "{text}");
}

/// High, the first factor runs at 0.4 of its rate in every sixth block.
#[test]
fn a_factor_that_stalls_is_said_to_be_undecided_for_that() {
    let design = Design::full(2).unwrap();
    let mut stored = screened_in(&design, DesignKind::Full, (40, 0.01, 9), |_| 1.0);
    stored.manifest.rules.matters = Some(0.05);
    let cells = stored.manifest.design.as_ref().unwrap().cells.clone();
    for t in &mut stored.trials {
        let place = t.place.as_ref().unwrap();
        let cell = cells.iter().find(|cell| cell.condition == place.condition).unwrap();
        if place.block % 6 == 1 && cell.high.iter().any(|factor| factor == FACTORS[0]) {
            let rate = t.metrics.get_mut("commits_per_second").unwrap();
            rate.value = rate.value.map(|value| 0.4 * value);
        }
    }
    let text = text(&analyze(&stored)).split_whitespace().collect::<Vec<_>>().join(" ");
    let said = format!("{}: undecided, because some trials stall", FACTORS[0]);
    assert!(text.contains(&said), "{text}");
}

#[test]
fn each_cell_of_a_design_has_a_folded_table() {
    let mut stored = screened(6);
    for trial in &mut stored.trials {
        set(trial, "commit_latency_p50", 0.001);
        set(trial, "wait_share_flush", 0.7);
    }
    let loaded = analyze(&stored);
    let page = html::render(&html::Source {
        stored: &loaded.stored,
        report: loaded.report(),
        series: &vec![None; stored.trials.len()],
        experiment: "",
    });
    assert_eq!(page.matches("<details>").count(), 16);
    assert!(page.contains("<summary>cell 2: commit_delay, work_mem high</summary>"), "{page}");
    assert_eq!(page.matches("Sessions' time: WAL flush 70\u{a0}%.").count(), 16);
}
