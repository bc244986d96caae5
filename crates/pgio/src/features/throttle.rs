//! `throttle = { device, host, read_iops, write_iops, read_bytes, write_bytes, scope }`: a slower
//! device, by the kernel's block I/O controller.
//!
//! With cgroup v1 the limit goes to the root group, where the kernel's threads write back what
//! PostgreSQL left in the page cache and where DRBD's threads live; a server in another
//! group is moved there meanwhile. With v2 the root has no limits: the limit goes to the server's own
//! group, which does not hold the kernel threads of a secondary.
//!
//! Our numbers in the kernel's files are evidence but no proof: threads in another group escape a
//! limit of v1. [`judge_limits`] proves the limit by what the device did. The steps and their undo are in
//! [`steps`], the checks in [`placement`], the disk's in [`disks`].

mod disks;
mod placement;
mod steps;

use std::collections::BTreeMap;

use self::placement::{Placement, Scope};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::host::blkio::{self, Limit, Version};
use crate::treatment::body::{self, Body};
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{
    Declared, InForce, Kind, Prepared, Preview, Treatment, failed_reading,
};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use pgio_results::change::{Change, Subject};
use pgio_results::checks::{CheckDef, def};
use pgio_results::model::{Check, Evidence, Trial, When};
use pgio_results::telemetry::DeviceUse;
use pgio_results::thresholds::Share;
use pgio_results::units::exact_bytes;

pub(super) static FEATURE: Feature = Feature {
    name: "throttle",
    treatments: &[KIND],
    checks,
    examples: &[example!("io-throttle")],
    ..Feature::NONE
};

/// Below this share of a limit it can have delayed bursts only.
const REACHED: Share = Share(0.8);
/// Tolerated excess; a limit exceeded by more was not in force.
const EXCESS: Share = Share(0.02);
/// Tolerated burst in addition, in seconds of the limit.
const BURST_SECONDS: f64 = 0.3;

fn checks() -> Vec<CheckDef> {
    vec![def(
        "throttle",
        "a throttled device exceeded its limit, or was not observed",
        format!(
            "the device used less than {REACHED} of its limit, so at most bursts can have reached it"
        ),
        "check that the processes that use it are in the limited cgroup, and that the workload is large enough",
    )]
}

const KIND: Kind = Kind {
    name: steps::KIND,
    help: "limits of a block device: { device = \"/dev/sdb\", write_iops = 500 }; also read_iops, read_bytes, write_bytes (per second), host = the machine's name if it is not the server's, scope = \"server\" or \"root\" (the processes that cgroup v1 limits), mount = \"/\" if the disk holds the root file system and the whole machine may be limited",
    parse,
    read: steps::read,
};

const KEYS: &[&str] =
    &["device", "host", "read_iops", "write_iops", "read_bytes", "write_bytes", "scope", "mount"];
const EXAMPLE: &str = "{ device = \"/dev/sdb\", write_iops = 500 }";

#[derive(Debug, Clone)]
struct Throttle {
    device: String,
    /// None means the server's host.
    host: Option<String>,
    scope: Option<Scope>,
    /// Whether the file confirms the disk of the root file system.
    may_hold_root: bool,
    limits: Limits,
}

/// The throttle of a trial. Keeps the placement, because the record has only the path in /dev.
#[derive(Debug)]
struct ThrottleInForce {
    placement: Placement,
    limits: Limits,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let mut limits = Limits::new();
    for limit in Limit::ALL {
        let value = match limit {
            Limit::ReadIops | Limit::WriteIops => {
                body.integer(limit.name(), 0..=u32::MAX.into())?
            }
            Limit::ReadBytes | Limit::WriteBytes => body.bytes(limit.name())?,
        };
        let Some(value) = value else { continue };
        if value < minimum(limit) {
            return Err(body.error(limit.name(), too_low(limit)));
        }
        limits.insert(limit, value);
    }
    if limits.is_empty() {
        let names = Limit::ALL.map(Limit::name).join(", ");
        return Err(body::error(spec, steps::KIND, &format!("limits nothing: add one of {names}")));
    }
    let device = body.required("device", "the block device, such as \"/dev/sdb\"")?;
    if !device.starts_with("/dev/") {
        return Err(body.error("device", format!("must be a path in /dev, not \"{device}\"")));
    }
    let scope = body.one_of("scope", &["server", "root"])?;
    let scope = scope.map(|name| if name == "root" { Scope::Root } else { Scope::Server });
    let mount = body.text("mount")?;
    if let Some(other) = mount.filter(|mount| *mount != "/") {
        return Err(body.error(
            "mount",
            format!("can only be \"/\", which confirms the disk of the root file system, not \"{other}\""),
        ));
    }
    Ok(Box::new(Throttle {
        device: device.to_owned(),
        host: body.text("host")?.map(str::to_owned),
        scope,
        may_hold_root: mount.is_some(),
        limits,
    }))
}

impl Throttle {
    fn placement(&self, context: &mut Context<'_>) -> Result<Placement, TreatmentError> {
        Placement::find(context, self.host.as_deref(), &self.device, self.scope)
    }
}

impl Treatment for Throttle {
    fn declared(&self) -> Declared {
        let change = |(limit, value): (&Limit, &u64)| {
            let subject = Subject::Device { path: self.device.clone() };
            Change::new(self.host.as_deref(), subject, limit.name(), format_value(*limit, *value))
        };
        let changes: Vec<Change> = self.limits.iter().map(change).collect();
        let how = match self.scope {
            Some(Scope::Root) => "in the root group of cgroup v1",
            Some(Scope::Server) | None => {
                "in the root group of cgroup v1, where a server in another group is moved meanwhile, or in the server's group of v2"
            }
        };
        let intents = changes.iter().map(|limit| format!("{limit} {how}")).collect();
        Declared { changes, intents, ..Declared::default() }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let placement = self.placement(context)?;
        let found = placement.current_limits(context)?;
        let how = if disks::limits_whole_machine(&placement, context)? {
            "in the root group of cgroup v1, for the whole machine"
        } else {
            placement.how()
        };
        let line = |(limit, value): (&Limit, &u64)| Preview {
            what: placement.describe_limit(*limit),
            now: found.get(limit).map_or("none".to_owned(), |v| format_value(*limit, *v)),
            then: format_value(*limit, *value),
            how,
        };
        Ok(self.limits.iter().map(line).collect())
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let placement = self.placement(context)?;
        let host = context.host(Some(&placement.host))?;
        let device = format!("device {}", placement.disk.number);
        let group = placement.group_touched();
        let all = std::iter::once(device).chain(group);
        Ok(all.map(|what| Touch::Resource(Resource::on(&host, what))).collect())
    }

    fn check_shared(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        self.placement(context)?.check_shared(&self.device)
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(self.host.as_deref())?;
        placement::check_rights(&host, &self.limits)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let placement = self.placement(context)?;
        placement.check(&self.device, &self.limits, context)?;
        disks::check_root_disk(&placement, &self.device, self.may_hold_root, context)?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for Throttle {
    /// Finds the placement again: a restart gives the server another process.
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let placement = self.placement(context)?;
        placement.apply(&self.limits, context, journal)?;
        Ok(Box::new(ThrottleInForce { placement, limits: self.limits.clone() }))
    }
}

impl InForce for ThrottleInForce {
    /// Reads with one command, so that it can run inside the window as well.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let ThrottleInForce { placement, limits } = self;
        let names: Vec<Limit> = limits.keys().copied().collect();
        let mut ask = placement.limits.reading(&names);
        if let Some(server) = &placement.server {
            ask = ask.arg(server.cgroup_file());
        }
        let text =
            context.host(Some(&placement.host)).and_then(|host| Ok(blkio::lines(&*host, &ask)?));
        let Ok(text) = text else {
            return limits
                .keys()
                .map(|limit| failed_reading(when, &placement.describe_limit(*limit)))
                .collect();
        };
        let found = placement.limits.read(&text);
        let evidence = |what: String, found: Option<String>, expected: String| Evidence {
            when,
            what,
            found: found.unwrap_or_else(|| "none".to_owned()),
            expected: Some(expected),
        };
        let mut all: Vec<Evidence> = limits
            .iter()
            .map(|(limit, value)| {
                let found = found.get(limit).map(|v| format_value(*limit, *v));
                evidence(placement.describe_limit(*limit), found, format_value(*limit, *value))
            })
            .collect();
        if let Some(server) = &placement.server {
            let group = server.group_in(&text, placement.controller.version).map(str::to_owned);
            let what = format!("{} of PostgreSQL on {}", steps::GROUP, placement.host);
            all.push(evidence(what, group, server.target_group.clone()));
        }
        all
    }

    fn judge(&self, trial: &Trial) -> Vec<Check> {
        let device = Device {
            host: &self.placement.host,
            name: &self.placement.disk.name,
            version: self.placement.controller.version,
        };
        judge_limits(trial, device, &self.limits)
    }
}

#[cfg(test)]
mod tests;

/// Requests or bytes per second.
type Limits = BTreeMap<Limit, u64>;

/// A start of PostgreSQL 15 from a cold cache takes some 70 writes and 120 reads, a shutdown 50
/// writes: measured at this limit 11 s and 5 s, while pg_ctl waits for 60 s.
const MIN_IOPS: u64 = 10;
/// A WAL segment of 16 MB then takes a quarter of a minute, a start no longer than without.
const MIN_BYTES: u64 = 1 << 20;

fn minimum(limit: Limit) -> u64 {
    match limit {
        Limit::ReadIops | Limit::WriteIops => MIN_IOPS,
        Limit::ReadBytes | Limit::WriteBytes => MIN_BYTES,
    }
}

fn too_low(limit: Limit) -> String {
    format!(
        "must be at least {}: with less PostgreSQL barely starts, and 0 means no limit",
        format_value(limit, minimum(limit))
    )
}

/// The value as written in the file.
fn format_value(limit: Limit, value: u64) -> String {
    match limit {
        Limit::ReadIops | Limit::WriteIops => value.to_string(),
        Limit::ReadBytes | Limit::WriteBytes => exact_bytes(value),
    }
}

const CHECK_ID: &str = "throttle";

#[derive(Debug, Clone, Copy)]
struct Device<'a> {
    host: &'a str,
    /// The kernel's name.
    name: &'a str,
    /// The controller's version.
    version: Version,
}

/// One verdict for each limit.
fn judge_limits(trial: &Trial, device: Device<'_>, limits: &Limits) -> Vec<Check> {
    let Device { host, name, .. } = device;
    let telemetry = trial.telemetry.as_ref();
    let Some(used) = telemetry.and_then(|t| t.hosts.get(host)?.devices.get(name)) else {
        return vec![Check::invalid(
            CHECK_ID,
            format!("{name} on {host} was not observed, so its limits are unproven"),
            "turn telemetry on, and see its warnings",
        )];
    };
    limits.iter().map(|(limit, value)| judge_limit(*limit, *value, used, trial, device)).collect()
}

fn judge_limit(
    limit: Limit,
    value: u64,
    used: &DeviceUse,
    trial: &Trial,
    Device { host, name, version }: Device<'_>,
) -> Check {
    let (measured, unit) = measured(limit, used);
    let uncharged = match (version, limit) {
        (Version::V2, Limit::WriteIops) => used.flushes_per_second.unwrap_or(0.0),
        _ => 0.0,
    };
    let asked = value as f64;
    let most = asked * (1.0 + EXCESS.0 + BURST_SECONDS / trial.window.seconds.max(BURST_SECONDS));
    let message = format!(
        "{name} on {host} did {measured:.0} {unit}, with {} = {}",
        limit.name(),
        format_value(limit, value)
    );
    if measured - uncharged > most {
        Check::invalid(
            CHECK_ID,
            format!("{message}: the limit was not in force"),
            "processes that write there must be in the limited group; kernel threads are in cgroup v1's root group",
        )
    } else if measured < asked * REACHED.0 {
        Check::warning(
            CHECK_ID,
            format!("{message}: below the limit on average, so only bursts can have been delayed"),
            "check what the sessions waited for; lower the limit, or run more work",
        )
    } else {
        Check::ok(CHECK_ID, message)
    }
}

fn measured(limit: Limit, used: &DeviceUse) -> (f64, &'static str) {
    match limit {
        Limit::ReadIops => (used.reads_per_second, "reads/s"),
        Limit::WriteIops => (
            used.writes_per_second + used.merged_writes_per_second,
            "writes/s (completed and merged)",
        ),
        Limit::ReadBytes => (used.read_bytes_per_second, "bytes/s of reads"),
        Limit::WriteBytes => (used.written_bytes_per_second, "bytes/s of writes"),
    }
}
