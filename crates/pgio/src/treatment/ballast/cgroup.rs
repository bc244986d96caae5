//! A limit on the memory of the server's processes: a control group of our own beside or below the
//! one they are in, into which they are moved, and out of which at the end.
//!
//! What is limited is the processes' own memory, what they newly touch of shared_buffers, and the
//! page cache of what they read; so the rest of the host is left alone. Pages read before belong
//! to the former group, which is why caches are dropped. A server that is restarted meanwhile
//! starts outside, which the evidence shows. The work is done by cgroup.sh.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::KIND;
use crate::host::Host;
use crate::host::command::quoted;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};
use crate::treatment::guard::{Guard, Script};
use crate::treatment::{
    Machines, Outlook, Resource, Step, Touch, Treatment, TreatmentError, Undone, World,
};
use crate::units::{exact_bytes, human};

const HOW: &str = "by dropping caches and moving its processes to a control group";

const SCRIPT: &str = include_str!("cgroup.sh");

/// Beside shared_buffers, for the processes themselves: below it the kernel would kill them.
const PROCESSES: u64 = 64 << 20;

/// The kernel rounds to pages of its own, which are no larger than this anywhere.
const PAGE: u64 = 65_536;

/// Caches are written back and dropped on the way.
const LIMIT: Duration = Duration::from_mins(10);

fn call(function: &str, args: &[&str]) -> CommandLine {
    let script = format!("{SCRIPT}\n{function} \"$@\"");
    CommandLine::new("sh").args(["-c", &script, "sh"]).args(args).timeout(LIMIT)
}

/// What `look` found around a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Surroundings {
    postmaster: String,
    /// The group that the server is in, and the one that we would make.
    prior: String,
    group: String,
    /// Of the prior group; absent where there is none.
    limit: Option<u64>,
    exists: bool,
    writable: bool,
    /// Version 2 passes no memory controller on from this directory.
    uncontrolled: Option<String>,
}

impl Surroundings {
    fn parse(text: &str) -> Surroundings {
        let mut found = Surroundings::default();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = || value.to_owned();
            match name {
                "postmaster" => found.postmaster = value(),
                "prior" => found.prior = value(),
                "group" => found.group = value(),
                "uncontrolled" => found.uncontrolled = Some(value()),
                "limit" => found.limit = value().parse().ok(),
                "exists" => found.exists = true,
                "writable" => found.writable = true,
                _ => {}
            }
        }
        found
    }

    fn refusal(&self, limit: u64, shared_buffers: u64) -> Option<String> {
        let least = shared_buffers + PROCESSES;
        if self.prior.is_empty() {
            Some("the server's processes are not there, or no memory controller of control groups is mounted".to_owned())
        } else if let Some(parent) = &self.uncontrolled {
            Some(format!(
                "control groups below {parent} have no memory limit; root may allow it by: echo +memory >{parent}/cgroup.subtree_control"
            ))
        } else if self.exists {
            Some(format!(
                "{} is there already: `pgio undo` removes what an interrupted run left",
                self.group
            ))
        } else if !self.writable {
            Some(format!(
                "only root may make {}: be root there, by a sudo rule for pgio or over ssh by ssh = \"root@...\" (a container may have it read-only)",
                self.group
            ))
        } else if self.limit.is_some_and(|theirs| theirs <= limit) {
            let theirs = human::bytes(self.limit.unwrap_or_default());
            Some(format!(
                "the server has no more than {theirs} already, by the limit of {}",
                self.prior
            ))
        } else if limit < least {
            Some(format!(
                "{} is too little: shared_buffers and processes need {} at least, or the kernel kills them",
                exact_bytes(limit),
                human::bytes(least)
            ))
        } else {
            None
        }
    }
}

/// What `state` says.
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

#[derive(Debug)]
pub(super) struct Cgroup {
    limit: u64,
    guard: RefCell<Option<Guard>>,
}

impl Cgroup {
    pub(super) fn new(leave: u64) -> Cgroup {
        Cgroup { limit: leave / PAGE * PAGE, guard: RefCell::new(None) }
    }

    fn look(&self, world: &mut World<'_>, host: &Host) -> Result<Surroundings, TreatmentError> {
        let doing = || "ask for the session's process".to_owned();
        let failed = |source| TreatmentError::Postgres { doing: doing(), source };
        let row = world.admin()?.query_one("SELECT pg_backend_pid()", &[]).map_err(failed)?;
        let pid: i32 = row.get(0);
        Ok(Surroundings::parse(&host.run(&call("look", &[&pid.to_string()]))?))
    }

    fn evidence(&self, guard: &mut Guard, when: When) -> Result<Vec<Evidence>, TreatmentError> {
        let whole = when != When::During;
        let state = State::parse(&guard.ask(if whole { "all" } else { "" })?);
        let of = |what: &str, found: String, expected: Option<String>| Evidence {
            when,
            what: what.to_owned(),
            found,
            expected,
        };
        let limit = state.limit.map_or_else(|| "none".to_owned(), exact_bytes);
        let inside = if state.postmaster_inside { "inside" } else { "outside" };
        let mut all = vec![
            of("memory limit of the server's group", limit, Some(exact_bytes(self.limit))),
            of("the server and that group", inside.to_owned(), Some("inside".to_owned())),
        ];
        if whole {
            let outside = state.outside.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
            all.push(of(
                "processes of the server outside that group",
                outside,
                Some("0".to_owned()),
            ));
            let used = state.used.map_or_else(|| "unknown".to_owned(), human::bytes);
            all.push(of("memory used in that group", used, None));
        }
        Ok(all)
    }
}

impl Treatment for Cgroup {
    fn changes(&self) -> Vec<Change> {
        let value =
            format!("{} left by a limit on the server's processes", exact_bytes(self.limit));
        vec![Change::new(None, Subject::Memory, "ballast", value)]
    }

    fn intents(&self) -> Vec<String> {
        vec![format!("memory for the server = {} {HOW}", exact_bytes(self.limit))]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let host = world.host(None)?;
        let found = self.look(world, &host)?;
        Ok(vec![Outlook {
            what: format!("memory for the server on host {}", host.name()),
            now: found.limit.map_or_else(|| "no limit".to_owned(), human::bytes),
            then: exact_bytes(self.limit),
            how: HOW,
        }])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(None)?;
        let file = Path::new("/proc/sys/vm/drop_caches");
        Ok(check_writable(&*host, host.name(), "a ballast", &[file], None)?)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let found = self.look(world, &host)?;
        let failed = |source| TreatmentError::Postgres {
            doing: "read the setting shared_buffers".to_owned(),
            source,
        };
        let sql = "SELECT pg_size_bytes(current_setting('shared_buffers'))";
        let shared: i64 = world.admin()?.query_one(sql, &[]).map_err(failed)?.get(0);
        match found.refusal(self.limit, shared.unsigned_abs()) {
            None => Ok(()),
            Some(why) => Err(TreatmentError::Refused(format!(
                "no memory limit for the server on host {}: {why}",
                host.name()
            ))),
        }
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let host = world.host(None)?;
        let group = self.look(world, &host)?.group;
        Ok(vec![Touch::Of(Resource::on(&host, format!("control group {group}")))])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let host = world.host(None)?;
        let found = self.look(world, &host)?;
        Ok(vec![Step {
            kind: KIND.name.to_owned(),
            what: "the server's control group".to_owned(),
            host: Some(host.name().to_owned()),
            prior: json!(found.prior),
            ours: json!({ "group": found.group, "limit": self.limit, "postmaster": found.postmaster }),
        }])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let host = world.host(step.host.as_deref())?;
        let (prior, group) = groups(step)?;
        let postmaster = step.ours.get("postmaster").and_then(|p| p.as_str()).unwrap_or_default();
        let [shown, home] = [group, prior].map(|path| quoted(OsStr::new(path)));
        let release = format!("leave {shown} {home}");
        let body = format!("state {shown} {} \"$ask\"", quoted(OsStr::new(postmaster)));
        let enter = format!("enter {shown} {} {}", self.limit, quoted(OsStr::new(postmaster)));
        let (functions, apply, release, answer) = (SCRIPT, &enter, &release, &body);
        let mut guard = Guard::start(&host, &Script { functions, apply, release, answer })?;
        guard.apply()?;
        *self.guard.borrow_mut() = Some(guard);
        Ok(())
    }

    fn settle(&self, _world: &mut World<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }

    fn verify(&self, _world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut guard = self.guard.borrow_mut();
        match guard.as_mut().map(|guard| self.evidence(guard, when)) {
            Some(Ok(evidence)) => evidence,
            _ => vec![Evidence {
                when,
                what: "the server's control group".to_owned(),
                found: "unreadable".to_owned(),
                expected: Some("readable".to_owned()),
            }],
        }
    }

    fn taken_back(&self) {
        self.guard.take();
    }
}

/// The group is ours whatever limit it has now, so there is nobody to ask; it is gone after a reboot.
pub(super) fn undo(host: &Host, step: &Step) -> Result<Undone, TreatmentError> {
    let (prior, group) = groups(step)?;
    host.run(&call("leave", &[group, prior]))?;
    Ok(Undone::PutBack)
}

fn groups(step: &Step) -> Result<(&str, &str), TreatmentError> {
    step.prior.as_str().zip(step.ours.get("group").and_then(|g| g.as_str())).ok_or_else(|| {
        TreatmentError::Config(format!("the journal's step {} cannot be understood", step.what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_and_what_it_forbids() {
        let text = "postmaster 77\nprior /sys/fs/cgroup/memory/a\n\
                    group /sys/fs/cgroup/memory/a/pgio-ballast-77\nlimit 9223372036854771712\nwritable\n";
        let found = Surroundings::parse(text);
        assert_eq!((found.postmaster.as_str(), found.writable, found.exists), ("77", true, false));
        let why = |of: &Surroundings, limit| of.refusal(limit, 128 << 20).unwrap_or_default();
        assert_eq!(why(&found, 1 << 30), "");
        assert!(why(&found, 150 << 20).contains("need 192 MiB at least"));
        assert!(
            why(&Surroundings { exists: true, ..found.clone() }, 1 << 30).contains("pgio undo")
        );
        assert!(why(&Surroundings { writable: false, ..found.clone() }, 1 << 30).contains("root"));
        let limited = Surroundings { limit: Some(1 << 29), ..found.clone() };
        assert!(why(&limited, 1 << 30).contains("no more than 512 MiB already"));
        let parent = Some("/sys/fs/cgroup/a".to_owned());
        let v2 = Surroundings { uncontrolled: parent, limit: None, ..found };
        assert!(
            why(&v2, 1 << 30).contains("echo +memory >/sys/fs/cgroup/a/cgroup.subtree_control")
        );
        assert!(why(&Surroundings::parse(""), 1 << 30).contains("not there"));
        let unlimited = Surroundings::parse("limit max\n");
        assert_eq!(unlimited.limit, None);
    }

    #[test]
    fn state_is_understood() {
        let state = State::parse("limit 1073741824\npostmaster\noutside 0\nused 52428800\n");
        assert_eq!(state.limit, Some(1 << 30));
        assert!(state.postmaster_inside);
        assert_eq!((state.outside, state.used), (Some(0), Some(50 << 20)));
        assert_eq!(State::parse(""), State::default());
    }
}
