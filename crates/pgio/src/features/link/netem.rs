//! tc netem on an interface of a host, or on one of each of two.
//!
//! Only a root qdisc that the kernel chose and would choose again is replaced, and only ours is deleted,
//! by its handle; the kernel then makes its own. A guard on each host does the same when pgio ends. Next:
//! [`super::survey`] for the checks, [`super::qdisc`] for whose a qdisc is, [`super::proof`]
//! for what a trial proves.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::proof;
use super::qdisc::{self, End, HANDLE, LinkSettings, Root};
use super::survey::{
    carries_our_connection, check_end, interface_to, own_kinds, restored_kinds, root_of,
    round_trip, tc,
};
use crate::host::Host;
use crate::host::command::quoted;
use crate::host::exec::{Exec, ExecError};
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{Declared, InForce, Prepared, Preview, Treatment, failed_reading};
use crate::treatment::error::TreatmentError;
use crate::treatment::guard::{Guard, Mark, Script, end_leftover_guard};
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Check, Evidence, Trial, When};

pub(super) const KIND: &str = "link";

/// At least this share of the delay must be seen in the round trip.
const MIN_SEEN_SHARE: f64 = 0.8;

/// A netem qdisc on an interface, which its label names: the kinds of the kernel's own qdiscs that it replaces, see
/// [`qdisc::own_kinds`], and the words after `netem`.
pub(super) type NetemStep = StepOf<String, String>;

impl Undo for NetemStep {
    const KIND: &'static str = KIND;

    /// Deletes ours; the kernel then makes its own, which must be the former.
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        let interface = self.label.what.as_str();
        if !host.exists(&Path::new("/sys/class/net").join(interface))? {
            // Our qdisc vanished with its interface.
            return Ok(Undone::Restored);
        }
        if !context.precedes_trial() {
            end_leftover_guard(&host, &self.mark())?;
        }
        let found = match root_of(&host, interface)? {
            Root::Default(_) => return self.check_restored(&host, on_conflict),
            Root::Ours(shape) if matches_words(&shape, &self.ours) => {
                delete(&host, interface, &[HANDLE, "netem"])?;
                return self.check_restored(&host, on_conflict);
            }
            Root::Ours(shape) => format!("netem {shape}"),
            Root::Other(text) => text,
        };
        if on_conflict.overwrites(|| self.conflict(found))? {
            // Only a qdisc that the kernel chose was ever replaced.
            delete(&host, interface, &[])?;
            self.check_restored(&host, on_conflict)
        } else {
            Ok(Undone::Kept)
        }
    }
}

impl NetemStep {
    fn mark(&self) -> Mark {
        Mark::new("netem", &self.label.what)
    }

    fn conflict(&self, found: String) -> TreatmentError {
        let what = format!("the queueing discipline of {}", self.label.what);
        let label = Label { what, ..self.label.clone() };
        let ours = format!("netem {}", self.ours);
        TreatmentError::changed_since(&label, found, ours, self.prior.as_str())
    }

    /// The kernel has made its own qdiscs again, of another kind if someone changed its default meanwhile.
    fn check_restored(
        &self,
        host: &Host,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let interface = self.label.what.as_str();
        let found = own_kinds(host, interface)?.join(" ");
        if qdisc::is_as_before(&self.prior, &found) {
            return Ok(Undone::Restored);
        }
        if !on_conflict.overwrites(|| self.conflict(found.clone()))? {
            return Ok(Undone::Kept);
        }
        let default = self.prior.rsplit(' ').next().unwrap_or_default();
        Err(TreatmentError::Refused(format!(
            "{interface} on host {} has the queueing discipline {found} instead of {}, because net.core.default_qdisc was changed meanwhile: run `sysctl -w net.core.default_qdisc={default}`, `tc qdisc add dev {interface} root pfifo` and `tc qdisc del dev {interface} root` there, then rerun `pgio undo`",
            host.name(),
            self.prior
        )))
    }

    fn apply(&self, host: &Host) -> Result<Guard, TreatmentError> {
        let interface = quoted(OsStr::new(&self.label.what));
        let functions = "LC_ALL=C PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH";
        // With the handle this fails without consequences where the qdisc is not ours.
        let release =
            format!("tc qdisc del dev {interface} root handle {HANDLE} netem 2>/dev/null");
        let words = &self.ours;
        let apply = format!("tc qdisc add dev {interface} root handle {HANDLE} netem {words}");
        let answer = format!("tc -s -j qdisc show dev {interface}");
        let (mark, apply, release, answer) = (&self.mark(), &apply, &release, &answer);
        Guard::apply(host, &Script { mark, functions, apply, release, answer })
    }
}

fn delete(host: &Host, interface: &str, handle: &[&str]) -> Result<(), TreatmentError> {
    let mut words = vec!["qdisc", "del", "dev", interface, "root"];
    if !handle.is_empty() {
        words.push("handle");
        words.extend(handle);
    }
    match host.run(&tc(&words)) {
        Ok(_) => Ok(()),
        // A guard may have been quicker.
        Err(error @ ExecError::Failed { .. }) => match root_of(host, interface)? {
            Root::Default(_) => Ok(()),
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whether a qdisc was made with these words.
fn matches_words(found: &LinkSettings, words: &str) -> bool {
    LinkSettings::from_words(words).is_some_and(|asked| asked.is_close_to(found))
}

#[derive(Debug, Clone)]
pub(super) struct Netem {
    pub(super) ends: Vec<End>,
}

/// The link of a trial, with a shell for each end that removes netem if pgio is killed.
#[derive(Debug)]
struct NetemInForce {
    link: Netem,
    guards: Vec<Guard>,
}

impl Netem {
    fn round_trips(&self, context: &Context<'_>) -> Result<Vec<Option<f64>>, TreatmentError> {
        let one = |end: &End| {
            let Some(address) = &end.ping else { return Ok(None) };
            let host = context.host(end.host.as_deref())?;
            round_trip(&host, address).map(Some)
        };
        self.ends.iter().map(one).collect()
    }

    /// The least growth of the round trip to the address of this end. A single address is the other
    /// end's; several addresses may belong to several links.
    fn expected_growth(&self, end: &End) -> Duration {
        match self.ends.iter().filter(|end| end.ping.is_some()).count() {
            0 | 1 => self.ends.iter().map(|end| end.shape.least_delay()).sum(),
            _ => end.shape.least_delay(),
        }
    }

    /// How each address is reached, where no round trip can grow.
    fn route_evidence(&self, context: &Context<'_>, when: When) -> Vec<Evidence> {
        if when != When::Before || proof::adds_delay(&self.ends) {
            return Vec::new();
        }
        let one = |end: &End| {
            let address = end.ping.as_ref()?;
            let host = context.host(end.host.as_deref()).ok()?;
            let found = interface_to(&host, address).ok().flatten();
            Some(Evidence {
                when,
                what: proof::route_name(address, end),
                found: found.unwrap_or_else(|| "unknown".to_owned()),
                expected: None,
            })
        };
        self.ends.iter().filter_map(one).collect()
    }

    fn step(&self, end: &End, context: &Context<'_>) -> Result<NetemStep, TreatmentError> {
        let host = context.host(end.host.as_deref())?;
        let Root::Default(_) = root_of(&host, &end.interface)? else {
            // The qdisc changed since it was checked.
            return check_end(&host, end).and(Err(TreatmentError::Refused(format!(
                "the queueing discipline of {} is being changed",
                end.place()
            ))));
        };
        let prior = restored_kinds(&host, &end.interface)?.join(" ");
        let label = Label::on_host(&end.interface, host.name());
        Ok(NetemStep { label, prior, ours: end.shape.netem_words().join(" ") })
    }

    /// Refuses a delay that the round trip does not show.
    fn check_growth(
        &self,
        before: &[Option<f64>],
        after: &[Option<f64>],
    ) -> Result<(), TreatmentError> {
        for (end, (before, after)) in self.ends.iter().zip(before.iter().zip(after)) {
            let wanted = self.expected_growth(end).as_secs_f64() * 1e3;
            if let (Some(address), Some(before), Some(after)) = (&end.ping, before, after)
                && is_missing(after - before, wanted)
            {
                return Err(TreatmentError::Refused(format!(
                    "the fastest round trip to {address} went from {before:.2} ms to {after:.2} ms, less than the requested increase of {wanted:.2} ms: check that the route goes through {}",
                    end.interface
                )));
            }
        }
        Ok(())
    }
}

impl Treatment for Netem {
    fn declared(&self) -> Declared {
        let change = |end: &End| {
            let subject = Subject::Link { interface: Some(end.interface.clone()) };
            Change::new(end.host.as_deref(), subject, "shape", end.shape.to_string())
        };
        let changes: Vec<Change> = self.ends.iter().map(change).collect();
        let how = "by tc netem, replacing the interface's queueing discipline";
        Declared {
            intents: changes.iter().map(|link| format!("{link} {how}")).collect(),
            changes,
            costs: Vec::new(),
            // Each end delays what leaves it.
            round_trip: Some(self.ends.iter().map(|end| end.shape.delay).sum()),
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let one = |end: &End| {
            let host = context.host(end.host.as_deref())?;
            let now = match root_of(&host, &end.interface)? {
                Root::Default(kind) => format!("the kernel's own ({kind})"),
                Root::Ours(shape) => shape.to_string(),
                Root::Other(text) => text,
            };
            Ok(Preview {
                what: format!("link of {} on host {}", end.interface, host.name()),
                now,
                then: end.shape.to_string(),
                how: if carries_our_connection(&host, &end.interface)? {
                    "by tc netem, which slows pgio's own ssh connection as well"
                } else {
                    "by tc netem"
                },
            })
        };
        self.ends.iter().map(one).collect()
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let end_evidence = |end: &End| {
            let host = context.host(end.host.as_deref())?;
            Ok(Touch::Resource(Resource::on(&host, format!("interface {}", end.interface))))
        };
        self.ends.iter().map(end_evidence).collect()
    }

    /// The same as `check`, which does not ask the server anything.
    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.ends.iter().try_for_each(|end| check_end(&*machines.host(end.host.as_deref())?, end))
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        for end in &self.ends {
            check_end(&*context.host(end.host.as_deref())?, end)?;
        }
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for Netem {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let before = self.round_trips(context)?;
        let steps: Vec<NetemStep> =
            self.ends.iter().map(|end| self.step(end, context)).collect::<Result<_, _>>()?;
        let mut guards = Vec::new();
        for step in &steps {
            let host = context.host(step.label.host())?;
            guards.push(carry_out(journal, step, || step.apply(&host))?);
        }
        self.check_growth(&before, &self.round_trips(context)?)?;
        Ok(Box::new(NetemInForce { link: self.clone(), guards }))
    }
}

impl InForce for NetemInForce {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let mut all = self.link.route_evidence(context, when);
        for (end, guard) in self.link.ends.iter().zip(&mut self.guards) {
            let what = format!("netem on {}", end.place());
            let Ok(json) = guard.ask("") else {
                all.push(failed_reading(when, &what));
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
        proof::judge(trial, &self.link.ends)
    }
}

/// Both in milliseconds. Without a delay a round trip may even be a little quicker than before.
fn is_missing(grown: f64, wanted: f64) -> bool {
    wanted > 0.0 && grown < wanted * MIN_SEEN_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methodology_names_the_share_that_must_be_seen() {
        let share = pgio_results::thresholds::Share(MIN_SEEN_SHARE);
        let sentence = format!("pings by {share} of its delay less its jitter");
        pgio_results::test_support::assert_documented("METHODOLOGY.md", &sentence);
    }

    #[test]
    fn a_delay_is_missing_if_the_round_trip_grew_by_too_little() {
        assert!(is_missing(1.5, 2.0) && is_missing(-0.1, 2.0));
        assert!(!is_missing(1.6, 2.0) && !is_missing(-0.1, 0.0));
    }

    #[test]
    fn a_round_trip_grows_by_what_each_packet_is_delayed_by_on_its_link() {
        let milliseconds = Duration::from_millis;
        let shape = LinkSettings {
            delay: milliseconds(10),
            jitter: milliseconds(4),
            ..LinkSettings::default()
        };
        let end = |ping: Option<&str>| End {
            host: None,
            interface: "eth1".to_owned(),
            shape: shape.clone(),
            ping: ping.map(str::to_owned),
        };
        let link = Netem { ends: vec![end(Some("10.0.0.2")), end(None)] };
        assert_eq!(link.expected_growth(&link.ends[0]), milliseconds(12));
        let links = Netem { ends: vec![end(Some("10.0.0.2")), end(Some("10.0.1.2"))] };
        assert_eq!(links.expected_growth(&links.ends[1]), milliseconds(6));
    }

    #[test]
    fn the_words_of_a_step_are_read_back() {
        let shape = LinkSettings {
            delay: Duration::from_micros(1500),
            jitter: Duration::from_micros(100),
            loss: 0.01,
            rate: 100_000_000,
        };
        for shape in [
            shape.clone(),
            LinkSettings { jitter: Duration::ZERO, ..shape.clone() },
            LinkSettings { delay: Duration::ZERO, jitter: Duration::ZERO, ..shape },
        ] {
            assert_eq!(LinkSettings::from_words(&shape.netem_words().join(" ")), Some(shape));
        }
        assert_eq!(LinkSettings::from_words("delay"), None);
    }
}
