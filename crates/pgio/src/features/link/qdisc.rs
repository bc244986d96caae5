//! Parses `tc -j qdisc show dev X`: the root qdisc is the kernel's own choice, ours, or
//! someone else's. Pure functions.
//!
//! Qdiscs of the kernel have the handle 0: and are made by it when another is deleted, of the kind that
//! net.core.default_qdisc names then; a qdisc with a handle was set by someone and is never replaced.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::units::{
    LinkError, exact_bit_rate, exact_delay, exact_share, parse_bit_rate, parse_delay, parse_share,
};
use crate::treatment::body::Body;
use crate::treatment::error::TreatmentError;

/// The handle of our netem: `pg` in ASCII, unlikely to be chosen by an administrator.
pub(super) const HANDLE: &str = "7067:";

/// Kinds that do not follow from net.core.default_qdisc: of an interface with several queues, with none, or down.
const OF_INTERFACE: [&str; 4] = ["mq", "noqueue", "noop", NOT_SHOWN];
/// Those of an interface that is down, whose others come when it is up.
const OF_DOWN: [&str; 2] = ["noop", NOT_SHOWN];
const NOT_SHOWN: &str = "none";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Root {
    /// The kernel's own, such as `fq_codel`; some kinds are not shown at all.
    Default(String),
    Ours(LinkSettings),
    /// In words, as tc shows it.
    Other(String),
}

#[derive(Debug, Deserialize)]
struct Qdisc {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    options: serde_json::Value,
}

/// None if the text is no list of qdiscs.
fn parse(json: &str) -> Option<Vec<Qdisc>> {
    // Some versions of tc print nothing at all for an empty list.
    let text = if json.trim().is_empty() { "[]" } else { json };
    serde_json::from_str(text).ok()
}

pub(super) fn root(json: &str) -> Option<Root> {
    let Some(found) = parse(json)?.into_iter().find(|q| q.root) else {
        return Some(Root::Default(NOT_SHOWN.to_owned()));
    };
    Some(match (found.kind.as_str(), found.handle.as_str()) {
        (_, "0:") => Root::Default(found.kind),
        ("netem", HANDLE) => Root::Ours(shape(&found.options)),
        (kind, handle) => Root::Other(format!("{kind} {handle} {}", found.options)),
    })
}

/// The kinds of the kernel's own qdiscs: the root's, then the ones below it, each once.
pub(super) fn own_kinds(json: &str) -> Option<Vec<String>> {
    // Those of incoming packets have a handle and stay.
    let own = parse(json)?.into_iter().filter(|q| q.handle == "0:");
    let (roots, leaves): (Vec<Qdisc>, Vec<Qdisc>) = own.partition(|q| q.root);
    let root = roots.into_iter().next().map_or_else(|| NOT_SHOWN.to_owned(), |root| root.kind);
    let leaves: BTreeSet<String> = leaves.into_iter().map(|leaf| leaf.kind).collect();
    Some(std::iter::once(root).chain(leaves).collect())
}

/// The first of the kernel's own qdiscs that it would make of another kind now.
pub(super) fn not_restored<'a>(kinds: &'a [String], default: &str) -> Option<&'a str> {
    let is_restored = |kind: &&str| OF_INTERFACE.contains(kind) || *kind == default;
    kinds.iter().map(String::as_str).find(|kind| !is_restored(kind))
}

/// Whether the kernel's own qdiscs are what they were, both as [`own_kinds`] with blanks between them.
pub(super) fn is_as_before(prior: &str, found: &str) -> bool {
    prior == found || [prior, found].iter().any(|kinds| OF_DOWN.contains(kinds))
}

/// Seconds, shares and bytes per second, in objects whose names differ by version.
fn shape(options: &serde_json::Value) -> LinkSettings {
    let number = |object: &str, key: &str| {
        let inner = options.get(object)?;
        inner.get(key).and_then(serde_json::Value::as_f64)
    };
    let seconds = |key: &str| {
        let seconds = number("delay", key).unwrap_or(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    };
    LinkSettings {
        delay: seconds("delay"),
        jitter: seconds("jitter"),
        loss: number("loss-random", "loss").unwrap_or(0.0),
        rate: number("rate", "rate").map_or(0, |bytes| (bytes * 8.0) as u64),
    }
}

/// The packets that passed so far, from `tc -s -j`.
pub(super) fn packets(json: &str) -> Option<u64> {
    let all: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    all.iter().find(|q| q.get("root").is_some())?.get("packets")?.as_u64()
}

/// netem's queue, in packets. With the default of 1000 a fast link would drop packets that are under way
/// during the delay. The queue takes memory only for packets in it.
const QUEUE: u32 = 200_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LinkSettings {
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    /// 0 to 1.
    pub(super) loss: f64,
    /// Bits per second; 0 means unlimited.
    pub(super) rate: u64,
}

impl LinkSettings {
    pub(super) fn read(body: &Body<'_>) -> Result<LinkSettings, TreatmentError> {
        let shape = LinkSettings {
            delay: parsed(body, "delay", parse_delay)?.unwrap_or_default(),
            jitter: parsed(body, "jitter", parse_delay)?.unwrap_or_default(),
            loss: parsed(body, "loss", parse_share)?.unwrap_or_default(),
            rate: parsed(body, "rate", parse_bit_rate)?.unwrap_or_default(),
        };
        if body.has("jitter") && shape.delay.is_zero() {
            return Err(body.error("jitter", "requires delay, around which it varies"));
        }
        if shape.jitter > shape.delay {
            return Err(body.error("jitter", "exceeds the delay, around which it varies"));
        }
        // A delay of 0 is valid: netem is there and does nothing, which shows its own cost.
        if shape == LinkSettings::default() && !body.has("delay") {
            return Err(body.error("delay", "is missing: write delay, loss or rate"));
        }
        Ok(shape)
    }

    /// The least delay of a packet, since jitter goes both ways.
    pub(super) fn least_delay(&self) -> Duration {
        self.delay.saturating_sub(self.jitter)
    }

    /// The words after `netem`.
    pub(super) fn netem_words(&self) -> Vec<String> {
        let mut words = vec!["limit".to_owned(), QUEUE.to_string()];
        if !self.delay.is_zero() {
            words.extend(["delay".to_owned(), exact_delay(self.delay)]);
        }
        if !self.jitter.is_zero() {
            words.push(exact_delay(self.jitter));
        }
        if self.loss > 0.0 {
            words.extend(["loss".to_owned(), exact_share(self.loss)]);
        }
        if self.rate > 0 {
            words.extend(["rate".to_owned(), format!("{}bit", self.rate)]);
        }
        words
    }

    /// Parses the words of [`LinkSettings::netem_words`], which the journal stores.
    pub(super) fn from_words(words: &str) -> Option<LinkSettings> {
        let mut shape = LinkSettings::default();
        let mut words = words.split(' ').peekable();
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word {
                "delay" => {
                    shape.delay = parse_delay(value).ok()?;
                    if let Some(jitter) = words.peek().and_then(|word| parse_delay(word).ok()) {
                        shape.jitter = jitter;
                        words.next();
                    }
                }
                "loss" => shape.loss = parse_share(value).ok()?,
                "rate" => shape.rate = parse_bit_rate(value).ok()?,
                "limit" => {}
                _ => return None,
            }
        }
        Some(shape)
    }

    /// Whether both are equal within the kernel's precision: times in whole ticks, loss in parts
    /// of 2³².
    pub(super) fn is_close_to(&self, other: &LinkSettings) -> bool {
        let near = |a: f64, b: f64, step: f64| (a - b).abs() <= step + a.abs() * 1e-3;
        near(self.delay.as_secs_f64(), other.delay.as_secs_f64(), 2e-6)
            && near(self.jitter.as_secs_f64(), other.jitter.as_secs_f64(), 2e-6)
            && near(self.loss, other.loss, 1e-6)
            && near(self.rate as f64, other.rate as f64, 8.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// Absent: the server's.
    pub(super) host: Option<String>,
    pub(super) interface: String,
    pub(super) shape: LinkSettings,
    /// An address to measure the round trip to.
    pub(super) ping: Option<String>,
}

impl End {
    /// In words: `eth1 on db2`.
    pub(super) fn place(&self) -> String {
        let on = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        format!("{}{on}", self.interface)
    }
}

fn parsed<T>(
    body: &Body<'_>,
    key: &str,
    parse: fn(&str) -> Result<T, LinkError>,
) -> Result<Option<T>, TreatmentError> {
    let Some(text) = body.text(key)? else { return Ok(None) };
    parse(text).map(Some).map_err(|e| body.error(key, e.to_string()))
}

impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.delay.is_zero() {
            words.push(format!("delay {}", exact_delay(self.delay)));
        }
        if !self.jitter.is_zero() {
            words.push(format!("jitter {}", exact_delay(self.jitter)));
        }
        if self.loss > 0.0 {
            words.push(format!("loss {}", exact_share(self.loss)));
        }
        if self.rate > 0 {
            words.push(format!("rate {}", exact_bit_rate(self.rate)));
        }
        if words.is_empty() {
            words.push("delay 0ms".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As iproute2 6.1 on Linux 6.1 writes it.
    const OURS: &str = r#"[{"kind":"netem","handle":"7067:","root":true,"refcnt":2,"options":{"limit":200000,"delay":{"delay":0.001499,"jitter":9.9e-05,"correlation":0},"loss-random":{"loss":0.01,"correlation":0},"rate":{"rate":12500000,"packetoverhead":0,"cellsize":0,"celloverhead":0},"ecn":false,"gap":0},"bytes":1960,"packets":20,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}]"#;
    const NONE: &str = r#"[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]"#;
    const TBF: &str = r#"[{"kind":"tbf","handle":"7067:","root":true,"refcnt":3,"options":{"rate":125000,"burst":10240,"lat":1000000}}]"#;
    const MQ: &str = r#"[{"kind":"mq","handle":"0:","root":true,"options":{}},{"kind":"fq_codel","handle":"0:","parent":":1","options":{"limit":10240}}]"#;

    fn asked() -> LinkSettings {
        LinkSettings {
            delay: Duration::from_micros(1500),
            jitter: Duration::from_micros(100),
            loss: 0.01,
            rate: 100_000_000,
        }
    }

    #[test]
    fn root_distinguishes_our_qdisc_from_default_and_foreign_ones() {
        let Some(Root::Ours(found)) = root(OURS) else { panic!() };
        assert!(asked().is_close_to(&found), "{found:?}");
        for other in [
            LinkSettings { delay: Duration::from_micros(1400), ..asked() },
            LinkSettings { jitter: Duration::ZERO, ..asked() },
            LinkSettings { loss: 0.0, ..asked() },
            LinkSettings { rate: 0, ..asked() },
        ] {
            assert!(!other.is_close_to(&found), "{other:?}");
        }
        assert_eq!(root(NONE), Some(Root::Default("noqueue".to_owned())));
        assert_eq!(root(MQ), Some(Root::Default("mq".to_owned())));
        assert_eq!(root("[]"), Some(Root::Default("none".to_owned())));
        assert_eq!(root(""), Some(Root::Default("none".to_owned())));
        assert!(matches!(root(TBF), Some(Root::Other(_))), "our handle alone is not enough");
        let theirs = OURS.replace("7067:", "1:");
        assert!(matches!(root(&theirs), Some(Root::Other(text)) if text.starts_with("netem 1:")));
        assert_eq!(root("Cannot find device"), None);
    }

    #[test]
    fn a_kind_is_restored_if_it_is_the_kernels_default_of_now() {
        let kinds = |json: &str| own_kinds(json).unwrap();
        assert_eq!(kinds(MQ), ["mq", "fq_codel"]);
        assert_eq!(kinds(NONE), ["noqueue"]);
        assert_eq!(kinds(""), ["none"]);
        let incoming = MQ.replace("}}]", "}},{\"kind\":\"clsact\",\"handle\":\"ffff:\"}]");
        assert_eq!(kinds(&incoming), ["mq", "fq_codel"]);
        assert_eq!(own_kinds("Cannot find device"), None);
        assert_eq!(not_restored(&kinds(MQ), "fq_codel"), None);
        assert_eq!(not_restored(&kinds(MQ), "fq"), Some("fq_codel"));
        assert_eq!(not_restored(&kinds(NONE), "fq"), None);
        let single = MQ.replace("\"mq\"", "\"pfifo_fast\"");
        assert_eq!(not_restored(&kinds(&single), "fq_codel"), Some("pfifo_fast"));
    }

    #[test]
    fn another_kind_after_the_deletion_is_noticed() {
        assert!(is_as_before("fq_codel", "fq_codel") && !is_as_before("fq_codel", "fq"));
        assert!(is_as_before("mq fq_codel", "mq fq_codel"));
        assert!(!is_as_before("mq fq_codel", "mq fq"));
        assert!(is_as_before("fq", "noop") && is_as_before("noop", "fq"), "down");
    }

    #[test]
    fn packets_are_counted() {
        assert_eq!(packets(OURS), Some(20));
        assert_eq!(packets(NONE), None);
    }
}
