//! The workload `mail`: sessions deliver mail instead of working in PostgreSQL.
//!
//! The crate `pgio_mail` delivers and compares; this module makes it a [`Workload`]. Before each trial,
//! messages of an earlier trial are removed from the mail directories; after it, delivered messages are
//! looked up and removed, so that all trials start alike. The warm-up delivers like the window, directly
//! before it; only its counts are discarded.

mod checks;
mod pool;
mod totals;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postgres::Client;
use serde_json::json;

use pgio_mail::MailError;
use pgio_mail::halt::Halt;
use pgio_mail::maildir::{self, StoredCopy};
use pgio_mail::session::{Ledger, Sent, Shared};
use pgio_mail::settings::{MailProtocol, MailSettings, SizeDistribution};
use pgio_mail::tally::Span;
use pgio_mail::verdict;

use self::pool::MailPool;
use crate::config::resolve::Extent;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::workload::clock::Start;
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Setup};
use crate::workload::plan::WindowPlan;
use crate::workload::window::OpenWindow;
use crate::workload::{Totals, Workload};
use pgio_results::latency;
use pgio_results::model::{Check, WorkloadInfo};
use pgio_results::operation::Class;

/// How long an SMTP server may take to deliver what it accepted.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the slowest thread to receive the start before it comes.
const LEAD: Duration = Duration::from_millis(20);
/// How often the mail directories are searched meanwhile.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Mail {
    settings: MailSettings,
    /// The host of the mail directories.
    host: Arc<Host>,
    /// Messages of the current trial.
    ledger: Ledger,
    /// Part of their Message-IDs.
    token: Mutex<String>,
}

/// Sessions that are connected and warmed up.
#[derive(Debug)]
struct PreparedMail {
    pool: MailPool,
    shared: Arc<Shared>,
}

impl Mail {
    pub fn new(settings: MailSettings, host: Arc<Host>) -> Mail {
        Mail { settings, host, ledger: Ledger::default(), token: Mutex::default() }
    }

    fn directories(&self) -> Vec<String> {
        let Some(maildir) = &self.settings.maildir else { return Vec::new() };
        self.settings.recipients.iter().map(|recipient| maildir.path_of(recipient)).collect()
    }

    /// Finds and removes delivered messages. The error names the pattern of the directories.
    fn collect(&self) -> Result<Vec<StoredCopy>, MailError> {
        let directories = self.directories();
        let collected = match self.host.is_local() {
            true => maildir::collect(&directories),
            false => maildir::collect_by_script(&directories, |arguments| {
                let line = CommandLine::new("sh").args(arguments);
                Ok(self.host.run(&line)?)
            }),
        };
        collected.map_err(|source| MailError::Maildir {
            path: self.settings.maildir.as_ref().map_or_else(String::new, |m| m.path.clone()),
            host: self.host.name().to_owned(),
            source: Box::new(source),
        })
    }

    fn verify(&self, sent: &[Sent]) -> Result<Vec<Check>, MailError> {
        let directories = self.directories();
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let since = Instant::now();
        let mut found = self.collect()?;
        loop {
            let verdict = verdict::compare(&token, sent, &directories, &found);
            let queued = self.settings.protocol == MailProtocol::Smtp && verdict.lost > 0;
            if !queued || since.elapsed() > QUEUE_TIMEOUT {
                return Ok(checks::checks(&verdict));
            }
            std::thread::sleep(SEARCH_INTERVAL);
            found.extend(self.collect()?);
        }
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
            return Err(EngineError::Stuck("the workload `mail` requires a run time".to_owned()));
        };
        let start = Start::after(admin, LEAD)?;
        let settings = &self.shared.settings;
        let span = span("mail-window", start.at, length, settings.threads);
        let plan = WindowPlan::new(extent, u64::from(settings.threads), 1);
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
        if error.is_none() && tally.messages == 0 {
            let what = format!(
                "{} recipients refused, {} deferred, {} without a reply, {} connections lost",
                tally.refused, tally.deferred, tally.unknown, tally.dropped
            );
            error = Some(MailError::Nothing { server: settings.server.to_string(), what }.into());
        }
        let is_paced = settings.rate.is_some();
        Ok(WindowOutcome {
            totals: totals::totals(&tally),
            timeline: totals::timeline(&tally, span.slice, length.as_secs_f64(), is_paced),
            seconds: (ended - start.at).as_secs_f64(),
            late: tally.late.map_or(0.0, |late| late.as_secs_f64()),
            error,
            ..window.outcome
        })
    }
}

fn span(name: &'static str, start: Instant, length: Duration, threads: u32) -> Span {
    let slice = WindowPlan::new(Extent::Time(length), u64::from(threads), 1).slice;
    Span { name, start, end: start + length, slice, taken: Arc::default() }
}

impl Workload for Mail {
    fn info(&self) -> WorkloadInfo {
        let s = &self.settings;
        let mut keys = BTreeMap::from([
            ("server".to_owned(), json!(s.server.to_string())),
            ("protocol".to_owned(), json!(s.protocol.name())),
            ("threads".to_owned(), json!(s.threads)),
            ("message_size".to_owned(), json!(s.sizes.mean)),
            ("size_distribution".to_owned(), json!(s.sizes.distribution.name())),
            ("recipients".to_owned(), json!(s.recipients.len())),
            ("recipients_per_message".to_owned(), json!(s.recipients_per_message)),
            ("messages_per_connection".to_owned(), json!(s.messages_per_connection)),
        ]);
        if s.sizes.distribution != SizeDistribution::Fixed {
            keys.insert("size_spread".to_owned(), json!(s.sizes.spread));
        }
        if let Some(rate) = s.rate {
            keys.insert("messages_rate".to_owned(), json!(rate.to_string()));
        }
        if let Some(maildir) = &s.maildir {
            keys.insert("maildir".to_owned(), json!(maildir.path));
        }
        WorkloadInfo {
            kind: "mail".to_owned(),
            // At a fixed rate, conditions differ in latency only.
            primary_metric: match s.rate {
                Some(rate) => {
                    let messages = self.extent().calls_at(rate.per_second(), s.threads);
                    latency::primary(Class::Delivery, messages).to_owned()
                }
                None => "messages_per_minute".to_owned(),
            },
            keys,
        }
    }

    fn extent(&self) -> Extent {
        Extent::Time(self.settings.run_time)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        _admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // A killed trial may have left messages.
        self.collect()?;
        let token = format!("{:x}", Timestamp::now().as_microsecond());
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
        let stop = setup.stop.clone();
        let shared = Arc::new(Shared {
            settings: self.settings.clone(),
            token,
            seed: setup.seed,
            halt: Halt::new(move || stop.requested()),
            ledger: Ledger::clone(&self.ledger),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            done: AtomicU64::new(0),
        });
        let mut pool = MailPool::assemble(Arc::clone(&shared), setup.stop)?;
        if !setup.warmup.is_zero() {
            let threads = self.settings.threads;
            let span = span("mail-warmup", Instant::now(), setup.warmup, threads);
            if let (_, Some(error)) = pool.deliver(&span, &mut || {}) {
                return Err(error);
            }
        }
        Ok(Box::new(PreparedMail { pool, shared }))
    }

    fn after_trial(&self) -> Vec<Check> {
        if self.settings.maildir.is_none() {
            return Vec::new();
        }
        let sent = std::mem::take(&mut *self.ledger.lock().unwrap_or_else(PoisonError::into_inner));
        self.verify(&sent).unwrap_or_else(|error| vec![checks::unverified(&error)])
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let count = |name| totals.counted(name);
        let messages = totals.count(Class::Delivery.name()) as f64;
        let mut all = vec![
            ("messages_per_minute", Some(messages * 60.0 / seconds)),
            ("mail_bytes_per_second", Some(count("bytes") / seconds)),
            ("mail_bytes_mean", (messages > 0.0).then(|| count("bytes") / messages)),
            ("mail_recipients", Some(count("recipients"))),
            ("mail_refused", Some(count("refused"))),
            ("mail_deferred", Some(count("deferred"))),
            ("mail_unknown", Some(count("unknown"))),
            ("mail_undelivered", Some(count("undelivered"))),
            ("mail_left_over", Some(count("left_over"))),
            ("mail_retries", Some(count("retries"))),
            ("mail_dropped_connections", Some(count("dropped"))),
        ];
        if let Some(rate) = self.settings.rate {
            let (due, scheduled) = (count("due"), count("scheduled"));
            let reached = 100.0 * scheduled / due;
            all.push(("mail_rate_reached", (due > 0.0).then_some(reached)));
            all.push(("mail_offered_per_minute", Some(rate.per_second() * 60.0)));
            let begun_or_not = scheduled + count("unbegun");
            let lag = (count("lag_us") + count("unbegun_lag_us")) / 1e6 / begun_or_not;
            all.push(("mail_lag_mean", (begun_or_not > 0.0).then_some(lag)));
        }
        all
    }
}
