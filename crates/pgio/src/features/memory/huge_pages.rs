//! Takes memory from a whole host: unused huge pages cannot be swapped, reclaimed or
//! given to the page cache.
//!
//! Caches are dropped first, so that the free memory is known; then as many huge pages are requested
//! as leave the size free. The kernel may give fewer, so the number read back counts. An undo may
//! lower any number between the one found and the one requested. A server that starts with
//! `huge_pages = try` may use pages of the ballast, which the evidence shows.
//!
//! [`super::hold`] holds a ballast without an experiment.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::Memory;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{Declared, InForce, Prepared, Preview, Treatment, failed_reading};
use crate::treatment::error::TreatmentError;
use crate::treatment::guard::{Guard, Mark, Script, end_leftover_guard};
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, Record, StepOf, Undo, Undone, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};
use pgio_results::units::{exact_bytes, human};

pub(super) const KIND: &str = "ballast";

/// The kernel's name of the number that the step changes.
const PAGES_SETTING: &str = "nr_hugepages";

/// Time limit of a command: writing back dirty pages can take long.
const DROP_LIMIT: Duration = Duration::from_mins(10);
const LIMIT: Duration = Duration::from_secs(60);

/// Memory that the server's processes need besides shared_buffers.
const PROCESS_MEMORY: u64 = 64 << 20;

const READ: &str = "cat /proc/meminfo";

/// Prints nothing on a kernel without NUMA.
const READ_NODES: &str = "cat /sys/devices/system/node/has_memory 2>/dev/null || :";

/// A number of huge pages on a host.
pub(super) type HugePagesStep = StepOf<u64, AppliedPages>;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppliedPages {
    pages: u64,
    #[serde(default)]
    leave: Option<u64>,
    /// The kernel's boot id: another boot has none of our pages.
    #[serde(default)]
    boot: Option<String>,
}

pub(super) fn read_memory(host: &Host) -> Result<Memory, TreatmentError> {
    run_and_read_memory(host, &CommandLine::new("cat").arg("/proc/meminfo").timeout(LIMIT))
}

fn run_and_read_memory(host: &Host, command: &CommandLine) -> Result<Memory, TreatmentError> {
    parse_memory(&host.run(command)?, host.name())
}

fn parse_memory(meminfo: &str, host: &str) -> Result<Memory, TreatmentError> {
    Memory::parse(meminfo).ok_or_else(|| {
        TreatmentError::Refused(format!("cannot parse /proc/meminfo of host {host}"))
    })
}

/// Refuses a size that cannot work or would harm the host, once the `held` steps are undone.
pub(super) fn check(host: &Host, leave: u64, held: &[Record]) -> Result<Memory, TreatmentError> {
    let refused =
        |why: &str| TreatmentError::Refused(format!("no ballast on host {}: {why}", host.name()));
    let held = held.iter().filter_map(|record| HugePagesStep::from_record(record).ok());
    let memory = held.fold(read_memory(host)?, |memory, step| {
        if step.is_held(host, &memory) { memory.after_release(step.prior) } else { memory }
    });
    let nodes = host.run(&CommandLine::new("sh").args(["-c", READ_NODES]).timeout(LIMIT))?;
    if let Some(why) = memory.refusal(leave).or_else(|| memory.placement_refusal(nodes.trim())) {
        return Err(refused(&why));
    }
    check_rights(host)?;
    Ok(memory)
}

fn check_rights(host: &Host) -> Result<(), TreatmentError> {
    let files = ["/proc/sys/vm/nr_hugepages", "/proc/sys/vm/drop_caches"].map(Path::new);
    Ok(check_writable(host, host.name(), "a ballast", &files, None)?)
}

/// Drops caches, which loses nothing, and computes the pages to request.
pub(super) fn plan(host: &Host, leave: u64) -> Result<HugePagesStep, TreatmentError> {
    let drop = "sync && echo 3 >/proc/sys/vm/drop_caches && { echo 1 >/proc/sys/vm/compact_memory; } 2>/dev/null";
    let script = format!("{drop}; {READ}");
    let memory = run_and_read_memory(
        host,
        &CommandLine::new("sh").args(["-c", &script]).timeout(DROP_LIMIT),
    )?;
    if memory.free <= leave {
        return Err(TreatmentError::Refused(format!(
            "host {} has only {} free without its caches; cannot leave {} free",
            host.name(),
            human::bytes(memory.free),
            exact_bytes(leave)
        )));
    }
    let pages = memory.pages + (memory.free - leave).div_ceil(memory.page.max(1));
    let boot = Some(host.boot_id().to_owned());
    Ok(HugePagesStep {
        label: Label::on_host(PAGES_SETTING, host.name()),
        prior: memory.pages,
        ours: AppliedPages { pages, leave: Some(leave), boot },
    })
}

/// Requests the pages of a journaled step, and returns the memory with the pages that the kernel allocated.
pub(super) fn take(host: &Host, step: &HugePagesStep) -> Result<Memory, TreatmentError> {
    let script = marked_allocation_script(&mark(), step.ours.pages);
    run_and_read_memory(host, &CommandLine::new("sh").args(["-c", &script]).timeout(LIMIT))
}

/// An allocation without a guard outlives a pgio that is killed. By the mark the undo finds the shell and ends it
/// before it lowers the number, which a later attempt would raise again.
fn marked_allocation_script(mark: &Mark, asked: u64) -> String {
    format!("{}\n{}\n{READ}", mark.as_comment(), allocation_script(asked))
}

/// Compaction between attempts finds room that the first attempt did not.
fn allocation_script(asked: u64) -> String {
    format!(
        "for attempt in 1 2 3; do
            echo {asked} >/proc/sys/vm/nr_hugepages || exit
            [ \"$(cat /proc/sys/vm/nr_hugepages)\" -ge {asked} ] && break
            echo 1 >/proc/sys/vm/compact_memory
        done"
    )
}

/// Describes the ballast of this step while the host holds it.
pub(super) fn held(host: &Host, record: &Record) -> Option<String> {
    let (memory, step) = (read_memory(host).ok()?, HugePagesStep::from_record(record).ok()?);
    let leave = step.ours.leave?;
    step.is_held(host, &memory)
        .then(|| format!("huge pages leave {} of its memory free", exact_bytes(leave)))
}

impl HugePagesStep {
    fn is_held(&self, host: &Host, memory: &Memory) -> bool {
        !self.is_of_another_boot(host)
            && memory.pages > self.prior
            && memory.pages <= self.ours.pages
    }

    fn is_of_another_boot(&self, host: &Host) -> bool {
        self.ours.boot.as_ref().is_some_and(|boot| boot != host.boot_id())
    }

    fn undo_on(&self, host: &Host, on_conflict: OnConflict) -> Result<Undone, TreatmentError> {
        let HugePagesStep { label, prior, ours } = self;
        let memory = read_memory(host)?;
        if memory.pages == *prior {
            return Ok(Undone::Restored);
        }
        // A reboot discards our number.
        if self.is_of_another_boot(host) {
            return Ok(Undone::Kept);
        }
        if !(*prior..=ours.pages).contains(&memory.pages) {
            let [found, ours, prior] = [memory.pages, ours.pages, *prior].map(|n| n.to_string());
            let conflict = || TreatmentError::changed_since(label, found, ours, prior);
            if !on_conflict.overwrites(conflict)? {
                return Ok(Undone::Kept);
            }
        }
        let script = format!("echo \"$1\" >/proc/sys/vm/nr_hugepages && {{ {READ}; }}");
        let put = CommandLine::new("sh").args(["-c", &script, "sh", &prior.to_string()]);
        match run_and_read_memory(host, &put.timeout(LIMIT))? {
            now if now.pages == *prior => Ok(Undone::Restored),
            now => Err(TreatmentError::Refused(format!(
                "{PAGES_SETTING} on host {} is {} after writing {prior}: the kernel cannot allocate more now; rerun `pgio undo` later",
                host.name(),
                now.pages
            ))),
        }
    }
}

impl Undo for HugePagesStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        if !context.precedes_trial() {
            end_leftover_guard(&host, &mark())?;
        }
        self.undo_on(&host, on_conflict)
    }
}

#[derive(Debug, Clone)]
pub(super) struct HugePages {
    pub(super) leave: u64,
    /// None means the server's host.
    pub(super) host: Option<String>,
}

/// The ballast of a trial, with the shell that releases it if pgio is killed.
#[derive(Debug)]
struct HugePagesInForce {
    guard: Guard,
    host: String,
    /// The memory right after the pages were taken.
    memory: Memory,
}

/// The resource that a ballast changes.
pub(super) fn memory_resource(host: &Host) -> Resource {
    Resource::on(host, "memory")
}

/// Returns the value of a setting under the condition.
pub(super) fn setting(name: &str, context: &mut Context<'_>) -> Result<String, TreatmentError> {
    let requested = context.layout.settings.iter().rfind(|(set, _)| set == name);
    if let Some((_, value)) = requested {
        return Ok(value.clone());
    }
    let failed = TreatmentError::postgres(format!("read the setting {name}"));
    let row = context.admin()?.query_one("SELECT current_setting($1)", &[&name]).map_err(failed)?;
    Ok(row.get(0))
}

/// Refuses what changes the memory that a ballast leaves. Shared memory in huge pages is no part of it, so that the
/// condition would have a larger page cache than one without; with `try` the server `has_pages` or not. A warm data set
/// is in memory before the ballast drops the caches, and in buffers that a control group does not count.
pub(super) fn refuse_other_sizes(
    way: &str,
    has_pages: bool,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    if context.layout.is_warmed {
        return Err(TreatmentError::Refused(format!(
            "cache = \"warm\" fills memory before a ballast by {way} takes it away: remove one of the two"
        )));
    }
    let value = setting("huge_pages", context)?.to_lowercase();
    if value == "off" || value == "try" && !has_pages {
        return Ok(());
    }
    let found = match value.as_str() {
        "try" => {
            "huge_pages is `try`, and the server took huge pages that its host reserves (vm.nr_hugepages)"
        }
        _ => &format!("huge_pages is `{value}`"),
    };
    Err(TreatmentError::Refused(format!(
        "{found}; huge pages are no part of the memory that a ballast by {way} leaves, so that this condition would have \
         more page cache than one without them: set huge_pages = \"off\" in every condition with a ballast, or use a \
         data set larger than memory instead"
    )))
}

/// Whether the server's shared memory is in huge pages now, as its processes see it.
pub(super) fn has_huge_pages(
    context: &mut Context<'_>,
    host: &Host,
) -> Result<bool, TreatmentError> {
    let pid = context.backend_pid()?.to_string();
    let script = "grep -c anon_hugepage \"/proc/$1/maps\" || :";
    let found = host.run(&CommandLine::new("sh").args(["-c", script, "sh", &pid]))?;
    Ok(found.trim().parse().is_ok_and(|mappings: u32| mappings > 0))
}

/// The bytes of shared_buffers under the condition.
pub(super) fn shared_buffers(context: &mut Context<'_>) -> Result<u64, TreatmentError> {
    let shared = setting("shared_buffers", context)?;
    let failed = TreatmentError::postgres("read the setting shared_buffers");
    // A number alone counts blocks.
    let sql = "SELECT CASE WHEN $1 ~ '^[0-9]+$' THEN $1::bigint * current_setting('block_size')::bigint \
               ELSE pg_size_bytes($1) END";
    let row = context.admin()?.query_one(sql, &[&shared.trim()]).map_err(failed)?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}

/// Refuses memory that shared_buffers and processes fill, so that the kernel would kill them.
pub(super) fn too_little(leave: u64, shared_buffers: u64) -> Option<String> {
    let least = shared_buffers + PROCESS_MEMORY;
    (leave < least).then(|| {
        let (leave, least) = (exact_bytes(leave), human::bytes(least));
        format!("{leave} is too little: shared_buffers and processes need at least {least}, or the kernel kills them")
    })
}

impl Treatment for HugePages {
    fn declared(&self) -> Declared {
        let leave = exact_bytes(self.leave);
        let on = self.host.as_ref().map_or("the server's host", String::as_str);
        let value = format!("{leave} left by huge pages");
        let intent = format!(
            "memory available on {on} = {leave} by dropping caches and taking huge pages (nr_hugepages)"
        );
        Declared {
            changes: vec![Change::new(self.host.as_deref(), Subject::Memory, KIND, value)],
            intents: vec![intent],
            ..Declared::default()
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        let memory = read_memory(&host)?;
        Ok(vec![Preview {
            what: format!("memory available on host {}", host.name()),
            now: human::bytes(memory.available),
            then: exact_bytes(self.leave),
            how: "by dropping caches and taking huge pages",
        }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        Ok(vec![Touch::Resource(memory_resource(&host))])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        check_rights(&*machines.host(self.host.as_deref())?)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        if context.server_host.is_some_and(|server| server == host.name()) {
            let has_pages = has_huge_pages(context, &host)?;
            refuse_other_sizes("huge pages", has_pages, context)?;
            // The server that the condition restarts has not touched its buffers when the pages are taken.
            if context.layout.settings.iter().any(|(name, _)| name == "shared_buffers")
                && let Some(why) = too_little(self.leave, shared_buffers(context)?)
            {
                let host = host.name();
                return Err(TreatmentError::Refused(format!("no ballast on host {host}: {why}")));
            }
        }
        check(&host, self.leave, &[])?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for HugePages {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        let step = plan(&host, self.leave)?;
        let held = carry_out(journal, &step, || HugePagesInForce::take(&host, &step))?;
        match held.memory.too_much_left(self.leave) {
            Some(why) => Err(TreatmentError::Refused(why)),
            None => Ok(Box::new(held)),
        }
    }
}

fn mark() -> Mark {
    Mark::new("ballast", PAGES_SETTING)
}

impl HugePagesInForce {
    fn take(host: &Host, step: &HugePagesStep) -> Result<HugePagesInForce, TreatmentError> {
        let (prior, asked) = (step.prior, step.ours.pages);
        // Like undo, but never overwrites a number that is not ours.
        let release = format!(
            "pages=$(cat /proc/sys/vm/nr_hugepages) && [ \"$pages\" -gt {prior} ] && [ \"$pages\" -le {asked} ] && echo {prior} >/proc/sys/vm/nr_hugepages"
        );
        let (functions, apply, answer) = ("", &allocation_script(asked), READ);
        let (mark, release) = (&mark(), &release);
        let mut guard = Guard::apply(host, &Script { mark, functions, apply, release, answer })?;
        let memory = parse_memory(&guard.ask("")?, host.name())?;
        Ok(HugePagesInForce { guard, host: host.name().to_owned(), memory })
    }

    fn evidence(&mut self, when: When) -> Result<Vec<Evidence>, TreatmentError> {
        let now = parse_memory(&self.guard.ask("")?, &self.host)?;
        let given = &self.memory;
        let evidence = |what: &str, found: String, expected: Option<String>| {
            let what = format!("{what} on host {}", self.host);
            Evidence { when, what, found, expected }
        };
        let used = given.idle.saturating_sub(now.idle);
        let mut all = vec![
            evidence("huge pages", now.pages.to_string(), Some(given.pages.to_string())),
            evidence(
                "huge pages of the ballast used by others",
                used.to_string(),
                Some("0".to_owned()),
            ),
        ];
        if when != When::During {
            all.push(evidence("memory available", human::bytes(now.available), None));
        }
        Ok(all)
    }
}

impl InForce for HugePagesInForce {
    fn verify(&mut self, _context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        self.evidence(when).unwrap_or_else(|_| vec![failed_reading(when, "huge pages")])
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::treatment::guard::processes_with;

    #[test]
    fn an_undo_ends_an_allocation_that_a_killed_pgio_left() {
        let dir = tempfile::tempdir().unwrap();
        // A write to a pipe that nobody reads waits as an allocation does.
        let pipe = dir.path().join("nr_hugepages").display().to_string();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mark = Mark::new("test", &pipe);
        let script = marked_allocation_script(&mark, 7);
        let script = script.replace("/proc/sys/vm/nr_hugepages", &pipe);
        let mut orphan = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let (host, deadline) = (Host::local(), Instant::now() + LIMIT);
        while processes_with(&host, &mark.as_comment()).unwrap().is_empty() {
            assert!(Instant::now() < deadline && orphan.try_wait().unwrap().is_none());
            thread::sleep(Duration::from_millis(10));
        }
        end_leftover_guard(&host, &mark).unwrap();
        let status = orphan.try_wait().unwrap().expect("the undo has waited for its end");
        assert!(!status.success(), "{status}");
    }

    #[test]
    fn a_number_set_by_another_boot_is_kept_and_reported() {
        let host = Host::local();
        let pages = read_memory(&host).unwrap().pages;
        let on_another_boot = |prior: u64| {
            let label = Label::on_host(PAGES_SETTING, host.name());
            let ours = json!({ "pages": pages + 200, "leave": 1 << 30, "boot": "an earlier one" });
            HugePagesStep::from_record(&Record::new(KIND, &label, prior, ours)).unwrap()
        };
        for (prior, expected) in [(pages, Undone::Restored), (pages + 100, Undone::Kept)] {
            let undone = on_another_boot(prior).undo_on(&host, OnConflict::Ask).unwrap();
            assert_eq!(undone, expected, "{prior}");
        }
        assert_eq!(read_memory(&host).unwrap().pages, pages);
    }
}
