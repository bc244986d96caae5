//! The client-side engine: pgio itself sends prepared statements, one or several at a time, as fast as
//! the server answers (closed loop) or at a given rate (open loop).
//!
//! The engine must cost less than the server that it drives. One thread waits for all sessions in one
//! epoll, messages are built before the window, and only the relevant parts of an answer are parsed
//! (docs/decisions/041-client-engine.md has the figures). [`assemble`] checks the requirements of the sessions in one session
//! of the `postgres` crate, then opens and warms up all of them.
//!
//! Next: `calls` for the messages, `assemble` for connecting, `pool` for the window, `driver` for a
//! thread of the pool, `session` for one session, `pace` for the open loop.

pub(super) mod assemble;
pub(crate) mod calls;
mod driver;
mod pace;
mod pool;
mod session;

use pgio_connect::Client;

use super::Totals;
use super::error::EngineError;
use super::participants::{Generator, Participants, Setup};
use super::shared::{Part, PartKind, Proof, SharedWork};
use crate::config::{Arrivals, ClientSettings, Pace};
use calls::AllCalls;
use serde::{Deserialize, Serialize};

/// Minimum planned duration, in seconds, of a fixed number of calls for judging its rate.
const MIN_JUDGED_SECONDS: f64 = 10.0;

/// The work of all sessions, which processes can share.
pub(crate) struct ClientWork {
    pub(crate) calls: AllCalls,
    pub(crate) settings: ClientSettings,
    pub(crate) proof: Proof,
}

/// The sessions of one process.
#[derive(Serialize, Deserialize)]
pub(super) struct ClientPart {
    calls: AllCalls,
    settings: ClientSettings,
}

pub(crate) const PART: PartKind = PartKind {
    name: "client",
    check: |_| Ok(()),
    prepare: |part, setup, admin| {
        let ClientPart { calls, settings } = part.read()?;
        assemble(calls, settings, setup, admin)
    },
};

impl SharedWork for ClientWork {
    fn sessions(&self) -> Option<usize> {
        Some(self.calls.sessions())
    }

    fn part(&self, first: usize, count: usize) -> Result<Part, EngineError> {
        let calls = self.calls.part(first, count);
        PART.write(&ClientPart { calls, settings: self.settings })
    }

    fn proof(&self) -> Option<Proof> {
        Some(self.proof.clone())
    }
}

impl ClientWork {
    /// Connects, prepares and warms up all sessions, here or in other processes; fails if one of them fails.
    pub(super) fn prepare(
        self,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        match setup.generator.clone() {
            Generator::Others(others) => others.prepare(&self, setup, admin),
            Generator::Alone | Generator::Part(_) => {
                assemble(self.calls, self.settings, setup, admin)
            }
        }
    }
}

fn assemble(
    calls: AllCalls,
    settings: ClientSettings,
    setup: Setup,
    admin: &mut Client,
) -> Result<Box<dyn Participants>, EngineError> {
    let mut pool = assemble::assemble(calls, settings, setup, admin)?;
    pool.warm_up(admin)?;
    Ok(Box::new(pool))
}

/// Returns the metrics of this engine in addition to the workload's: the share of due calls that began.
pub(super) fn metrics(
    settings: &ClientSettings,
    totals: &Totals,
    seconds: f64,
) -> Vec<(&'static str, Option<f64>)> {
    let mut metrics = vec![("calls_per_second", Some(totals.calls as f64 / seconds))];
    if let Some(pace) = &settings.pace {
        metrics.push(("rate_reached", rate_reached_percent(pace, totals, seconds)));
    }
    metrics
}

/// Returns the reached share of the rate in percent. A fixed number of calls always begins completely,
/// so the rate itself is compared; random arrivals can make it slightly lower. A run of a few seconds
/// is not judged: the latency of the last call would count too much.
fn rate_reached_percent(pace: &Pace, totals: &Totals, seconds: f64) -> Option<f64> {
    if totals.due > 0 {
        return Some(100.0 * totals.begun as f64 / totals.due as f64);
    }
    let tolerance = match pace.arrivals {
        Arrivals::Fixed => 0.0,
        Arrivals::Poisson => 3.0 / (totals.calls as f64).sqrt(),
    };
    let planned_seconds = totals.calls as f64 / pace.rate as f64;
    (planned_seconds >= MIN_JUDGED_SECONDS)
        .then(|| 100.0 * (planned_seconds / seconds + tolerance).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_not_reached_by_a_fixed_number_that_takes_too_long() {
        let reached = |arrivals, totals: Totals, seconds| {
            rate_reached_percent(&Pace { rate: 1000, arrivals }, &totals, seconds).map(f64::round)
        };
        let fixed = |calls| Totals { calls, ..Totals::default() };
        assert_eq!(reached(Arrivals::Fixed, fixed(10_000), 10.0), Some(100.0));
        assert_eq!(reached(Arrivals::Fixed, fixed(10_000), 20.0), Some(50.0));
        assert_eq!(reached(Arrivals::Poisson, fixed(10_000), 10.2), Some(100.0));
        assert_eq!(reached(Arrivals::Poisson, fixed(10_000), 20.0), Some(53.0));
        assert_eq!(reached(Arrivals::Fixed, fixed(100), 0.2), None);
        let in_a_window = Totals { calls: 9_000, begun: 9_000, due: 10_000, ..Totals::default() };
        assert_eq!(reached(Arrivals::Fixed, in_a_window, 10.0), Some(90.0));
    }
}
