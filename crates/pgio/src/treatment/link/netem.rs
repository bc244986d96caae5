//! tc netem on an interface of a host, or on one of each of two.
//!
//! Only a root qdisc of the kernel's own is replaced, and only ours is deleted, by its handle; the
//! kernel then puts its own back. A guard on each host does the same when we are gone. Next:
//! [`super::survey`] for what is found out before, [`super::qdisc`] for whose it is, [`super::proof`]
//! for what came of it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::qdisc::{self, HANDLE, Root};
use super::shape::Shape;
use super::survey::{carries_our_connection, check_end, root_of, round_trip, tc, way_to};
use super::{KIND, proof};
use crate::host::Host;
use crate::host::command::quoted;
use crate::host::exec::{Exec, ExecError};
use crate::results::change::{Change, Subject};
use crate::results::model::{Check, Evidence, Trial, When};
use crate::treatment::guard::{Guard, Script};
use crate::treatment::{
    Machines, Outlook, Resource, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World,
};

/// Of the delay that was asked for, at least this share must be seen in the round trip.
const SEEN: f64 = 0.8;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// Absent: the server's.
    pub(super) host: Option<String>,
    pub(super) interface: String,
    pub(super) shape: Shape,
    /// An address to measure the round trip to.
    pub(super) ping: Option<String>,
}

impl End {
    /// In words.
    pub(super) fn place(&self) -> String {
        let on = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        format!("{}{on}", self.interface)
    }
}

#[derive(Debug)]
pub(super) struct Netem {
    ends: Vec<End>,
    /// One for each end, while it is in force.
    guards: RefCell<Vec<Guard>>,
    /// Milliseconds before, by the number of the end.
    before: RefCell<Vec<Option<f64>>>,
}

impl Netem {
    pub(super) fn new(ends: Vec<End>) -> Netem {
        Netem { ends, guards: RefCell::default(), before: RefCell::default() }
    }

    fn round_trips(&self, world: &World<'_>) -> Result<Vec<Option<f64>>, TreatmentError> {
        let one = |end: &End| {
            let Some(address) = &end.ping else { return Ok(None) };
            let host = world.host(end.host.as_deref())?;
            round_trip(&host, address).map(Some)
        };
        self.ends.iter().map(one).collect()
    }

    /// What the round trip to the address of this end grows by at least. One address is the other
    /// end's; where there are several, they may be those of several links.
    fn growth(&self, end: &End) -> Duration {
        match self.ends.iter().filter(|end| end.ping.is_some()).count() {
            0 | 1 => self.ends.iter().map(|end| end.shape.least_delay()).sum(),
            _ => end.shape.least_delay(),
        }
    }

    /// Where no round trip grows: by which interface the address is reached.
    fn ways(&self, world: &World<'_>, when: When) -> Vec<Evidence> {
        if when != When::Before || proof::grows_the_round_trip(&self.ends) {
            return Vec::new();
        }
        let one = |end: &End| {
            let address = end.ping.as_ref()?;
            let host = world.host(end.host.as_deref()).ok()?;
            let found = way_to(&host, address).ok().flatten();
            Some(Evidence {
                when,
                what: proof::way_to(address, end),
                found: found.unwrap_or_else(|| "unknown".to_owned()),
                expected: None,
            })
        };
        self.ends.iter().filter_map(one).collect()
    }
}

impl Treatment for Netem {
    fn changes(&self) -> Vec<Change> {
        let change = |end: &End| {
            let subject = Subject::Link { interface: Some(end.interface.clone()) };
            Change::new(end.host.as_deref(), subject, "shape", end.shape.to_string())
        };
        self.ends.iter().map(change).collect()
    }

    fn intents(&self) -> Vec<String> {
        let how = "by tc netem in place of the interface's own queueing discipline";
        self.changes().into_iter().map(|link| format!("{link} {how}")).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let one = |end: &End| {
            let host = world.host(end.host.as_deref())?;
            let now = match root_of(&host, &end.interface)? {
                Root::Default(kind) => format!("the kernel's own ({kind})"),
                Root::Ours(shape) => shape.to_string(),
                Root::Other(text) => text,
            };
            Ok(Outlook {
                what: format!("link of {} on host {}", end.interface, host.name()),
                now,
                then: end.shape.to_string(),
                how: match carries_our_connection(&host, &end.interface)? {
                    true => "by tc netem, which slows pgio's own ssh connection as well",
                    false => "by tc netem",
                },
            })
        };
        self.ends.iter().map(one).collect()
    }

    /// All of it is asked of the host.
    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.ends.iter().try_for_each(|end| check_end(&*machines.host(end.host.as_deref())?, end))
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        self.ends.iter().try_for_each(|end| check_end(&*world.host(end.host.as_deref())?, end))
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let of = |end: &End| {
            let host = world.host(end.host.as_deref())?;
            Ok(Touch::Of(Resource::on(&host, format!("interface {}", end.interface))))
        };
        self.ends.iter().map(of).collect()
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        self.guards.borrow_mut().clear();
        *self.before.borrow_mut() = self.round_trips(world)?;
        let one = |end: &End| {
            let host = world.host(end.host.as_deref())?;
            let Root::Default(kind) = root_of(&host, &end.interface)? else {
                // Not so when it was checked.
                return check_end(&host, end).and(Err(TreatmentError::Refused(format!(
                    "the queueing discipline of {} changes at this moment",
                    end.place()
                ))));
            };
            Ok(Step {
                kind: KIND.name.to_owned(),
                what: end.interface.clone(),
                host: Some(host.name().to_owned()),
                prior: json!(kind),
                ours: json!(end.shape.netem_words().join(" ")),
            })
        };
        self.ends.iter().map(one).collect()
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let host = world.host(step.host.as_deref())?;
        let interface = quoted(OsStr::new(&step.what));
        let functions = "LC_ALL=C PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH";
        // The handle makes this a mistake without consequences where it is not ours.
        let release =
            format!("tc qdisc del dev {interface} root handle {HANDLE} netem 2>/dev/null");
        let words = step.ours.as_str().unwrap_or_default();
        let apply = format!("tc qdisc add dev {interface} root handle {HANDLE} netem {words}");
        let answer = format!("tc -s -j qdisc show dev {interface}");
        let (apply, release, answer) = (&apply, &release, &answer);
        let mut guard = Guard::start(&host, &Script { functions, apply, release, answer })?;
        guard.apply()?;
        self.guards.borrow_mut().push(guard);
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let after = self.round_trips(world)?;
        for (end, (before, after)) in self.ends.iter().zip(self.before.borrow().iter().zip(&after))
        {
            let wanted = self.growth(end).as_secs_f64() * 1e3;
            if let (Some(address), Some(before), Some(after)) = (&end.ping, before, after)
                && is_missing(after - before, wanted)
            {
                return Err(TreatmentError::Refused(format!(
                    "the quickest round trip to {address} went from {before:.2} ms to {after:.2} ms, and at least {wanted:.2} ms more was asked for: does the way there go over {}?",
                    end.interface
                )));
            }
        }
        Ok(())
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut guards = self.guards.borrow_mut();
        if guards.is_empty() {
            return vec![unreadable(when, "link")];
        }
        let mut all = self.ways(world, when);
        for (end, guard) in self.ends.iter().zip(guards.iter_mut()) {
            let what = format!("netem on {}", end.place());
            let Ok(json) = guard.ask("") else {
                all.push(unreadable(when, &what));
                continue;
            };
            let found = match qdisc::root(&json) {
                Some(Root::Ours(found)) if end.shape.is_close_to(&found) => end.shape.to_string(),
                Some(Root::Ours(found)) => found.to_string(),
                Some(Root::Default(_)) => "none".to_owned(),
                Some(Root::Other(text)) => text,
                None => "unreadable".to_owned(),
            };
            all.push(Evidence { when, what, found, expected: Some(end.shape.to_string()) });
            if let (When::Before | When::After, Some(packets)) = (when, qdisc::packets(&json)) {
                let what = proof::packets_through(end);
                all.push(Evidence { when, what, found: packets.to_string(), expected: None });
            }
        }
        all
    }

    fn judge(&self, trial: &Trial) -> Vec<Check> {
        proof::judge(trial, &self.ends)
    }

    fn round_trip(&self) -> Option<Duration> {
        // Each end delays what leaves it.
        Some(self.ends.iter().map(|end| end.shape.delay).sum())
    }

    fn taken_back(&self) {
        self.guards.borrow_mut().clear();
    }
}

/// Of a delay in milliseconds. Without one a round trip may as well be a little quicker than before.
fn is_missing(grown: f64, wanted: f64) -> bool {
    wanted > 0.0 && grown < wanted * SEEN
}

fn unreadable(when: When, what: &str) -> Evidence {
    let expected = Some("readable".to_owned());
    Evidence { when, what: what.to_owned(), found: "unreadable".to_owned(), expected }
}

/// Deletes ours; what the kernel then puts there is what was found.
pub(super) fn undo(
    world: &mut World<'_>,
    step: &Step,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    if step.host.is_none() {
        return super::relayed::undo(world);
    }
    let host = world.host(step.host.as_deref())?;
    let interface = step.what.as_str();
    if !host.exists(&Path::new("/sys/class/net").join(interface))? {
        // An interface that is gone took ours with it.
        return Ok(Undone::PutBack);
    }
    let root = root_of(&host, interface)?;
    let asked = step.ours.as_str().unwrap_or_default();
    match (&root, stranger) {
        (Root::Default(_), _) => Ok(Undone::PutBack),
        (Root::Ours(shape), _) if is_asked(shape, asked) => {
            delete(&host, interface, &[HANDLE, "netem"])
        }
        (_, Stranger::Keep) => Ok(Undone::Kept),
        // Only a qdisc of the kernel's own was ever replaced, and that is what comes back.
        (_, Stranger::Restore) => delete(&host, interface, &[]),
        (other, Stranger::Ask) => Err(TreatmentError::ChangedSince {
            what: format!("the queueing discipline of {interface} on host {}", host.name()),
            found: match other {
                Root::Ours(shape) => format!("netem {shape}"),
                Root::Other(text) | Root::Default(text) => text.clone(),
            },
            ours: format!("netem {asked}"),
            prior: step.prior.as_str().unwrap_or("the kernel's own").to_owned(),
        }),
    }
}

fn delete(host: &Host, interface: &str, handle: &[&str]) -> Result<Undone, TreatmentError> {
    let mut words = vec!["qdisc", "del", "dev", interface, "root"];
    if !handle.is_empty() {
        words.push("handle");
        words.extend(handle);
    }
    match host.run(&tc(&words)) {
        Ok(_) => Ok(Undone::PutBack),
        // A guard may have been quicker.
        Err(error @ ExecError::Failed { .. }) => match root_of(host, interface)? {
            Root::Default(_) => Ok(Undone::PutBack),
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whether what is there was made from these words.
fn is_asked(found: &Shape, words: &str) -> bool {
    Shape::of_words(words).is_some_and(|asked| asked.is_close_to(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_must_be_seen_and_a_rate_alone_has_none() {
        assert!(is_missing(1.5, 2.0) && is_missing(-0.1, 2.0));
        assert!(!is_missing(1.6, 2.0) && !is_missing(-0.1, 0.0));
    }

    #[test]
    fn a_round_trip_grows_by_what_each_packet_is_delayed_by_on_its_link() {
        let milliseconds = Duration::from_millis;
        let shape = Shape { delay: milliseconds(10), jitter: milliseconds(4), ..Shape::default() };
        let end = |ping: Option<&str>| End {
            host: None,
            interface: "eth1".to_owned(),
            shape: shape.clone(),
            ping: ping.map(str::to_owned),
        };
        let link = Netem::new(vec![end(Some("10.0.0.2")), end(None)]);
        assert_eq!(link.growth(&link.ends[0]), milliseconds(12));
        let links = Netem::new(vec![end(Some("10.0.0.2")), end(Some("10.0.1.2"))]);
        assert_eq!(links.growth(&links.ends[1]), milliseconds(6));
    }

    #[test]
    fn the_words_of_a_step_are_read_back() {
        let shape = Shape {
            delay: Duration::from_micros(1500),
            jitter: Duration::from_micros(100),
            loss: 0.01,
            rate: 100_000_000,
        };
        for shape in [
            shape.clone(),
            Shape { jitter: Duration::ZERO, ..shape.clone() },
            Shape { delay: Duration::ZERO, jitter: Duration::ZERO, ..shape },
        ] {
            assert_eq!(Shape::of_words(&shape.netem_words().join(" ")), Some(shape));
        }
        assert_eq!(Shape::of_words("delay"), None);
    }
}
