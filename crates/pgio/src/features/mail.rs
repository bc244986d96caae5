//! The workload `mail`: sessions deliver messages by LMTP or SMTP to a mail server that stores them in PostgreSQL or
//! beside it.
//!
//! [`settings`] reads the values of its keys, [`work`] makes the crate `pgio_mail` a workload, whose sessions are in
//! [`pool`], [`counted`] the metrics, [`checks`] what judges its
//! trials.

mod checks;
mod counted;
mod pool;
mod settings;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;
use std::time::Duration;

use pgio_mail::settings::{MailProtocol, MailRate, MailServer, SizeDistribution};
use pgio_results::latency::{Class, Work};
use pgio_results::metrics;

use self::settings::Recipients;
use self::work::Mail;
use crate::config::Layer;
use crate::config::experiment::WorkloadSpec;
use crate::config::keys::{AT_LEAST_0, own_keys};
use crate::config::kinds::{Exclusive, PLAIN, Things, Threads, WINDOW, WorkloadDef, WorkloadKind};
use crate::config::value::{Bytes, Kind};
use crate::experiment::application::{OpenError, TargetServer, WorkloadCode};
use crate::feature::Feature;
use crate::host::Host;

pub(crate) static FEATURE: Feature = Feature {
    name: "mail",
    workloads: &[WorkloadCode {
        kind: KIND,
        check_programs: |_, _, _| Ok(()),
        prepare: |_, layer, place, _, _| Ok(Arc::new(prepare(layer, place.target)?)),
        part: Some(work::PART),
    }],
    checks: checks::definitions,
    judge: checks::judge,
    metrics: counted::METRICS,
    examples: &[
        example!("mail-ext4"),
        example!("mail-drbd"),
        ("dovecot.sh", include_str!("../../shipped/dovecot.sh")),
    ],
    ..Feature::NONE
};

const KIND: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "mail",
    keys: &[WINDOW],
    own: keys::ALL,
    reset: "messages of earlier trials are removed",
    other_server: Some("the mail server"),
    threads: Threads::OfSessions(keys::threads.name),
    check_keys: |layer| settings::resolve(layer, "").map(drop),
    measures: |metric| match metric.kind {
        metrics::Kind::Work(work) => work == Work::Messages,
        metrics::Kind::Latency(class, _) | metrics::Kind::Mean(class) => class == Class::Delivery,
        metrics::Kind::Quantity => metric.name.starts_with("mail_"),
        metrics::Kind::Declared => false,
    },
    exclusive: Exclusive {
        things: directories,
        refusal: |other, _| {
            let other = other.map_or("the judged workload".to_owned(), |name| format!("`{name}`"));
            format!(
                "`mail` would remove messages of {other}, whose mail directories it shares; use another maildir or other recipients"
            )
        },
    },
    ..PLAIN
});

own_keys! {
    server: MailServer, Kind::Text, None,
        "mail server: host:port, or the path of a socket; {target} is replaced by the target's name";
    protocol: MailProtocol, Kind::OneOf(MailProtocol::NAMES), Some("lmtp"),
        "protocol: an lmtp server replies after delivery, an smtp server after it accepts the message";
    threads: u32, Kind::Whole(1..=1000), Some("12"),
        "concurrent delivery sessions";
    message_size: Bytes, Kind::Bytes, Some("70K"),
        "mean size of a message, header included";
    size_distribution: SizeDistribution, Kind::OneOf(SizeDistribution::NAMES), Some("uniform"),
        "distribution of message sizes around the mean: fixed, uniform or lognormal";
    size_spread: u32, Kind::Whole(1..=1000), None,
        "spread of message sizes in percent of the mean: half the width (uniform) or the standard deviation (lognormal) (default 100)";
    sender: String, Kind::Text, Some("pgio@localhost"),
        "envelope sender";
    recipients: Recipients, Kind::Text, Some("user{1..100}@localhost"),
        "recipients, used equally often: addresses separated by commas; each may contain one range {1..100}";
    recipients_per_message: u32, Kind::Whole(1..=1000), Some("1"),
        "number of different recipients per message";
    messages_per_connection: u32, AT_LEAST_0, Some("0"),
        "messages per connection before a session reconnects; 0 is unlimited";
    messages_rate: MailRate, Kind::Text, None,
        "rate at which all threads together start messages, such as 1500/min or 25/s (default: as fast as the server accepts them)";
    reply_timeout: Duration, Kind::Duration { zero: false }, Some("60s"),
        "maximum time to wait for a reply of the server";
    maildir: String, Kind::Text, None,
        "path of a recipient's Maildir, with {user} and {domain}: pgio looks up delivered messages there and removes them";
    mail_host: String, Kind::Text, None,
        "host of [hosts] that stores maildir (default: the target's host)";
}

/// Prepares `mail`; its directories are on the target's host unless the file names another.
fn prepare(layer: Layer, target: &TargetServer) -> Result<Mail, OpenError> {
    let settings = settings::resolve(layer, &target.name)?;
    let named = settings.maildir.as_ref().and_then(|maildir| maildir.host.clone());
    let host = match named.or_else(|| target.host.clone()) {
        None => Arc::new(Host::local()),
        Some(name) => match target.hosts.get(&name) {
            Some(host) => host.clone(),
            None => return Err(OpenError::NoSuchHost { key: keys::mail_host.name, name }),
        },
    };
    Ok(Mail::new(settings, host))
}

/// Returns the directories in which it looks for its mail: two that look in one would remove each other's.
fn directories(work: &WorkloadSpec, target: &str, host: Option<&str>) -> Things {
    // Wrong keys are refused when the work is prepared.
    let Ok(settings) = settings::resolve(work.layer.clone(), target) else {
        return Things::new();
    };
    let named = settings.maildir.as_ref().and_then(|maildir| maildir.host.clone());
    let host = named.or_else(|| host.map(str::to_owned));
    settings.directories().into_iter().map(|directory| (host.clone(), directory)).collect()
}
