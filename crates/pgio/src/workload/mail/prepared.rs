//! The mail sessions of one process as participants of a trial: connected, warmed up, then one window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postgres::Client;

use pgio_mail::MailError;
use pgio_mail::halt::Halt;
use pgio_mail::session::{SentMessages, Shared};
use pgio_mail::settings::{MailSettings, Share};
use pgio_mail::tally::Span;

use super::pool::MailPool;
use super::totals;
use crate::config::resolve::Extent;
use crate::workload::clock::{Opener, Start};
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Setup};
use crate::workload::plan::WindowPlan;
use crate::workload::window::OpenWindow;

/// Time for the slowest thread to receive the start before it comes.
const LEAD: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct PreparedMail {
    pool: MailPool,
    shared: Arc<Shared>,
    opener: Option<Arc<dyn Opener>>,
    /// Another process compares what arrived.
    is_part: bool,
}

impl PreparedMail {
    /// Connects and warms up all sessions, or none.
    pub(super) fn assemble(
        (settings, share): (MailSettings, Share),
        (token, ledger): (String, SentMessages),
        setup: Setup,
        admin: &mut Client,
    ) -> Result<PreparedMail, EngineError> {
        let is_part = setup.part().is_some();
        let Setup { stop, seed, warmup, opener, .. } = setup;
        let halting = stop.clone();
        let shared = Arc::new(Shared {
            settings,
            share,
            token,
            seed,
            halt: Halt::new(move || halting.requested()),
            ledger,
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            done: AtomicU64::new(0),
        });
        let mut pool = MailPool::assemble(Arc::clone(&shared), stop)?;
        if !warmup.is_zero() {
            let start = match &opener {
                Some(opener) => opener.warm_up(admin, LEAD)?.at,
                None => Instant::now(),
            };
            let span = span("mail-warmup", start, warmup, share);
            if let (_, Some(error)) = pool.deliver(&span, &mut || {}) {
                return Err(error);
            }
        }
        Ok(PreparedMail { pool, shared, opener, is_part })
    }
}

impl Participants for PreparedMail {
    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let Extent::Time(length) = extent else {
            return Err(EngineError::Unsuited("the workload `mail` requires a run time"));
        };
        let start = Start::agree_on_window(self.opener.as_ref(), admin, LEAD)?;
        let Shared { settings, share, .. } = &*self.shared;
        let span = span("mail-window", start.at, length, *share);
        let plan = WindowPlan::new(extent, u64::from(share.of), 1);
        let mut window = OpenWindow::open(admin, start, plan, listener);
        let (mut tally, mut error) = self.pool.deliver(&span, &mut || {
            window.progress.covered = start.at.elapsed().as_secs_f64();
            window.progress.messages = self.shared.done.load(Ordering::Relaxed);
            window.report_progress();
        });
        if let Some(rate) = settings.rate {
            tally.due = span.due(rate);
            // A window that ended early cuts off everything and is compared with nothing.
            if error.is_none() {
                tally.cut_off(&span, rate);
            }
        }
        // A session that waits in vain for a reply extends the window.
        let ended = tally.ended.map_or(span.end, |ended| ended.max(span.end));
        window.close(ended.min(Instant::now()));
        // At a low rate, none of the few messages may be this process's.
        let is_idle = settings.rate.is_some() && tally.due == 0;
        if error.is_none() && tally.messages == 0 && !is_idle {
            let what = format!(
                "{} recipients refused, {} deferred, {} without a reply, {} connections lost",
                tally.refused, tally.deferred, tally.unknown, tally.dropped
            );
            error = Some(MailError::Nothing { server: settings.server.to_string(), what }.into());
        }
        let is_paced = settings.rate.is_some();
        let sent = if self.is_part { self.shared.ledger.take() } else { Vec::new() };
        window.outcome = WindowOutcome {
            totals: totals::totals(&tally),
            timeline: totals::timeline(&tally, span.slice, length.as_secs_f64(), is_paced),
            seconds: (ended - start.at).as_secs_f64(),
            late: tally.late.map_or(0.0, |late| late.as_secs_f64()),
            error,
            sent,
            ..window.outcome
        };
        Ok(window.into_outcome())
    }
}

fn span(name: &'static str, start: Instant, length: Duration, share: Share) -> Span {
    let slice = WindowPlan::new(Extent::Time(length), u64::from(share.of), 1).slice;
    Span { name, start, end: start + length, slice, schedule: Arc::default(), share }
}
