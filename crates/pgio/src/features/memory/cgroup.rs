//! Limits the memory of the server's processes: moves them to a new control group beside or below the
//! one they are in, and back at the end.
//!
//! The limit covers the processes' own memory, pages of shared_buffers that they touch first, and the
//! page cache of what they read; the rest of the host is not limited. Pages read before belong
//! to the former group, which is why caches are dropped. A server that is restarted meanwhile
//! starts outside the group, which the evidence shows. cgroup.sh does the work.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::huge_pages::{KIND, has_huge_pages, refuse_other_sizes, shared_buffers, too_little};
use crate::host::Host;
use crate::host::command::quoted;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::pg::POSTMASTER_OF;
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{Declared, InForce, Prepared, Preview, Treatment, failed_reading};
use crate::treatment::error::TreatmentError;
use crate::treatment::guard::{Guard, Mark, Script, end_leftover_guard};
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};
use pgio_results::units::{exact_bytes, human};

const HOW: &str = "by dropping caches and moving its processes to a control group";

const SCRIPT: &str = include_str!("cgroup.sh");

/// The largest page size: the kernel rounds a limit to its own page size.
const MAX_PAGE_BYTES: u64 = 65_536;

/// Time limit for writing back and dropping caches.
const LIMIT: Duration = Duration::from_mins(10);

fn call(function: &str, args: &[&str]) -> CommandLine {
    let script = format!("{POSTMASTER_OF}{SCRIPT}\n{function} \"$@\"");
    CommandLine::new("sh").args(["-c", &script, "sh"]).args(args).timeout(LIMIT)
}

/// The control groups of a server, as `look` of cgroup.sh prints them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ServerGroups {
    postmaster: String,
    /// The group of the server, and the one to be created.
    prior: String,
    group: String,
    /// The limit of the prior group: the least of several.
    limit: Option<u64>,
    /// The kind of the cpuset of the prior group of version 2, if its processors are its own.
    partition: Option<String>,
    exists: bool,
    writable: bool,
    /// A directory of version 2 that does not pass on the memory controller.
    uncontrolled: Option<String>,
}

impl ServerGroups {
    fn parse(text: &str) -> ServerGroups {
        let mut found = ServerGroups::default();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = || value.to_owned();
            match name {
                "postmaster" => found.postmaster = value(),
                "prior" => found.prior = value(),
                "group" => found.group = value(),
                "uncontrolled" => found.uncontrolled = Some(value()),
                "limit" => found.limit = found.limit.into_iter().chain(value().parse().ok()).min(),
                "partition" => found.partition = Some(value()),
                "exists" => found.exists = true,
                "writable" => found.writable = true,
                _ => {}
            }
        }
        found
    }

    fn refusal(&self, limit: u64, shared_buffers: u64) -> Option<String> {
        if self.prior.is_empty() {
            Some(
                "no server process was found, or no memory controller of control groups is mounted"
                    .to_owned(),
            )
        } else if let Some(parent) = &self.uncontrolled {
            Some(format!(
                "control groups below {parent} have no memory limit; enable it as root: echo +memory >{parent}/cgroup.subtree_control"
            ))
        } else if self.exists {
            Some(format!(
                "{} already exists: run `pgio undo` to remove the leftover of an interrupted run",
                self.group
            ))
        } else if !self.writable {
            Some(format!(
                "only root may create {}: log in as root, by a sudo rule for pgio or by ssh = \"root@...\" (a container may have it read-only)",
                self.group
            ))
        } else if let Some(kind) = &self.partition {
            Some(format!(
                "{}/cpuset.cpus.partition is `{kind}`, so a group beside it cannot use its processors: write `member` to that file for the time of the experiment",
                self.prior
            ))
        } else if self.limit.is_some_and(|theirs| theirs <= limit) {
            let theirs = human::bytes(self.limit.unwrap_or_default());
            Some(format!("the limit of {} already restricts the server to {theirs}", self.prior))
        } else {
            too_little(limit, shared_buffers)
        }
    }
}

/// The state of our group, as `state` of cgroup.sh prints it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    limit: Option<u64>,
    postmaster_inside: bool,
    outside: Option<u64>,
    used: Option<u64>,
}

impl State {
    fn parse(text: &str) -> State {
        let mut found = State::default();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let number = || value.trim().parse().ok();
            match name {
                "limit" => found.limit = number(),
                "postmaster" => found.postmaster_inside = true,
                "outside" => found.outside = number(),
                "used" => found.used = number(),
                _ => {}
            }
        }
        found
    }
}

/// The server's processes in a group of our own; the prior value is their group before.
pub(super) type CgroupStep = StepOf<String, AppliedGroup>;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppliedGroup {
    group: String,
    #[serde(default)]
    limit: u64,
    /// The process to move first.
    #[serde(default)]
    postmaster: String,
}

impl Undo for CgroupStep {
    const KIND: &'static str = KIND;

    /// The group is ours whatever limit it has now, so no conflict is possible. A reboot removes it.
    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        if !context.precedes_trial() {
            end_leftover_guard(&host, &self.mark())?;
        }
        host.run(&call("leave", &[&self.ours.group, &self.prior]))?;
        Ok(Undone::Restored)
    }
}

impl CgroupStep {
    fn mark(&self) -> Mark {
        Mark::new("cgroup", &self.ours.group)
    }

    fn apply(&self, host: &Host) -> Result<Guard, TreatmentError> {
        let AppliedGroup { group, limit, postmaster } = &self.ours;
        let [group, home, postmaster] =
            [group, &self.prior, postmaster].map(|text| quoted(OsStr::new(text)));
        let release = format!("leave {group} {home}");
        let answer = format!("state {group} {postmaster} \"$ask\"");
        let apply = format!("enter {group} {limit} {postmaster} {home}");
        let (functions, apply, release, answer) = (SCRIPT, &apply, &release, &answer);
        let mark = &self.mark();
        Guard::apply(host, &Script { mark, functions, apply, release, answer })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    limit: u64,
}

/// The group of a trial, with the shell that removes it if pgio is killed.
#[derive(Debug)]
struct CgroupInForce {
    limit: u64,
    guard: Guard,
}

impl Cgroup {
    pub(super) fn new(leave: u64) -> Cgroup {
        Cgroup { limit: leave / MAX_PAGE_BYTES * MAX_PAGE_BYTES }
    }
}

/// Finds the control groups of the server by the process of our session.
fn find_groups(context: &mut Context<'_>, host: &Host) -> Result<ServerGroups, TreatmentError> {
    let pid = context.backend_pid()?.to_string();
    Ok(ServerGroups::parse(&host.run(&call("look", &[&pid]))?))
}

impl Treatment for Cgroup {
    fn declared(&self) -> Declared {
        let limit = exact_bytes(self.limit);
        let value = format!("{limit} left by a limit on the server's processes");
        Declared {
            changes: vec![Change::new(None, Subject::Memory, KIND, value)],
            intents: vec![format!("memory for the server = {limit} {HOW}")],
            ..Declared::default()
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let host = context.host(None)?;
        let found = find_groups(context, &host)?;
        Ok(vec![Preview {
            what: format!("memory for the server on host {}", host.name()),
            now: found.limit.map_or_else(|| "no limit".to_owned(), human::bytes),
            then: exact_bytes(self.limit),
            how: HOW,
        }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let host = context.host(None)?;
        let group = find_groups(context, &host)?.group;
        Ok(vec![Touch::Resource(Resource::on(&host, format!("control group {group}")))])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(None)?;
        let file = Path::new("/proc/sys/vm/drop_caches");
        Ok(check_writable(&*host, host.name(), "a ballast", &[file], None)?)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let host = context.host(None)?;
        let found = find_groups(context, &host)?;
        let has_pages = has_huge_pages(context, &host)?;
        refuse_other_sizes("a control group", has_pages, context)?;
        let shared = shared_buffers(context)?;
        match found.refusal(self.limit, shared) {
            None => Ok(Box::new(self.clone())),
            Some(why) => Err(TreatmentError::Refused(format!(
                "no memory limit for the server on host {}: {why}",
                host.name()
            ))),
        }
    }
}

impl Prepared for Cgroup {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(None)?;
        let ServerGroups { prior, group, postmaster, .. } = find_groups(context, &host)?;
        let limit = self.limit;
        let step = CgroupStep {
            label: Label::on_host("the server's control group", host.name()),
            prior,
            ours: AppliedGroup { group, limit, postmaster },
        };
        let guard = carry_out(journal, &step, || step.apply(&host))?;
        Ok(Box::new(CgroupInForce { limit, guard }))
    }
}

impl CgroupInForce {
    fn evidence(&mut self, when: When) -> Result<Vec<Evidence>, TreatmentError> {
        let is_outside_window = when != When::During;
        let state = State::parse(&self.guard.ask(if is_outside_window { "all" } else { "" })?);
        let evidence = |what: &str, found: String, expected: Option<String>| Evidence {
            when,
            what: what.to_owned(),
            found,
            expected,
        };
        let limit = state.limit.map_or_else(|| "none".to_owned(), exact_bytes);
        let inside = if state.postmaster_inside { "inside" } else { "outside" };
        let mut all = vec![
            evidence("memory limit of the server's group", limit, Some(exact_bytes(self.limit))),
            evidence("the server and that group", inside.to_owned(), Some("inside".to_owned())),
        ];
        if is_outside_window {
            let outside = state.outside.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
            all.push(evidence(
                "processes of the server outside that group",
                outside,
                Some("0".to_owned()),
            ));
            let used = state.used.map_or_else(|| "unknown".to_owned(), human::bytes);
            all.push(evidence("memory used in that group", used, None));
        }
        Ok(all)
    }
}

impl InForce for CgroupInForce {
    fn verify(&mut self, _context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        self.evidence(when)
            .unwrap_or_else(|_| vec![failed_reading(when, "the server's control group")])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::host::exec::Local;

    #[test]
    fn server_groups_are_parsed_and_unusable_ones_refused() {
        let text = "postmaster 77\nprior /sys/fs/cgroup/memory/a\n\
                    group /sys/fs/cgroup/memory/a/pgio-ballast-77\nlimit 9223372036854771712\nwritable\n";
        let found = ServerGroups::parse(text);
        assert_eq!((found.postmaster.as_str(), found.writable, found.exists), ("77", true, false));
        let why = |of: &ServerGroups, limit| of.refusal(limit, 128 << 20).unwrap_or_default();
        assert_eq!(why(&found, 1 << 30), "");
        assert!(why(&found, 150 << 20).contains("need at least 192 MiB"));
        assert!(
            why(&ServerGroups { exists: true, ..found.clone() }, 1 << 30).contains("pgio undo")
        );
        assert!(why(&ServerGroups { writable: false, ..found.clone() }, 1 << 30).contains("root"));
        let limited = ServerGroups { limit: Some(1 << 29), ..found.clone() };
        assert!(why(&limited, 1 << 30).contains("restricts the server to 512 MiB"));
        let parent = Some("/sys/fs/cgroup/a".to_owned());
        let v2 = ServerGroups { uncontrolled: parent, limit: None, ..found };
        assert!(
            why(&v2, 1 << 30).contains("echo +memory >/sys/fs/cgroup/a/cgroup.subtree_control")
        );
        let isolated = ServerGroups::parse(&format!("{text}partition isolated\n"));
        assert!(why(&isolated, 1 << 30).contains("a/cpuset.cpus.partition is `isolated`"));
        let high = ServerGroups::parse(&format!("{text}limit 536870912\nlimit max\n"));
        assert!(why(&high, 1 << 30).contains("restricts the server to 512 MiB"));
        assert!(why(&ServerGroups::parse(""), 1 << 30).contains("no server process"));
        let unlimited = ServerGroups::parse("limit max\n");
        assert_eq!(unlimited.limit, None);
    }

    /// Ordinary files play the kernel's, so no file has two lines to be written. Two that are there may be in
    /// another order.
    #[test]
    fn the_group_takes_over_the_other_limits_of_the_servers_unit() {
        let dir = tempfile::tempdir().unwrap();
        let [prior, group] = ["prior", "group"].map(|name| dir.path().join(name));
        let write = |at: &Path, files: &[(&str, &str)]| {
            fs::create_dir(at).unwrap();
            for (name, text) in files {
                fs::write(at.join(name), format!("{text}\n")).unwrap();
            }
        };
        let theirs = [
            ("cpu.max", "50000 100000"),
            ("cpu.weight", "100"),
            ("cpuset.cpus", "0-3"),
            ("io.latency", "8:0 target=5\n8:16 target=7"),
            ("io.max", "8:16 rbps=max wbps=max riops=500 wiops=max"),
            ("memory.max", "max"),
            ("pids.max", "4915"),
        ];
        write(&prior, &theirs);
        let ours = [
            ("cpu.max", "max 100000"),
            ("cpu.weight", "100"),
            ("cpuset.cpus", ""),
            ("io.latency", "8:16 target=7\n8:0 target=5"),
            ("io.max", ""),
            ("memory.max", "1073741824"),
            ("pids.max", "max"),
        ];
        write(&group, &ours);
        let [from, to] = [&prior, &group].map(|path| path.to_str().unwrap());
        Local.run(&call("take_over", &[from, to])).unwrap();
        for (name, text) in theirs {
            let expected = if name == "memory.max" { "1073741824" } else { text };
            let found = fs::read_to_string(group.join(name)).unwrap();
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
            assert_eq!(lines(&found), lines(expected));
        }

        // Nothing can be written there.
        fs::remove_file(group.join("pids.max")).unwrap();
        fs::create_dir(group.join("pids.max")).unwrap();
        let error = Local.run(&call("take_over", &[from, to])).unwrap_err().to_string();
        assert!(error.contains(&format!("{from}/pids.max: 4915")), "{error}");
    }

    #[test]
    fn the_state_of_the_ballast_group_is_parsed() {
        let state = State::parse("limit 1073741824\npostmaster\noutside 0\nused 52428800\n");
        assert_eq!(state.limit, Some(1 << 30));
        assert!(state.postmaster_inside);
        assert_eq!((state.outside, state.used), (Some(0), Some(50 << 20)));
        assert_eq!(State::parse(""), State::default());
    }
}
