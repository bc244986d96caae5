//! `link = { interface = "eth1", delay = "1ms", … }`: a slower link between two machines.
//!
//! Uses tc netem on an interface of a host ([`netem`]), on both ends with a list or `hosts`;
//! or, for a private primary and standby, by a relay of our own between them ([`through_relay`]),
//! which needs neither root nor netem. [`shape`] is the delay, jitter, loss and rate.

mod netem;
mod proof;
mod qdisc;
mod relay;
mod survey;
mod through_relay;
mod units;

use self::netem::{Netem, NetemStep};
use self::qdisc::{End, LinkSettings};
use self::through_relay::{RelayStep, RelayTreatment};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::treatment::body::{self, Body};
use crate::treatment::contract::{Kind, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Record, Step};
use pgio_results::checks::{CheckDef, def};

const NAME: &str = netem::KIND;

pub(super) static FEATURE: Feature = Feature {
    name: "link",
    treatments: &[KIND],
    checks,
    examples: &[example!("link-delay")],
    ..Feature::NONE
};

fn checks() -> Vec<CheckDef> {
    vec![def(
        "link",
        "",
        "less than one packet per second passed a slowed interface, or nothing proves that replication uses it",
        "add ping = \"ADDRESS\" with the address of the other machine that replication uses; `ip route get ADDRESS` shows its interface",
    )]
}

const KIND: Kind = Kind {
    name: NAME,
    help: "a slower link between machines: { interface = \"eth1\", delay = \"1ms\", jitter, loss = \"1%\", rate = \"100mbit\" } by tc netem on host = \"…\", or on both hosts = [..], or a list of such tables; ping = \"ADDRESS\" measures the round trip; { relay = true, delay, jitter, rate } between a private primary and its standby, delayed each way",
    parse,
    read,
};

const KEYS: &[&str] =
    &["host", "hosts", "interface", "delay", "jitter", "loss", "rate", "ping", "relay"];
const EXAMPLE: &str = "{ host = \"db1\", interface = \"eth1\", delay = \"1ms\" }";

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let bodies = match &spec.body {
        toml::Value::Array(items) => items.clone(),
        single => vec![single.clone()],
    };
    let several = bodies.len() > 1;
    let mut ends = Vec::new();
    for item in bodies {
        let spec = TreatmentSpec { body: item, ..spec.clone() };
        let body = Body::table(&spec, KEYS, EXAMPLE)?;
        if body.boolean("relay")?.unwrap_or(false) {
            if several {
                return Err(body.error("relay", "cannot be in a list: it already covers both ends"));
            }
            return parse_relay(&body);
        }
        ends.extend(parse_ends(&body)?);
    }
    if ends.is_empty() {
        return Err(body::error(spec, &spec.kind, &format!("is empty: write {EXAMPLE}")));
    }
    for (at, end) in ends.iter().enumerate() {
        if ends[..at].iter().any(|e| (&e.host, &e.interface) == (&end.host, &end.interface)) {
            let message = format!("names {} twice", end.place());
            return Err(body::error(spec, &spec.kind, &message));
        }
    }
    Ok(Box::new(Netem { ends }))
}

/// A step on a host is netem's.
fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    match record.host {
        Some(_) => NetemStep::read(record),
        None => RelayStep::read(record),
    }
}

fn parse_relay(body: &Body<'_>) -> Result<Box<dyn Treatment>, TreatmentError> {
    for key in ["host", "hosts", "interface", "ping"] {
        if body.has(key) {
            return Err(
                body.error(key, "requires tc netem: a relay supports delay, jitter and rate")
            );
        }
    }
    if body.has("loss") {
        let why = "requires tc netem: a relay forwards a stream, which loses nothing";
        return Err(body.error("loss", why));
    }
    Ok(Box::new(RelayTreatment { shape: LinkSettings::read(body)? }))
}

fn parse_ends(body: &Body<'_>) -> Result<Vec<End>, TreatmentError> {
    let interface = body.required("interface", "such as \"eth1\"; or relay = true")?;
    // The kernel's rules for names, so that no name can pass for an option of tc.
    let is_name = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    if interface.len() > 15 || interface.starts_with('-') || !interface.chars().all(is_name) {
        return Err(
            body.error("interface", format!("cannot be `{interface}`: not an interface name"))
        );
    }
    let shape = LinkSettings::read(body)?;
    let ping = body.text("ping")?.map(str::to_owned);
    if let Some(address) = &ping
        && (address.starts_with('-') || address.contains(char::is_whitespace))
    {
        return Err(body.error("ping", "must be an address"));
    }
    let hosts = match (body.text("host")?, body.texts("hosts")?) {
        (Some(_), Some(_)) => {
            return Err(body.error("hosts", "contradicts host: keep one of the two"));
        }
        (Some(host), None) => vec![Some(host.to_owned())],
        (None, Some(hosts)) => hosts.into_iter().map(Some).collect(),
        (None, None) => vec![None],
    };
    let end = |(at, host)| End {
        host,
        interface: interface.to_owned(),
        shape: shape.clone(),
        // One measurement is enough, from the first host.
        ping: ping.clone().filter(|_| at == 0),
    };
    Ok(hosts.into_iter().enumerate().map(end).collect())
}

#[cfg(test)]
mod tests {

    use crate::treatment::test_support::{assert_refused, described};

    #[test]
    fn link_is_described_for_one_end_both_ends_and_a_relay() {
        let read = |body| described("link", body).unwrap();
        assert_eq!(read("{ interface = 'eth1', delay = '1ms' }"), ["link of eth1 = delay 1ms"]);
        let both = [
            "link of eth1 on a = delay 1ms jitter 100us loss 1% rate 100mbit",
            "link of eth1 on b = delay 1ms jitter 100us loss 1% rate 100mbit",
        ];
        assert_eq!(
            read(
                "{ hosts = ['a', 'b'], interface = 'eth1', delay = '1ms', jitter = '100us', loss = '1%', rate = '100mbit' }"
            ),
            both
        );
        assert_eq!(
            read(
                "[{ host = 'a', interface = 'eth1', delay = '1ms' }, { host = 'b', interface = 'lo', rate = '1gbit' }]"
            ),
            ["link of eth1 on a = delay 1ms", "link of lo on b = rate 1gbit"]
        );
        assert_eq!(
            read("{ relay = true, delay = '1ms', rate = '100mbit' }"),
            ["link by a relay = delay 1ms rate 100mbit"]
        );
        assert_eq!(
            read("{ relay = true, delay = '1ms', jitter = '500us' }"),
            ["link by a relay = delay 1ms jitter 500us"]
        );
        assert_eq!(read("{ interface = 'lo', delay = '0ms' }"), ["link of lo = delay 0ms"]);
        assert_eq!(read("{ relay = true, delay = '0ms' }"), ["link by a relay = delay 0ms"]);
    }

    #[test]
    fn errors_in_link_name_line_and_key() {
        let cases = cases! {
            "\"1ms\"" => "line 7: link: must be a table, such as { host";
            "[]" => "line 7: link: is empty";
            "{ delay = '1ms' }" => "line 7: link.interface: is missing";
            "{ interface = 'eth1' }" => "line 7: link.delay: is missing";
            "{ interface = 'eth1', delya = '1ms' }"
                => "line 7: link.delya: is an unknown key; the nearest valid one is `delay`";
            "{ interface = 'eth1', delay = '1' }" => "line 7: link.delay: `1` is not a delay";
            "{ interface = 'eth1', loss = '2' }" => "line 7: link.loss: `2` is not a percentage";
            "{ interface = 'eth1', rate = '1MB' }" => "line 7: link.rate: `1MB` is not a rate";
            "{ interface = 'eth1', jitter = '1ms' }" => "line 7: link.jitter: requires delay";
            "{ interface = 'eth1', delay = '1ms', jitter = '2ms' }" => "line 7: link.jitter: exceeds the delay";
            "{ interface = '-x', delay = '1ms' }" => "line 7: link.interface: cannot be `-x`";
            "{ interface = 'e', host = 'a', hosts = ['b'], delay = '1ms' }" => "line 7: link.hosts: contradicts";
            "{ interface = 'e', hosts = ['b', 'b'], delay = '1ms' }" => "line 7: link: names e on b twice";
            "{ relay = true, interface = 'e', delay = '1ms' }" => "line 7: link.interface: requires tc netem";
            "{ relay = true, loss = '1%' }" => "line 7: link.loss: requires tc netem";
        };
        assert_refused("link", &cases);
    }
}
