//! Faults against steadiness, inside a window and over the blocks.

use std::thread::{self, JoinHandle};

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::{InWindow, connect, execute, failed};
use super::server::{disturbed, slob, text};
use crate::truth::server::{load, private};
use pgio::cli::exit::{Failure, Outcome};
use pgio::experiment::event::Event;
use pgio_report::analysis::Analysis;

/// Long enough to distinguish a step from the noise of a busy machine, whose seconds resemble each other.
const WINDOW: &str = "blocks = 1\nduration = \"60s\"\nburn_in = false";

pub(super) const STEP_INSIDE: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "from half of the window on, other sessions of the server compute on all cores",
    expected: Expected::warning("not-steady", Some("disturbed")),
    // Until after the window's end.
    run: |case| computing(case, 30.0, 34),
};

pub(super) const EPISODE_INSIDE: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "other sessions of the server compute on all cores for a third of the window",
    expected: Expected::warning("not-steady", Some("disturbed")),
    run: |case| computing(case, 20.0, 20),
};

pub(super) const SLOWER_BLOCKS: Fault = Fault {
    rule: 16,
    needs: Needs::Nothing,
    what: "each row takes a millisecond more to update with every block",
    expected: Expected::warning("trial-trend", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        load(&cluster, "8M")?;
        let dsn = cluster.primary_conninfo();
        let slow = |milliseconds: u32| {
            let function = format!(
                "CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN PERFORM pg_sleep({milliseconds} * 0.001); RETURN NEW; END'"
            );
            execute(&dsn, &function)
        };
        slow(1)?;
        execute(
            &dsn,
            "CREATE TRIGGER slow BEFORE UPDATE ON pgio1 FOR EACH ROW EXECUTE FUNCTION public.slow()",
        )?;
        let keys = "blocks = 6\nduration = \"1s\"\nprimary = \"updates_per_second\"";
        let text = text(case, &cluster, keys, &slob("8M", 1, 100), &["a", "b"]);
        let mut slowed = Ok(());
        let analysis = case.analysis(&text, &mut |event| {
            if let (Event::Begins { planned, .. }, Ok(())) = (event, &slowed) {
                slowed = slow(planned.iter().map(|p| p.block).max().unwrap_or(1) + 1);
            }
        });
        slowed.and(analysis)
    },
};

/// Sessions compute from this second of the window on, for so many seconds. Three for each core leave the
/// workload's session about a quarter of one.
fn computing(case: &Case<'_>, from: f64, seconds: u32) -> Result<Analysis, Failure> {
    let cluster = private(case.round.pg, None, &[("max_parallel_workers_per_gather", "0")])?;
    load(&cluster, "32M")?;
    let dsn = cluster.primary_conninfo();
    let text = text(case, &cluster, WINDOW, &slob("32M", 8, 0), &["disturbed"]);
    let mut sessions = Vec::new();
    let fault = InWindow::of("disturbed").at(from, || {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        sessions.extend((0..3 * cores).map(|_| compute(&dsn, seconds)));
        Ok(())
    });
    let analysis = disturbed(case, &text, fault);
    for session in sessions {
        session.join().map_err(|_| failed(anyhow::anyhow!("a session ended")))??;
    }
    analysis
}

/// A session that uses a core for this many seconds.
fn compute(dsn: &str, seconds: u32) -> JoinHandle<Outcome> {
    let dsn = dsn.to_owned();
    thread::spawn(move || {
        let sql = format!(
            "DO $$ BEGIN WHILE clock_timestamp() < now() + interval '{seconds} s' LOOP END LOOP; END $$"
        );
        connect(&dsn)?.batch_execute(&sql).map_err(failed)
    })
}
