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
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::KIND;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::results::model::{Evidence, When};
use crate::treatment::guard::Guard;
use crate::treatment::{Outlook, Step, Stranger, Treatment, TreatmentError, Undone, World};
use crate::units::{exact_bytes, human};

/// What the step changes, in words.
const WHAT: &str = "nr_hugepages";

/// Below this a host does not live; of a large one, this part of its memory.
const FLOOR: u64 = 256 << 20;
const FLOOR_PART: u64 = 256;

/// More than asked for may stay free by a tenth and this much.
const TOLERANCE: u64 = 64 << 20;

/// Writing back what is dirty can take long.
const DROP_LIMIT: Duration = Duration::from_mins(10);
const LIMIT: Duration = Duration::from_secs(60);

const READ: &str = "cat /proc/meminfo";

/// A host's memory at one moment, in bytes; pages are huge ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub page: u64,
    /// As nr_hugepages has it.
    pub pages: u64,
    /// Neither used nor reserved.
    pub idle: u64,
}

impl Memory {
    fn parse(text: &str) -> Option<Memory> {
        let numbers: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once(':')?;
                Some((name, rest.split_whitespace().next()?.parse().ok()?))
            })
            .collect();
        let number = |name: &str| numbers.get(name).copied();
        let bytes = |name: &str| number(name)?.checked_mul(1024);
        let total = number("HugePages_Total").unwrap_or(0);
        Some(Memory {
            total: bytes("MemTotal")?,
            free: bytes("MemFree")?,
            available: bytes("MemAvailable")?,
            page: bytes("Hugepagesize").unwrap_or(0),
            // Surplus pages are still in use by someone and go when he does.
            pages: total.saturating_sub(number("HugePages_Surp").unwrap_or(0)),
            idle: number("HugePages_Free")
                .unwrap_or(0)
                .saturating_sub(number("HugePages_Rsvd").unwrap_or(0)),
        })
    }

    /// Why this much cannot be left free; found out before anything is changed.
    pub fn refusal(&self, leave: u64) -> Option<String> {
        let floor = FLOOR.max(self.total / FLOOR_PART);
        let left = exact_bytes(leave);
        if self.page == 0 {
            Some("its kernel has no huge pages: use way = \"cgroup\"".to_owned())
        } else if leave >= self.total {
            Some(format!("{left} is more than its {} of memory", human::bytes(self.total)))
        } else if leave >= self.available {
            let available = human::bytes(self.available);
            Some(format!("{left} cannot be left free where only {available} is available"))
        } else if leave < floor {
            Some(format!(
                "{left} is too little for it to live on: leave {} at least",
                human::bytes(floor)
            ))
        } else {
            None
        }
    }
}

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

/// Refuses what could not work or would harm the host.
pub fn check(host: &Host, leave: u64) -> Result<Memory, TreatmentError> {
    let refused =
        |why: &str| TreatmentError::Refused(format!("no ballast on host {}: {why}", host.name()));
    let memory = look(host)?;
    if let Some(why) = memory.refusal(leave) {
        return Err(refused(&why));
    }
    let writable = "[ -w /proc/sys/vm/nr_hugepages ] && [ -w /proc/sys/vm/drop_caches ]";
    let writable = CommandLine::new("sh").args(["-c", writable]).timeout(LIMIT);
    if host.output(&writable)?.status.success() {
        Ok(memory)
    } else {
        Err(refused(
            "only root may write /proc/sys/vm/nr_hugepages and drop_caches; run pgio with sudo, or let ssh log in there as root (in a container /proc/sys may be read-only)",
        ))
    }
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
    let (_, asked) = numbers(step)?;
    // Compaction between attempts finds room that the first one did not.
    let script = "for attempt in 1 2 3; do
            echo \"$1\" >/proc/sys/vm/nr_hugepages || exit
            [ \"$(cat /proc/sys/vm/nr_hugepages)\" -ge \"$1\" ] && break
            echo 1 >/proc/sys/vm/compact_memory
        done";
    let script = format!("{script}\n{READ}");
    let asked = asked.to_string();
    read(host, &CommandLine::new("sh").args(["-c", &script, "sh", &asked]).timeout(LIMIT))
}

/// Whether what was given leaves about as much as was asked for.
pub fn too_much_left(memory: &Memory, leave: u64) -> Option<String> {
    (memory.free > leave + leave / 10 + TOLERANCE).then(|| {
        format!(
            "the kernel gave {} huge pages, which leaves {} free instead of {}: its memory is fragmented or others gave memory back; try again, or soon after a reboot",
            memory.pages,
            human::bytes(memory.free),
            exact_bytes(leave)
        )
    })
}

/// In words, while the pages of this step are taken.
pub fn held(host: &Host, step: &Step) -> Option<String> {
    let (prior, asked) = numbers(step).ok()?;
    let memory = look(host).ok()?;
    let leave = step.ours.get("leave").and_then(|l| l.as_u64())?;
    (!rebooted(host, step) && memory.pages > prior && memory.pages <= asked)
        .then(|| format!("huge pages leave {} of its memory free", exact_bytes(leave)))
}

pub(super) fn undo(host: &Host, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    let (prior, asked) = numbers(step)?;
    let memory = look(host)?;
    // The number found after a reboot is that of the boot: ours is gone.
    if memory.pages == prior || rebooted(host, step) {
        return Ok(Undone::PutBack);
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
    memory: Option<Memory>,
}

impl HugePages {
    pub(super) fn new(leave: u64, host: Option<String>) -> HugePages {
        HugePages { leave, host, held: RefCell::new(None) }
    }

    fn evidence(&self, held: &mut Held, when: When) -> Result<Vec<Evidence>, TreatmentError> {
        let now = understood(&held.guard.ask("")?, &held.host)?;
        let Some(given) = &held.memory else { return Ok(Vec::new()) };
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

impl Treatment for HugePages {
    fn describe(&self) -> Vec<String> {
        let on = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        vec![format!("ballast{on} = {} left by huge pages", exact_bytes(self.leave))]
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

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        check(&host, self.leave).map(drop)
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
        let guard = Guard::start(&host, "", &release, READ)?;
        let held = Held { guard, host: host.name().to_owned(), memory: None };
        *self.held.borrow_mut() = Some(held);
        let given = take(&host, step)?;
        if let Some(held) = &mut *self.held.borrow_mut() {
            held.memory = Some(given);
        }
        Ok(())
    }

    fn settle(&self, _world: &mut World<'_>) -> Result<(), TreatmentError> {
        let held = self.held.borrow();
        let given = held.as_ref().and_then(|held| held.memory.as_ref());
        match given.and_then(|memory| too_much_left(memory, self.leave)) {
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
    use proptest::prelude::*;

    const MEMINFO: &str = "\
MemTotal:       24684084 kB
MemFree:        21782284 kB
MemAvailable:   24009112 kB
HugePages_Total:     954
HugePages_Free:      900
HugePages_Rsvd:       10
HugePages_Surp:        4
Hugepagesize:       2048 kB
";

    #[test]
    fn meminfo_is_understood() {
        let memory = Memory::parse(MEMINFO).unwrap();
        assert_eq!((memory.pages, memory.idle, memory.page), (950, 890, 2 << 20));
        assert_eq!(memory.free, 21_782_284 * 1024);
        assert_eq!(Memory::parse("MemTotal: 1 kB"), None);
    }

    #[test]
    fn what_cannot_be_left_is_refused() {
        let memory = Memory::parse(MEMINFO).unwrap();
        let why = |leave| memory.refusal(leave).unwrap_or_default();
        assert_eq!(why(1 << 30), "");
        assert_eq!(why(64 << 30), "64G is more than its 23.5 GiB of memory");
        assert_eq!(why(23 << 30), "23G cannot be left free where only 22.9 GiB is available");
        assert_eq!(why(100 << 20), "100M is too little for it to live on: leave 256 MiB at least");
        let without = Memory { page: 0, ..memory.clone() };
        assert!(without.refusal(1 << 30).unwrap().contains("cgroup"));
        let large = Memory { total: 1 << 40, ..memory.clone() };
        assert!(large.refusal(2 << 30).unwrap().contains("4 GiB"));
        let tight = Memory { free: 1150 << 20, ..memory };
        assert_eq!(too_much_left(&tight, 1 << 30), None);
        assert!(too_much_left(&tight, 900 << 20).unwrap().contains("instead of 900M"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = Memory::parse(&text);
        }
    }
}
