//! Renders the report of what is stored, in a thread of its own at the lowest priority.
//!
//! [`Renderer::render`] waits for it, so that it ends before the next window opens; only a report that takes
//! very long goes on beside the measurement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::priority;
use super::state::{Narrowing, Report, Shared, Width};
use crate::host::stop::Stop;
use crate::pg::words;
use pgio_report::analysis::{self, Analysis, Comparison};
use pgio_report::directories;
use pgio_results::store::{StoreError, StoredExperiment};

/// Blocks whose intervals are computed for one report, the last ones first: an analysis each.
const BLOCKS_AT_ONCE: usize = 12;

/// Once a stop is requested, the run waits no longer for a report: the user waits for its end.
const STOPPED_TIMEOUT: Duration = Duration::from_millis(600);
/// How often a wait looks for a stop.
const POLL: Duration = Duration::from_millis(50);

struct Order {
    workload: String,
    dir: PathBuf,
}

#[derive(Debug)]
pub(super) struct Renderer {
    orders: Sender<Order>,
    finished: Receiver<()>,
    /// Whether an order is being carried out.
    busy: bool,
    stop: Stop,
}

impl Renderer {
    pub(super) fn start(shared: Arc<Shared>, stop: Stop) -> std::io::Result<Renderer> {
        let (orders, received) = channel();
        let (sender, finished) = channel();
        let work = move || {
            priority::lower();
            render_orders(&received, &sender, &shared);
        };
        // It ends when the orders do.
        thread::Builder::new().name("pgio-report".to_owned()).spawn(work)?;
        Ok(Renderer { orders, finished, busy: false, stop })
    }

    /// Waits for a report that still takes its time, so that the last one can follow it. After a stop it waits for
    /// none.
    pub(super) fn wait(&mut self, timeout: Duration) {
        if self.busy {
            self.await_report(timeout, Duration::ZERO);
        }
    }

    /// Renders what is stored in this directory. Returns whether it is under way or done; not if the report
    /// before it still takes its time.
    pub(super) fn render(&mut self, workload: &str, dir: &Path, timeout: Duration) -> bool {
        if self.busy {
            self.busy = self.finished.try_recv().is_err();
        }
        let order = Order { workload: workload.to_owned(), dir: dir.to_owned() };
        if self.busy || self.orders.send(order).is_err() {
            return false;
        }
        self.await_report(timeout, STOPPED_TIMEOUT);
        true
    }

    /// Waits until the order is carried out, no longer than `timeout`; after a stop, no longer than `after_stop`.
    fn await_report(&mut self, timeout: Duration, after_stop: Duration) {
        let begun = Instant::now();
        loop {
            let limit = if self.stop.requested() { timeout.min(after_stop) } else { timeout };
            let left = limit.saturating_sub(begun.elapsed());
            let received = self.finished.recv_timeout(left.min(POLL));
            self.busy = received == Err(RecvTimeoutError::Timeout);
            if !self.busy || left.is_zero() {
                return;
            }
        }
    }
}

fn render_orders(orders: &Receiver<Order>, finished: &Sender<()>, shared: &Shared) {
    let mut known = Intervals::default();
    for Order { workload, dir } in orders {
        match render_report(&workload, &dir, &mut known) {
            Ok(report) => shared.change(|state| state.set_report(report)),
            Err(error) => {
                let why = format!("the report cannot be shown: {}", words::sentence(&error));
                shared.change(|state| state.note(why));
            }
        }
        if finished.send(()).is_err() {
            return;
        }
    }
}

fn render_report(workload: &str, dir: &Path, known: &mut Intervals) -> Result<Report, StoreError> {
    let loaded = directories::load(dir)?;
    let html = loaded.page()?;
    Ok(Report {
        workload: workload.to_owned(),
        trials: loaded.stored.trials.len(),
        version: 0,
        intervals: known.narrowing(workload, &loaded.stored, &loaded.analysis),
        html: html.into(),
    })
}

/// The intervals after each block, as they were known then, by workload and block.
#[derive(Debug, Default)]
struct Intervals(BTreeMap<(String, u32), Vec<(String, Width)>>);

impl Intervals {
    /// Returns each condition's intervals up to now. Those after complete blocks are computed once.
    fn narrowing(
        &mut self,
        workload: &str,
        stored: &StoredExperiment,
        analysis: &Analysis,
    ) -> Vec<Narrowing> {
        let blocks = stored.trials.iter().filter_map(|trial| trial.place.as_ref()).map(|p| p.block);
        let last = blocks.max().unwrap_or(0);
        let mut now = widths(analysis, last);
        let unknown = |block: &u32| !self.0.contains_key(&(workload.to_owned(), *block));
        let due: Vec<u32> = (1..last).rev().filter(unknown).take(BLOCKS_AT_ONCE).collect();
        for block in due {
            let then = analysis::analyze(&up_to_block(stored, block));
            self.0.insert((workload.to_owned(), block), widths(&then, block));
        }
        let of_workload = (workload.to_owned(), 0)..(workload.to_owned(), last);
        let mut all: Vec<(String, Width)> =
            self.0.range(of_workload).flat_map(|(_, widths)| widths.clone()).collect();
        all.append(&mut now);
        let mut narrowing: Vec<Narrowing> = Vec::new();
        for (condition, width) in all {
            match narrowing.iter_mut().find(|known| known.condition == condition) {
                Some(known) => known.widths.push(width),
                None => narrowing.push(Narrowing { condition, widths: vec![width] }),
            }
        }
        narrowing
    }
}

/// The experiment as it was after this block.
fn up_to_block(stored: &StoredExperiment, block: u32) -> StoredExperiment {
    let within = |place: &pgio_results::model::TrialPosition| place.block <= block;
    let trials = stored.trials.iter().filter(|trial| trial.place.as_ref().is_some_and(within));
    StoredExperiment {
        manifest: stored.manifest.clone(),
        trials: trials.cloned().collect(),
        torn: stored.torn,
        judged: stored.judged,
    }
}

/// The intervals of the primary metric that have two sides.
fn widths(analysis: &Analysis, block: u32) -> Vec<(String, Width)> {
    // Other designs have their comparisons with the baseline alone.
    let factorial = analysis.screening.iter().filter(|screened| screened.design.is_factorial());
    let of_factors = factorial.flat_map(|screened| &screened.effects);
    let all = analysis.comparisons.iter().chain(of_factors.map(|effect| &effect.comparison));
    let width = |comparison: &Comparison| {
        let (low, high) = comparison.interval.sides()?;
        let width = Width { block, ratio: comparison.ratio?, low, high };
        Some((comparison.condition.clone(), width))
    };
    all.filter(|comparison| comparison.primary).filter_map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_report::analysis::test_support::demo;

    fn narrowing(known: &mut Intervals, stored: &StoredExperiment) -> Vec<Narrowing> {
        known.narrowing("commit", stored, &analysis::analyze(stored))
    }

    #[test]
    fn intervals_computed_block_by_block_equal_those_computed_at_once() {
        let stored = demo();
        let blocks = stored.trials.iter().map(|t| t.place.as_ref().unwrap().block).max().unwrap();
        let (mut at_once, mut grown) = (Intervals::default(), Intervals::default());
        let all = narrowing(&mut at_once, &stored);
        assert!(!all.is_empty());
        for condition in &all {
            let of_blocks: Vec<u32> = condition.widths.iter().map(|width| width.block).collect();
            assert!(of_blocks.is_sorted() && of_blocks.last() == Some(&blocks), "{of_blocks:?}");
            let (first, last) = (&condition.widths[0], &condition.widths[of_blocks.len() - 1]);
            assert!(last.high / last.low <= first.high / first.low, "{condition:?}");
            assert!(last.low <= last.ratio && last.ratio <= last.high);
        }
        // One that watched from the beginning has the same as one that came late.
        let mut last = Vec::new();
        for block in 1..=blocks {
            last = narrowing(&mut grown, &up_to_block(&stored, block));
        }
        assert_eq!(last, all);
    }

    #[test]
    fn a_report_that_cannot_be_read_is_a_remark() {
        let shared = Shared::new();
        let mut renderer = Renderer::start(shared.clone(), Stop::new()).unwrap();
        assert!(renderer.render("commit", Path::new("/nonexistent"), Duration::from_secs(60)));
        let (events, _) = shared.read().events_since(0);
        assert!(events.contains("the report cannot be shown"), "{events}");
        assert!(shared.read().report(0).is_none());
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_report() {
        // Nobody carries the orders out.
        let ((orders, _orders), (_finished, finished)) = (channel(), channel());
        let stop = Stop::new();
        let mut renderer = Renderer { orders, finished, busy: false, stop: stop.clone() };
        let hour = Duration::from_secs(3600);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(POLL);
                stop.request();
            });
            assert!(renderer.render("commit", Path::new("/nonexistent"), hour));
        });
        renderer.wait(hour);
        assert!(renderer.busy);
        assert!(!renderer.render("commit", Path::new("/nonexistent"), hour));
    }
}
