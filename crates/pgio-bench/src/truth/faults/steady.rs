//! Faults against steadiness, inside a window and over the blocks.

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::{InWindow, execute};
use super::server::{disturbed, slob, text};
use crate::truth::server::{load, private};
use pgio::cli::exit::{Failure, Outcome};
use pgio::experiment::event::Event;
use pgio::pg::private::PrivateCluster;
use pgio_report::analysis::Analysis;

/// Long enough to distinguish a step from the noise of a busy machine, whose seconds resemble each other.
const WINDOW: &str =
    "blocks = 1\nduration = \"60s\"\nburn_in = false\nprimary = \"updates_per_second\"";
const BLOCKS: &str = "blocks = 6\nduration = \"1s\"\nprimary = \"updates_per_second\"";

pub(super) const STEP_INSIDE: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "from half of the window on, each row takes eight milliseconds to update instead of two",
    expected: Expected::warning("not-steady", Some("disturbed")),
    run: |case| slowed(case, &[(30.0, 8)]),
};

pub(super) const EPISODE_INSIDE: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "for a third of the window, each row takes eight milliseconds to update instead of two",
    expected: Expected::warning("not-steady", Some("disturbed")),
    run: |case| slowed(case, &[(20.0, 8), (40.0, 2)]),
};

pub(super) const SLOWER_BLOCKS: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "each row takes a millisecond more to update with every block",
    expected: Expected::warning("trial-trend", None),
    run: |case| {
        let cluster = slow_table(case, 1)?;
        let dsn = cluster.primary_conninfo();
        let text = text(case, &cluster, BLOCKS, &slob("8M", 1, 100), &["a", "b"]);
        let mut slowed = Ok(());
        let analysis = case.analysis(&text, &mut |event| {
            if let (Event::Begins { planned, .. }, Ok(())) = (event, &slowed) {
                slowed = slow(&dsn, planned.iter().map(|p| p.block).max().unwrap_or(1) + 1);
            }
        });
        slowed.and(analysis)
    },
};

/// Changes the time of an update at these seconds of the window. A sleep costs no processor time, so that the
/// rate depends on the fault and hardly on other work of the machine.
fn slowed(case: &Case<'_>, steps: &[(f64, u32)]) -> Result<Analysis, Failure> {
    let cluster = slow_table(case, 2)?;
    let dsn = cluster.primary_conninfo();
    let text = text(case, &cluster, WINDOW, &slob("8M", 1, 100), &["disturbed"]);
    let fault = steps.iter().fold(InWindow::of("disturbed"), |fault, (at, milliseconds)| {
        fault.at(*at, || slow(&dsn, *milliseconds))
    });
    disturbed(case, &text, fault)
}

/// Starts a server with a table of which each row takes this long to update.
fn slow_table(case: &Case<'_>, milliseconds: u32) -> Result<PrivateCluster, Failure> {
    let cluster = private(case.round.pg, None, &[])?;
    load(&cluster, "8M")?;
    let dsn = cluster.primary_conninfo();
    slow(&dsn, milliseconds)?;
    let trigger =
        "CREATE TRIGGER slow BEFORE UPDATE ON pgio1 FOR EACH ROW EXECUTE FUNCTION public.slow()";
    execute(&dsn, trigger)?;
    Ok(cluster)
}

fn slow(dsn: &str, milliseconds: u32) -> Outcome {
    let function = format!(
        "CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep({milliseconds} * 0.001); RETURN NEW; END'"
    );
    execute(dsn, &function)
}
