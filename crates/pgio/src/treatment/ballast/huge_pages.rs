//! Memory taken from a whole host: huge pages that nobody uses cannot be swapped, reclaimed or
//! given to the page cache.
//!
//! Caches are dropped first, so that what is free is known; then as many huge pages are asked for
//! as leave the size free. The kernel may give fewer, so what is read back counts. Whatever lies
//! between the number found and the one asked for is ours to take back. A server that starts with
//! `huge_pages = try` may take pages of the ballast for itself, which the evidence shows.
//!
//! The functions are public for `pgio ballast`, which holds a ballast without an experiment.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::KIND;
use super::memory::Memory;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};
use crate::treatment::guard::{Guard, Script};
use crate::treatment::{
    Machines, Outlook, Resource, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World,
};
use crate::units::{exact_bytes, human};

/// What the step changes, in words.
const WHAT: &str = "nr_hugepages";

/// Writing back what is dirty can take long.
const DROP_LIMIT: Duration = Duration::from_mins(10);
const LIMIT: Duration = Duration::from_secs(60);

const READ: &str = "cat /proc/meminfo";

pub fn look(host: &Host) -> Result<Memory, TreatmentError> {
    read(host, &CommandLine::new("cat").arg("/proc/meminfo").timeout(LIMIT))
}

fn read(host: &Host, command: &CommandLine) -> Result<Memory, TreatmentError> {
    understood(&host.run(command)?, host.name())
}

fn understood(meminfo: &str, host: &str) -> Result<Memory, TreatmentError> {
    Memory::parse(meminfo).ok_or_else(|| {
        TreatmentError::Refused(format!("/proc/meminfo on host {host} cannot be understood"))
    })
}

/// Refuses what could not work or would harm the host, once `held` is given back.
pub fn check(host: &Host, leave: u64, held: &[Step]) -> Result<Memory, TreatmentError> {
    let refused =
        |why: &str| TreatmentError::Refused(format!("no ballast on host {}: {why}", host.name()));
    let memory = held.iter().fold(look(host)?, |memory, step| without(host, step, memory));
    if let Some(why) = memory.refusal(leave) {
        return Err(refused(&why));
    }
    check_rights(host)?;
    Ok(memory)
}

/// Memory as it will be when what a step holds is given back.
fn without(host: &Host, step: &Step, memory: Memory) -> Memory {
    match numbers(step) {
        Ok((prior, _)) if holds(host, step, &memory) => memory.given_back(prior),
        _ => memory,
    }
}

fn check_rights(host: &Host) -> Result<(), TreatmentError> {
    let files = ["/proc/sys/vm/nr_hugepages", "/proc/sys/vm/drop_caches"].map(Path::new);
    Ok(check_writable(host, host.name(), "a ballast", &files, None)?)
}

/// Drops caches, which loses nothing, and says what will be asked for.
pub fn plan(host: &Host, leave: u64) -> Result<Step, TreatmentError> {
    let drop = "sync && echo 3 >/proc/sys/vm/drop_caches && { echo 1 >/proc/sys/vm/compact_memory; } 2>/dev/null";
    let script = format!("{drop}; {READ}");
    let memory = read(host, &CommandLine::new("sh").args(["-c", &script]).timeout(DROP_LIMIT))?;
    if memory.free <= leave {
        return Err(TreatmentError::Refused(format!(
            "host {} has only {} free without its caches: nothing can be taken to leave {}",
            host.name(),
            human::bytes(memory.free),
            exact_bytes(leave)
        )));
    }
    let asked = memory.pages + (memory.free - leave).div_ceil(memory.page.max(1));
    Ok(Step {
        kind: KIND.name.to_owned(),
        what: WHAT.to_owned(),
        host: Some(host.name().to_owned()),
        prior: json!(memory.pages),
        ours: json!({ "pages": asked, "leave": leave, "boot": host.boot() }),
    })
}

/// Asks the kernel for the pages of a journaled step, and returns what it gave.
pub fn take(host: &Host, step: &Step) -> Result<Memory, TreatmentError> {
    let script = format!("{}\n{READ}", taking(numbers(step)?.1));
    read(host, &CommandLine::new("sh").args(["-c", &script]).timeout(LIMIT))
}

/// Compaction between attempts finds room that the first one did not.
fn taking(asked: u64) -> String {
    format!(
        "for attempt in 1 2 3; do
            echo {asked} >/proc/sys/vm/nr_hugepages || exit
            [ \"$(cat /proc/sys/vm/nr_hugepages)\" -ge {asked} ] && break
            echo 1 >/proc/sys/vm/compact_memory
        done"
    )
}

/// In words, while the pages of this step are taken.
pub fn held(host: &Host, step: &Step) -> Option<String> {
    let memory = look(host).ok()?;
    let leave = step.ours.get("leave").and_then(|l| l.as_u64())?;
    holds(host, step, &memory)
        .then(|| format!("huge pages leave {} of its memory free", exact_bytes(leave)))
}

fn holds(host: &Host, step: &Step, memory: &Memory) -> bool {
    !rebooted(host, step)
        && numbers(step).is_ok_and(|(prior, asked)| memory.pages > prior && memory.pages <= asked)
}

pub(super) fn undo(host: &Host, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    let (prior, asked) = numbers(step)?;
    let memory = look(host)?;
    if memory.pages == prior {
        return Ok(Undone::PutBack);
    }
    // The number found after a reboot is that of the boot: ours is gone.
    if rebooted(host, step) {
        return Ok(Undone::Kept);
    }
    if !(prior..=asked).contains(&memory.pages) {
        match stranger {
            Stranger::Keep => return Ok(Undone::Kept),
            Stranger::Restore => {}
            Stranger::Ask => {
                return Err(TreatmentError::ChangedSince {
                    what: format!("{WHAT} on host {}", host.name()),
                    found: memory.pages.to_string(),
                    ours: asked.to_string(),
                    prior: prior.to_string(),
                });
            }
        }
    }
    let script = format!("echo \"$1\" >/proc/sys/vm/nr_hugepages && {{ {READ}; }}");
    let put = CommandLine::new("sh").args(["-c", &script, "sh", &prior.to_string()]).timeout(LIMIT);
    match read(host, &put)? {
        now if now.pages == prior => Ok(Undone::PutBack),
        now => Err(TreatmentError::Refused(format!(
            "{WHAT} on host {} is {} after {prior} was written: the kernel cannot give more now; try `pgio undo` again later",
            host.name(),
            now.pages
        ))),
    }
}

fn rebooted(host: &Host, step: &Step) -> bool {
    step.ours.get("boot").and_then(|boot| boot.as_str()).is_some_and(|boot| boot != host.boot())
}

fn numbers(step: &Step) -> Result<(u64, u64), TreatmentError> {
    step.prior.as_u64().zip(step.ours.get("pages").and_then(|p| p.as_u64())).ok_or_else(|| {
        TreatmentError::Config(format!("the journal's step {} cannot be understood", step.what))
    })
}

#[derive(Debug)]
pub(super) struct HugePages {
    leave: u64,
    /// Absent: the server's.
    host: Option<String>,
    held: RefCell<Option<Held>>,
}

/// What was read back when it was put in force, and the shell that gives it back if we are killed.
#[derive(Debug)]
struct Held {
    guard: Guard,
    host: String,
    memory: Memory,
}

impl HugePages {
    pub(super) fn new(leave: u64, host: Option<String>) -> HugePages {
        HugePages { leave, host, held: RefCell::new(None) }
    }

    fn evidence(&self, held: &mut Held, when: When) -> Result<Vec<Evidence>, TreatmentError> {
        let now = understood(&held.guard.ask("")?, &held.host)?;
        let given = &held.memory;
        let of = |what: &str, found: String, expected: Option<String>| {
            let what = format!("{what} on host {}", held.host);
            Evidence { when, what, found, expected }
        };
        let used = given.idle.saturating_sub(now.idle);
        let mut all = vec![
            of("huge pages", now.pages.to_string(), Some(given.pages.to_string())),
            of("huge pages of the ballast used by others", used.to_string(), Some("0".to_owned())),
        ];
        if when != When::During {
            all.push(of("memory available", human::bytes(now.available), None));
        }
        Ok(all)
    }
}

/// Also what `pgio ballast` takes.
pub fn memory_of(host: &Host) -> Resource {
    Resource::on(host, "memory")
}

impl Treatment for HugePages {
    fn changes(&self) -> Vec<Change> {
        let value = format!("{} left by huge pages", exact_bytes(self.leave));
        vec![Change::new(self.host.as_deref(), Subject::Memory, "ballast", value)]
    }

    fn intents(&self) -> Vec<String> {
        let on = self.host.as_ref().map_or("the server's host", String::as_str);
        let leave = exact_bytes(self.leave);
        vec![format!(
            "memory available on {on} = {leave} by dropping caches and taking huge pages (nr_hugepages)"
        )]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        let memory = look(&host)?;
        Ok(vec![Outlook {
            what: format!("memory available on host {}", host.name()),
            now: human::bytes(memory.available),
            then: exact_bytes(self.leave),
            how: "by dropping caches and taking huge pages",
        }])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        check_rights(&*machines.host(self.host.as_deref())?)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        check(&host, self.leave, &[]).map(drop)
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(vec![Touch::Of(memory_of(&*world.host(self.host.as_deref())?))])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        plan(&host, self.leave).map(|step| vec![step])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        let (prior, asked) = numbers(step)?;
        // As undo does, without its question: what is not ours stays.
        let release = format!(
            "pages=$(cat /proc/sys/vm/nr_hugepages) && [ \"$pages\" -gt {prior} ] && [ \"$pages\" -le {asked} ] && echo {prior} >/proc/sys/vm/nr_hugepages"
        );
        let (functions, apply, answer) = ("", &taking(asked), READ);
        let mut guard =
            Guard::start(&host, &Script { functions, apply, release: &release, answer })?;
        guard.apply()?;
        let given = understood(&guard.ask("")?, host.name())?;
        let host = host.name().to_owned();
        *self.held.borrow_mut() = Some(Held { guard, host, memory: given });
        Ok(())
    }

    fn settle(&self, _world: &mut World<'_>) -> Result<(), TreatmentError> {
        let held = self.held.borrow();
        match held.as_ref().and_then(|held| held.memory.too_much_left(self.leave)) {
            Some(why) => Err(TreatmentError::Refused(why)),
            None => Ok(()),
        }
    }

    fn verify(&self, _world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut held = self.held.borrow_mut();
        let read = held.as_mut().map(|held| self.evidence(held, when));
        match read {
            Some(Ok(evidence)) => evidence,
            _ => vec![Evidence {
                when,
                what: "huge pages".to_owned(),
                found: "unreadable".to_owned(),
                expected: Some("readable".to_owned()),
            }],
        }
    }

    fn taken_back(&self) {
        self.held.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_boot_set_is_left_and_told_so() {
        let host = Host::local();
        let pages = look(&host).unwrap().pages;
        let of_another_boot = |prior: u64| Step {
            kind: KIND.name.to_owned(),
            what: WHAT.to_owned(),
            host: Some(host.name().to_owned()),
            prior: json!(prior),
            ours: json!({ "pages": pages + 200, "leave": 1 << 30, "boot": "an earlier one" }),
        };
        for (prior, expected) in [(pages, Undone::PutBack), (pages + 100, Undone::Kept)] {
            let undone = undo(&host, &of_another_boot(prior), Stranger::Ask).unwrap();
            assert_eq!(undone, expected, "{prior}");
        }
        assert_eq!(look(&host).unwrap().pages, pages);
    }
}
