//! Parses `tc -j qdisc show dev X`: the root qdisc is the kernel's own choice, ours, or
//! someone else's. Pure functions.
//!
//! Qdiscs of the kernel have the handle 0: and return by themselves when another is deleted, so
//! the undo does not need them; a qdisc with a handle was set by someone and is never replaced.

use std::time::Duration;

use serde::Deserialize;

use super::shape::LinkSettings;

/// The handle of our netem: `pg` in ASCII, unlikely to be chosen by an administrator.
pub(super) const HANDLE: &str = "7067:";

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
pub(super) fn root(json: &str) -> Option<Root> {
    // Some versions of tc print nothing at all for an empty list.
    let text = if json.trim().is_empty() { "[]" } else { json };
    let all: Vec<Qdisc> = serde_json::from_str(text).ok()?;
    let Some(found) = all.into_iter().find(|q| q.root) else {
        return Some(Root::Default("none".to_owned()));
    };
    Some(match (found.kind.as_str(), found.handle.as_str()) {
        (_, "0:") => Root::Default(found.kind),
        ("netem", HANDLE) => Root::Ours(shape(&found.options)),
        (kind, handle) => Root::Other(format!("{kind} {handle} {}", found.options)),
    })
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
    fn packets_are_counted() {
        assert_eq!(packets(OURS), Some(20));
        assert_eq!(packets(NONE), None);
    }
}
