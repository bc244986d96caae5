//! The workload `mail`: sessions deliver mail instead of working in PostgreSQL.
//!
//! The crate `pgio_mail` delivers and compares; this module makes it a [`Workload`]. Before each trial,
//! messages of an earlier trial are removed from the mail directories; after it, delivered messages are
//! looked up and removed, so that all trials start alike. The warm-up delivers like the window, directly
//! before it; only its counts are discarded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::checks::{EARLIER, LOST, MOST_EARLIER, UNVERIFIED};
use super::pool::{PreparedMail, longest_ending};
use jiff::Timestamp;
use pgio_connect::Client;
use pgio_mail::MailError;
use pgio_mail::maildir::{self, StoredCopy, Verdict};
use pgio_mail::session::{Sent, SentMessages};
use pgio_mail::settings::{MailProtocol, MailSettings, Share, SizeDistribution};
use pgio_mail::tally::{self, Tally};
use pgio_results::latency::{self, Class};
use pgio_results::model::{Check, Slice, WorkloadInfo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::config::resolve::Extent;
use crate::exit_code::{HasExitCode, TRIAL};
use crate::host::Host;
use crate::host::clock::Clock;
use crate::host::exec::{CommandLine, Exec};
use crate::host::stop::Stop;
use crate::pg::words;
use crate::workload::error::{EngineError, WorkError};
use crate::workload::participants::{Completed, Generator, Participants, Setup, WindowOutcome};
use crate::workload::shared::{Part, PartKind, SharedWork, WorkLimit};
use crate::workload::window::Listener;
use crate::workload::{SessionSettings, Totals, Workload};

/// How long an SMTP server may take to deliver what it accepted.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the mail directories are searched meanwhile.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Mail {
    settings: MailSettings,
    /// The host of the mail directories.
    host: Arc<Host>,
    /// Messages of the current trial.
    ledger: SentMessages,
    /// A piece of their Message-IDs.
    token: Mutex<String>,
    clock: Clock,
}

impl Mail {
    pub(super) fn new(settings: MailSettings, host: Arc<Host>) -> Mail {
        let (ledger, token) = (SentMessages::default(), Mutex::default());
        Mail { settings, host, ledger, token, clock: Clock::default() }
    }

    /// Finds and removes delivered messages. The error names the pattern of the directories.
    fn collect(&self) -> Result<Vec<StoredCopy>, MailError> {
        let directories = self.settings.directories();
        let collected = if self.host.is_local() {
            maildir::collect(&directories)
        } else {
            maildir::collect_by_script(&directories, |arguments| {
                let line = CommandLine::new("sh").args(arguments);
                Ok(self.host.run(&line)?)
            })
        };
        collected.map_err(|source| MailError::Maildir {
            path: self.settings.maildir.as_ref().map_or_else(String::new, |m| m.path.clone()),
            host: self.host.name().to_owned(),
            source: Box::new(source),
        })
    }

    fn verify(&self, sent: &[Sent], stop: &Stop) -> Result<Vec<Check>, MailError> {
        let directories = self.settings.directories();
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let since = self.clock.now();
        let mut found = self.collect()?;
        loop {
            let verdict = maildir::compare(&token, sent, &directories, &found);
            let queued = self.settings.protocol == MailProtocol::Smtp && verdict.lost > 0;
            if !queued || self.clock.now() - since > QUEUE_TIMEOUT {
                return Ok(checks(&verdict));
            }
            if !self.clock.sleep_unless_stopped(SEARCH_INTERVAL, stop) {
                // What is still queued is not lost.
                return Ok(vec![unfinished(&verdict)]);
            }
            found.extend(self.collect()?);
        }
    }
}

/// A process's sessions; `token` is part of the messages' ids.
#[derive(Clone, Serialize, Deserialize)]
struct SharedMail {
    settings: MailSettings,
    share: Share,
    token: String,
}

pub(super) const PART: PartKind = PartKind {
    name: "mail",
    check: |_| Ok(()),
    prepare: |part, setup, admin| {
        let SharedMail { settings, share, token } = part.read()?;
        let ledger = SentMessages::default();
        Ok(Box::new(PreparedMail::assemble((settings, share), (token, ledger), setup, admin)?))
    },
};

impl SharedWork for SharedMail {
    fn sessions(&self) -> Option<usize> {
        Some(self.share.sessions as usize)
    }

    fn part(&self, first: usize, count: usize) -> Result<Part, EngineError> {
        let share = Share { first: first as u32, sessions: count as u32, of: self.share.of };
        PART.write(&SharedMail { share, ..self.clone() })
    }

    /// Mail of the first warm-up is on its way, and the second one would send the same Message-IDs.
    fn is_repeatable(&self) -> bool {
        false
    }

    fn limit(&self) -> WorkLimit {
        WorkLimit::AfterEnd(longest_ending(&self.settings))
    }
}

/// Messages in one report of what was sent: some 2 MB.
const SENT_PER_REPORT: usize = 10_000;

/// Returns the messages as another process reports them.
pub(super) fn to_kept(sent: &[Sent]) -> Result<Vec<Part>, EngineError> {
    sent.chunks(SENT_PER_REPORT).map(|sent| PART.write(sent)).collect()
}

impl HasExitCode for MailError {
    fn code(&self) -> u8 {
        TRIAL
    }
}

impl From<MailError> for EngineError {
    fn from(error: MailError) -> EngineError {
        EngineError::Work(WorkError::new(error))
    }
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

    fn session_settings(&self) -> SessionSettings {
        SessionSettings::Nowhere
    }

    fn divisible(&self) -> Option<u32> {
        Some(self.settings.threads)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        self.ledger.take();
        // A killed trial may have left messages.
        self.collect()?;
        let token = format!("{:x}", Timestamp::now().as_microsecond());
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
        let (settings, share) = (self.settings.clone(), Share::all(self.settings.threads));
        let ledger = self.ledger.clone();
        if let Generator::Others(others) = setup.generator.clone() {
            let prepared = others.prepare(&SharedMail { settings, share, token }, setup, admin)?;
            let complete =
                move |ran: Result<WindowOutcome, EngineError>, _: &mut Client, _: Listener<'_>| {
                    let mut outcome = ran?;
                    for kept in std::mem::take(&mut outcome.kept) {
                        ledger.add(kept.read::<Vec<Sent>>()?);
                    }
                    Ok(outcome)
                };
            return Ok(Box::new(Completed { prepared, complete }));
        }
        Ok(Box::new(PreparedMail::assemble((settings, share), (token, ledger), setup, admin)?))
    }

    fn after_trial(&self, stop: &Stop) -> Vec<Check> {
        if self.settings.maildir.is_none() {
            return Vec::new();
        }
        let sent = self.ledger.take();
        self.verify(&sent, stop).unwrap_or_else(|error| vec![unverified(&error)])
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

/// Returns the slices of a window that was planned for this many seconds; the last one contains what was answered after
/// them. In an open loop they have latencies, and the last one contains the censored messages.
pub(super) fn timeline(tally: &Tally, slice: f64, seconds: f64, is_paced: bool) -> Vec<Slice> {
    let slice_count = (seconds / slice + 1e-6) as usize;
    let empty =
        |number: usize| Slice { at: slice * number as f64, seconds: slice, ..Slice::default() };
    let mut slices: Vec<Slice> = (1..=slice_count).map(empty).collect();
    for (number, tally::Completed { messages, latency }) in tally.slices.iter().enumerate() {
        let Some(one) = slices.get_mut(number.min(slice_count.saturating_sub(1))) else { break };
        one.messages += messages;
        if is_paced {
            one.timed += messages;
            one.latency_seconds += latency.as_secs_f64();
        }
    }
    if let (Some(last), Some(cut), true) = (slices.last_mut(), tally.latency.censored(), is_paced) {
        last.timed += cut.count();
        last.latency_seconds += cut.sum_ns() / 1e9;
    }
    slices
}

pub(super) fn totals(tally: &Tally) -> Totals {
    let counts = [
        ("messages", tally.messages),
        ("bytes", tally.bytes),
        ("recipients", tally.recipients),
        ("refused", tally.refused),
        ("deferred", tally.deferred),
        ("unknown", tally.unknown),
        ("undelivered", tally.undelivered),
        ("left_over", tally.left_over),
        ("retries", tally.retries),
        ("dropped", tally.dropped),
        ("due", tally.due),
        ("scheduled", tally.scheduled),
        ("lag_us", tally.lag.as_micros() as u64),
        ("unbegun", tally.unbegun),
        ("unbegun_lag_us", tally.unbegun_lag.as_micros() as u64),
    ];
    let counts = counts.map(|(name, n)| (name.to_owned(), n as f64)).into();
    let histograms = BTreeMap::from([(Class::Delivery.name().to_owned(), tally.latency.clone())]);
    Totals { histograms, counts, ..Totals::default() }
}

fn checks(verdict: &Verdict) -> Vec<Check> {
    std::iter::once(check_complete(verdict)).chain(check_earlier(verdict)).collect()
}

fn check_earlier(verdict: &Verdict) -> Option<Check> {
    let Verdict { found, earlier, .. } = verdict;
    if *earlier == 0 {
        return None;
    }
    let message = format!(
        "{earlier} messages of an earlier trial arrived during this one, in addition to {found} of its own: the server's queue was not empty"
    );
    let remedy = "see the mail server's log for the delay; lower messages_rate, or deliver with protocol = \"lmtp\"";
    Some(if *earlier as f64 > MOST_EARLIER.0 * (found + earlier) as f64 {
        Check::invalid(EARLIER, message, remedy)
    } else {
        Check::warning(EARLIER, message, remedy)
    })
}

fn check_complete(verdict: &Verdict) -> Check {
    let Verdict { sent, found, lost, altered, surplus, .. } = verdict;
    match &verdict.example {
        None => Check::ok(
            LOST,
            format!("{sent} messages sent and {found} copies found: none lost, altered or surplus"),
        ),
        Some(example) => Check::warning(
            LOST,
            format!(
                "of {sent} messages, {lost} copies were lost, {altered} altered, {surplus} surplus; for example {example}"
            ),
            "see the mail server's log; check that the server delivers to maildir and that nothing else removes mail",
        ),
    }
}

/// The search was stopped before all copies had arrived.
fn unfinished(verdict: &Verdict) -> Check {
    let Verdict { sent, found, lost, .. } = verdict;
    Check::invalid(
        UNVERIFIED,
        format!(
            "of {sent} messages, {found} copies were found and {lost} not yet when pgio was asked to stop"
        ),
        "let the trial end, or deliver with protocol = \"lmtp\"",
    )
}

fn unverified(error: &MailError) -> Check {
    Check::invalid(
        UNVERIFIED,
        words::sentence(error),
        "give pgio read and write permission there, or remove maildir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_mail::session::CopyLimits;
    use pgio_mail::settings::{MailServer, Maildir, MessageSizes};
    use pgio_results::CheckVerdict;
    use std::time::Duration;

    fn settings(maildir: Option<Maildir>) -> MailSettings {
        MailSettings {
            server: MailServer::Tcp("localhost:25".to_owned()),
            protocol: MailProtocol::Smtp,
            threads: 1,
            sizes: MessageSizes { mean: 2048, distribution: SizeDistribution::Fixed, spread: 0 },
            sender: "pgio@localhost".to_owned(),
            recipients: vec!["user1@localhost".to_owned()],
            recipients_per_message: 1,
            messages_per_connection: 0,
            rate: None,
            timeout: Duration::from_secs(10),
            maildir,
            run_time: Duration::from_secs(1),
        }
    }

    #[test]
    fn mail_is_not_sent_again_under_the_same_ids() {
        let (share, token) = (Share::all(1), "t".to_owned());
        assert!(!SharedMail { settings: settings(None), share, token }.is_repeatable());
    }

    /// Returns the checks of a message that never arrives, and how long it was waited for.
    fn checks_of_a_queued_message(stop: &Stop) -> (Vec<Check>, Duration) {
        let directory = tempfile::tempdir().unwrap();
        let path = format!("{}/{{user}}", directory.path().display());
        let settings = settings(Some(Maildir { path, host: None }));
        let clock = Clock::fake();
        let mail = Mail { clock: clock.clone(), ..Mail::new(settings, Arc::new(Host::local())) };
        let copies = vec![CopyLimits { recipient: 0, min: 1, max: 1 }];
        mail.ledger.add([Sent { id: "t.0.1@pgio".to_owned(), sum: [0; 32], copies }]);
        let begun = clock.now();
        (mail.after_trial(stop), clock.now() - begun)
    }

    #[test]
    fn what_the_server_has_queued_for_too_long_is_lost() {
        let (checks, waited) = checks_of_a_queued_message(&Stop::new());
        assert_eq!(waited, QUEUE_TIMEOUT + SEARCH_INTERVAL);
        assert_eq!(
            (checks[0].id.as_str(), checks[0].verdict),
            ("mail-lost", CheckVerdict::Warning)
        );
    }

    #[test]
    fn an_order_to_stop_ends_the_wait_for_the_servers_queue() {
        let stop = Stop::new();
        stop.request();
        let (checks, waited) = checks_of_a_queued_message(&stop);
        assert_eq!(waited, Duration::ZERO);
        assert_eq!(
            (checks[0].id.as_str(), checks[0].verdict),
            ("mail-unverified", CheckVerdict::Invalid)
        );
        assert!(checks[0].message.contains("1 not yet"), "{}", checks[0].message);
    }

    #[test]
    fn only_the_timeline_of_an_open_loop_has_latencies() {
        let completed =
            |messages, ms| tally::Completed { messages, latency: Duration::from_millis(ms) };
        let slices = vec![
            completed(2, 100),
            completed(4, 200),
            completed(0, 0),
            completed(0, 0),
            completed(2, 100),
        ];
        let mut tally = Tally { messages: 8, slices, ..Tally::default() };
        let closed = timeline(&tally, 0.5, 2.0, false);
        assert!(closed.iter().all(|s| s.timed == 0 && s.latency_seconds == 0.0));
        // Two were answered after the planned end.
        assert_eq!(closed.iter().map(|s| s.messages).collect::<Vec<_>>(), [2, 4, 0, 2]);
        assert_eq!(closed[3].at, 2.0);
        assert_eq!(totals(&tally).counted("messages"), 8.0);
        tally.latency.record_censored(2e9, 3);
        let paced = timeline(&tally, 0.5, 2.0, true);
        assert_eq!(paced.iter().map(|s| s.messages).sum::<u64>(), 8);
        assert_eq!(paced.iter().map(|s| s.timed).collect::<Vec<_>>(), [2, 4, 0, 5]);
        assert!((paced[1].latency_seconds - 0.2).abs() < 1e-9);
        assert!((paced[3].latency_seconds - 6.1).abs() < 1e-3, "{}", paced[3].latency_seconds);
    }

    #[test]
    fn a_lost_altered_or_surplus_copy_is_a_warning() {
        let sound = Verdict { sent: 1, found: 1, ..Verdict::default() };
        assert_eq!(checks(&sound)[0].verdict, CheckVerdict::Ok);
        let example = Some("t.1@pgio in /a".to_owned());
        let all = checks(&Verdict { lost: 1, example, ..sound });
        assert_eq!((all.len(), all[0].verdict), (1, CheckVerdict::Warning));
        assert!(all[0].message.contains("1 copies were lost, 0 altered"), "{}", all[0].message);
    }

    #[test]
    fn mail_of_an_earlier_trial_has_a_check_of_its_own() {
        for (earlier, verdict) in [(1, CheckVerdict::Warning), (2, CheckVerdict::Invalid)] {
            let found = checks(&Verdict { sent: 100, found: 100, earlier, ..Verdict::default() });
            assert_eq!(found[0].verdict, CheckVerdict::Ok, "{}", found[0].message);
            assert_eq!((found[1].id.as_str(), found[1].verdict), ("mail-earlier", verdict));
            assert_eq!(
                found[1].message,
                format!(
                    "{earlier} messages of an earlier trial arrived during this one, in addition to 100 of its own: the server's queue was not empty"
                )
            );
        }
        // Without copies of its own, the server did nothing for this trial.
        let none = checks(&Verdict { earlier: 1, ..Verdict::default() });
        assert_eq!([none[0].verdict, none[1].verdict], [CheckVerdict::Ok, CheckVerdict::Invalid]);
    }
}
