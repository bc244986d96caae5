//! Faults against steadiness, inside a window and over the blocks.

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::{InWindow, execute};
use super::server::{slob, text};
use crate::truth::server::{load, private};
use pgio::cli::exit::{Failure, Outcome};
use pgio::experiment::event::Event;
use pgio::pg::private::PrivateCluster;
use pgio_report::analysis::Analysis;

/// Long enough to distinguish a step from the noise of a busy machine, whose seconds resemble each other.
const WINDOW: &str =
    "blocks = 1\nduration = \"60s\"\nburn_in = false\nprimary = \"updates_per_second\"";
const BLOCKS: &str = "blocks = 6\nduration = \"1s\"\nprimary = \"updates_per_second\"";
const TEN_BLOCKS: &str = "blocks = 10\nduration = \"1s\"\nprimary = \"updates_per_second\"";
const TWENTY_BLOCKS: &str = "blocks = 20\nduration = \"500ms\"\nprimary = \"updates_per_second\"";

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

/// Two milliseconds, because where timers are slow, sleeps of three and of four take equally long.
pub(super) const SLOWER_BLOCKS: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "each row takes two milliseconds more to update with every block",
    expected: Expected::warning("trial-trend", None),
    run: |case| by_block(case, BLOCKS, |block| 2 * block),
};

/// The level blocks of the start are no evidence of a trend.
pub(super) const LATE_TREND: Fault = Fault {
    what: "from the fifth block of ten on, each row takes two milliseconds more with every block",
    run: |case| by_block(case, TEN_BLOCKS, |block| 2 + 2 * block.saturating_sub(4)),
    ..SLOWER_BLOCKS
};

/// A credit that is used up: a step, which a test for a trend finds if enough blocks lie on both sides.
pub(super) const LATE_CLIFF: Fault = Fault {
    what: "from the 13th block of twenty on, each row takes twenty milliseconds to update instead of two",
    run: |case| by_block(case, TWENTY_BLOCKS, |block| if block > 12 { 20 } else { 2 }),
    ..SLOWER_BLOCKS
};

pub(super) const LEVEL_BLOCKS: Fault = Fault {
    what: "the time of an update changes from trial to trial, in no order of the blocks",
    run: |case| {
        let mut turn = 0;
        by_block(case, TEN_BLOCKS, |_| {
            turn += 1;
            2 + turn % 2
        })
    },
    ..SLOWER_BLOCKS
};

/// Sets the milliseconds that a row takes before each trial, by its block.
fn by_block(
    case: &Case<'_>,
    keys: &str,
    mut milliseconds: impl FnMut(u32) -> u32,
) -> Result<Analysis, Failure> {
    let cluster = slow_table(case, 2)?;
    let dsn = cluster.primary_conninfo();
    let text = text(case, &cluster, keys, &slob("8M", 1, 100), &["a", "b"]);
    let mut slowed = Ok(());
    let analysis = case.analysis(&text, &mut |event| {
        if let (Event::Begins { planned, .. }, Ok(())) = (event, &slowed) {
            let block = planned.iter().map(|p| p.block).max().unwrap_or(1);
            slowed = slow(&dsn, milliseconds(block)).and_then(|()| set_trigger(&dsn));
        }
    });
    slowed.and(analysis)
}

/// Changes the time of an update at these seconds of the window. A sleep costs no processor time, so that the
/// rate depends on the fault and hardly on other work of the machine.
fn slowed(case: &Case<'_>, steps: &[(f64, u32)]) -> Result<Analysis, Failure> {
    let cluster = slow_table(case, 2)?;
    let dsn = cluster.primary_conninfo();
    let text = text(case, &cluster, WINDOW, &slob("8M", 1, 100), &["disturbed"]);
    let mut fault = steps.iter().fold(InWindow::of("disturbed"), |fault, (at, milliseconds)| {
        fault.at(*at, || slow(&dsn, *milliseconds))
    });
    let mut set = Ok(());
    let analysis = case.analysis(&text, &mut |event| {
        if let Event::Begins { .. } = event {
            set = set_trigger(&dsn);
        }
        fault.observe(event);
    })?;
    set.and(fault.injected())?;
    Ok(analysis)
}

/// Starts a server with a table of which each row takes this long to update, once [`set_trigger`] was called.
fn slow_table(case: &Case<'_>, milliseconds: u32) -> Result<PrivateCluster, Failure> {
    let cluster = private(case.round.pg, None, &[])?;
    load(&cluster, "8M")?;
    let dsn = cluster.primary_conninfo();
    slow(&dsn, milliseconds)?;
    Ok(cluster)
}

/// Not before the first trial, since pgio refuses tables with triggers.
fn set_trigger(dsn: &str) -> Outcome {
    let trigger = "DROP TRIGGER IF EXISTS slow ON pgio1; \
         CREATE TRIGGER slow BEFORE UPDATE ON pgio1 FOR EACH ROW EXECUTE FUNCTION public.slow()";
    execute(dsn, trigger)
}

fn slow(dsn: &str, milliseconds: u32) -> Outcome {
    let function = format!(
        "CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep({milliseconds} * 0.001); RETURN NEW; END'"
    );
    execute(dsn, &function)
}
