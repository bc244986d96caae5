//! Parses `tc -j qdisc show dev X`: the root qdisc is the kernel's own choice, ours, or
//! someone else's. Pure functions.
//!
//! Qdiscs of the kernel have the handle 0: and are made by it when another is deleted, of the kind that
//! net.core.default_qdisc names then; a qdisc with a handle was set by someone and is never replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::shape::LinkSettings;

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

/// The kinds of the kernel's own qdiscs: that of the root, then those below it, each once.
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
