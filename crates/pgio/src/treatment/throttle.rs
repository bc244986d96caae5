//! `throttle = { device, host, read_iops, write_iops, read_bytes, write_bytes, scope }`: a slower
//! device, by the kernel's block I/O controller.
//!
//! With cgroup v1 the limit goes to the root group, where the kernel's threads write back what
//! PostgreSQL left in the page cache and where DRBD's threads live; a server that lives in another
//! group is moved there for the time. With v2 the root has no limits: it goes to the server's own
//! group, which a secondary's kernel threads are not in.
//!
//! That the files hold our numbers is evidence, and no proof: threads in another group escape a
//! limit of v1. The proof is what the device did, in [`judge`]. The steps and their way back are in
//! [`steps`], what is refused in [`spot`], for a host that is not the server's in [`elsewhere`], and on the
//! disk of the root file system in [`whole`].

mod elsewhere;
mod judge;
mod spot;
mod steps;
mod whole;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::json;

use self::spot::Spot;
use super::body::Body;
use super::{Kind, Machines, Outlook, Resource, Step, Touch, Treatment, TreatmentError, World};
use crate::config::experiment::TreatmentSpec;
use crate::host::blkio::{self, Limit};
use crate::results::change::{Change, Subject};
use crate::results::model::{Check, Evidence, Trial, When};
use crate::units::exact_bytes;

pub(super) const KIND: Kind = Kind {
    name: "throttle",
    help: "limits of a block device: { device = \"/dev/sdb\", write_iops = 500 }; also read_iops, read_bytes, write_bytes (per second), host = the machine's name where it is not the server's, scope = \"server\" or \"root\" (whom cgroup v1 limits), mount = \"/\" where the disk holds the root file system and the whole machine may be limited",
    parse,
    undo: steps::undo,
};

const KEYS: &[&str] =
    &["device", "host", "read_iops", "write_iops", "read_bytes", "write_bytes", "scope", "mount"];
const EXAMPLE: &str = "{ device = \"/dev/sdb\", write_iops = 500 }";

/// A start of PostgreSQL 15 from a cold cache takes some 70 writes and 120 reads, a shutdown 50
/// writes: measured at this limit 11 s and 5 s, while pg_ctl waits for 60 s.
const LEAST_IOPS: u64 = 10;
/// A WAL segment of 16 MB then takes a quarter of a minute, a start no longer than without.
const LEAST_BYTES: u64 = 1 << 20;

/// Whom a limit of cgroup v1 is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// PostgreSQL, which is moved to the root group, and whoever is there.
    Server,
    /// Whoever is in the root group.
    Root,
}

#[derive(Debug)]
struct Throttle {
    device: String,
    /// The server's where it is absent.
    host: Option<String>,
    scope: Option<Scope>,
    /// Whether the file says that the disk of the root file system is meant.
    root_is_meant: bool,
    limits: BTreeMap<Limit, u64>,
    /// As the last probe found it: the record alone does not say what a path in /dev is.
    spot: RefCell<Option<Spot>>,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let mut limits = BTreeMap::new();
    for limit in Limit::ALL {
        let value = match limit {
            Limit::ReadIops | Limit::WriteIops => body.whole(limit.name(), 0..=u32::MAX.into())?,
            Limit::ReadBytes | Limit::WriteBytes => body.bytes(limit.name())?,
        };
        let Some(value) = value else { continue };
        if value < least(limit) {
            return Err(body.error(limit.name(), too_low(limit)));
        }
        limits.insert(limit, value);
    }
    if limits.is_empty() {
        let names = Limit::ALL.map(Limit::name).join(", ");
        return Err(super::body::error(
            spec,
            KIND.name,
            &format!("limits nothing: add one of {names}"),
        ));
    }
    let device = body.required("device", "the block device, such as \"/dev/sdb\"")?;
    if !device.starts_with("/dev/") {
        return Err(body.error("device", format!("must be a path in /dev, not \"{device}\"")));
    }
    let scope = body.one_of("scope", &["server", "root"])?.map(|name| match name {
        "root" => Scope::Root,
        _ => Scope::Server,
    });
    let mount = body.text("mount")?;
    if let Some(other) = mount.filter(|mount| *mount != "/") {
        return Err(body.error(
            "mount",
            format!("can only be \"/\", which confirms that the disk of the root file system is meant, not \"{other}\""),
        ));
    }
    Ok(Box::new(Throttle {
        device: device.to_owned(),
        host: body.text("host")?.map(str::to_owned),
        scope,
        root_is_meant: mount.is_some(),
        limits,
        spot: RefCell::new(None),
    }))
}

fn least(limit: Limit) -> u64 {
    match limit {
        Limit::ReadIops | Limit::WriteIops => LEAST_IOPS,
        Limit::ReadBytes | Limit::WriteBytes => LEAST_BYTES,
    }
}

fn too_low(limit: Limit) -> String {
    format!(
        "must be at least {}: with less PostgreSQL can hardly start, and 0 would mean no limit",
        shown(limit, least(limit))
    )
}

/// As one writes it into the file.
fn shown(limit: Limit, value: u64) -> String {
    match limit {
        Limit::ReadIops | Limit::WriteIops => value.to_string(),
        Limit::ReadBytes | Limit::WriteBytes => exact_bytes(value),
    }
}

impl Treatment for Throttle {
    fn changes(&self) -> Vec<Change> {
        let change = |(limit, value): (&Limit, &u64)| {
            let subject = Subject::Device { path: self.device.clone() };
            Change::new(self.host.as_deref(), subject, limit.name(), shown(*limit, *value))
        };
        self.limits.iter().map(change).collect()
    }

    fn intents(&self) -> Vec<String> {
        let how = match self.scope {
            Some(Scope::Root) => "in the root group of cgroup v1",
            _ => {
                "in the root group of cgroup v1, where a server in another group is moved for the time, or in the server's group of v2"
            }
        };
        self.changes().into_iter().map(|limit| format!("{limit} {how}")).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let spot = self.spot(world)?;
        let found = spot.found(world)?;
        let whole = match whole::is_limited(&spot, world)? {
            true => "in the root group of cgroup v1, for the whole machine",
            false => spot.how(),
        };
        let line = |(limit, value): (&Limit, &u64)| Outlook {
            what: spot.names(*limit),
            now: found.get(limit).map_or("none".to_owned(), |v| shown(*limit, *v)),
            then: shown(*limit, *value),
            how: whole,
        };
        Ok(self.limits.iter().map(line).collect())
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(self.host.as_deref())?;
        spot::check_rights(&host, &self.limits)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let spot = self.spot(world)?;
        spot.refuse_what_cannot_be(&self.device, &self.limits, world)?;
        whole::check(&spot, &self.device, self.root_is_meant, world)
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let spot = self.spot(world)?;
        let host = world.host(Some(&spot.host))?;
        let device = format!("device {}", spot.disk.number);
        Ok(vec![Touch::Of(Resource::on(&host, device))])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let spot = self.spot(world)?;
        let steps = spot.steps(&self.limits, world);
        *self.spot.borrow_mut() = Some(spot);
        steps
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        steps::apply(world, step)
    }

    fn settle(&self, _world: &mut World<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }

    /// One command, so that it may be asked inside the window as well.
    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let spot = self.spot.borrow();
        let Some(spot) = spot.as_ref() else { return Vec::new() };
        let limits: Vec<Limit> = self.limits.keys().copied().collect();
        let mut ask = spot.limits.reading(&limits);
        if let Some(server) = &spot.server {
            ask = ask.arg(server.cgroup_file());
        }
        let text = world.host(Some(&spot.host)).and_then(|host| Ok(blkio::lines(&*host, &ask)?));
        let text = text.unwrap_or_default();
        let found = spot.limits.read(&text);
        let evidence = |what: String, found: Option<String>, expected: String| Evidence {
            when,
            what,
            found: found.unwrap_or_else(|| "none".to_owned()),
            expected: Some(expected),
        };
        let mut all: Vec<Evidence> = self
            .limits
            .iter()
            .map(|(limit, value)| {
                let found = found.get(limit).map(|v| shown(*limit, *v));
                evidence(spot.names(*limit), found, shown(*limit, *value))
            })
            .collect();
        if let Some(server) = &spot.server {
            let group = server.group_in(&text, spot.controller.version).map(str::to_owned);
            let what = format!("{} of PostgreSQL on {}", steps::GROUP, spot.host);
            all.push(evidence(what, group, server.group_then.clone()));
        }
        all
    }

    fn judge(&self, trial: &Trial) -> Vec<Check> {
        let spot = self.spot.borrow();
        let Some(spot) = spot.as_ref() else { return Vec::new() };
        let device = judge::Device {
            host: &spot.host,
            name: &spot.disk.name,
            version: spot.controller.version,
        };
        judge::judge(trial, device, &self.limits)
    }
}

/// One step as the journal keeps it.
fn step(spot: &Spot, what: String, prior: serde_json::Value, ours: &steps::Change) -> Step {
    Step {
        kind: KIND.name.to_owned(),
        what,
        host: Some(spot.host.clone()),
        prior,
        ours: json!(ours),
    }
}

#[cfg(test)]
mod tests;
