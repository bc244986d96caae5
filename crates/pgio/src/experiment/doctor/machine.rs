//! Machines: current load, power saving, clock source. A remote machine is reached by ssh and checked
//! in the same way.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::sync::Arc;

use pgio_results::Check;
use pgio_results::thresholds::FOREIGN_WARNING;
use pgio_results::units::human;

use super::Section;
use crate::config::experiment::HostSpec;
use crate::experiment::state;
use crate::feature::{self, Program};
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::{self, Host, Hosts, LOCAL};
use crate::pg::words;
use crate::treatment::journal::{self, JournalError};

const SCRIPT: &str = include_str!("machine.sh");

/// Clock sources read without a system call; others cost a microsecond per reading.
const FAST_CLOCKS: &[&str] =
    &["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];

/// Also returns the hosts that answered, always including this machine.
pub(super) fn sections(specs: &BTreeMap<String, HostSpec>) -> (Vec<Section>, Hosts) {
    let here = Host::local();
    let mut sections = vec![section("This machine".to_owned(), check_machine(&here))];
    let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(here))]);
    for (name, spec) in specs {
        let found = Host::connect(name, spec);
        if let Some(ssh) = &spec.ssh {
            let reached = check_reachable(found.as_ref().err());
            let facts = found.as_ref().map(|host| check_machine(host)).unwrap_or_default();
            let all = [vec![reached], facts].concat();
            sections.push(section(format!("Host {name}: {ssh}"), all));
        }
        hosts.extend(found.ok().map(|host| (name.clone(), Arc::new(host))));
    }
    if let Err(error) = host::refuse_duplicates(specs, &hosts) {
        let remedy = "correct [hosts]; `pgio compare` refuses these hosts";
        let twins = Check::invalid("hosts-distinct", words::sentence(&error), remedy);
        sections.push(section("Hosts".to_owned(), vec![twins]));
    }
    (sections, hosts)
}

fn section(title: String, checks: Vec<Check>) -> Section {
    Section { title, checks }
}

fn check_reachable(error: Option<&ExecError>) -> Check {
    const ID: &str = "host-reachable";
    match error {
        None => Check::ok(ID, "by ssh, without a password prompt"),
        Some(error) => {
            let text = words::sentence(error);
            Check::invalid(
                ID,
                text,
                "correct the ssh settings, or remove the host from the experiment",
            )
        }
    }
}

/// Takes a second.
fn check_machine(exec: &dyn Exec) -> Vec<Check> {
    let printed = match exec.run(&CommandLine::new("sh").args(["-c", SCRIPT])) {
        Ok(printed) => printed,
        Err(error) => {
            let text = error.to_string();
            return vec![Check::warning(
                "machine",
                text,
                "run sh on that machine and see its error",
            )];
        }
    };
    let facts: BTreeMap<&str, &str> = printed.lines().filter_map(|l| l.split_once('\t')).collect();
    let used = facts.get("cpu_before").zip(facts.get("cpu_after"));
    let used = used.and_then(|(before, after)| CpuShares::between(before, after));
    let cores: f64 = facts.get("cores").and_then(|n| n.parse().ok()).unwrap_or(1.0);
    let checks = [
        used.map(|u| check_load(u.busy, cores)),
        used.map(|u| check_steal(u.steal)),
        check_memory(&facts),
        facts.get("governors").map(|names| check_governor(names.trim())),
        facts.get("clock_source").and_then(|name| check_clock(name)),
    ];
    checks.into_iter().flatten().collect()
}

/// Shares of the time of all cores.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CpuShares {
    busy: f64,
    steal: f64,
}

impl CpuShares {
    /// Compares two `cpu` lines of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
    fn between(before: &str, after: &str) -> Option<CpuShares> {
        let fields = |line: &str| -> Option<Vec<f64>> {
            line.split_whitespace().take(8).map(|f| f.parse().ok()).collect()
        };
        let (before, after) = (fields(before)?, fields(after)?);
        let spent: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        let total: f64 = spent.iter().sum();
        let [_, _, _, idle, iowait, _, _, steal] = spent[..] else { return None };
        (total > 0.0).then(|| CpuShares {
            busy: 1.0 - (idle + iowait + steal) / total,
            steal: steal / total,
        })
    }
}

/// No workload of pgio runs, so all load is foreign.
fn check_load(busy: f64, cores: f64) -> Check {
    const ID: &str = "foreign-load";
    let text = format!("{:.1} of {cores:.0} cores busy during a second", busy * cores);
    if busy <= FOREIGN_WARNING.0 {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "stop other programs, or measure when the machine is idle")
    }
}

fn check_steal(share: f64) -> Check {
    const ID: &str = "steal";
    let text = format!("the hypervisor gave {:.1} % of the time to other guests", share * 100.0);
    if share <= FOREIGN_WARNING.0 {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "measure on a machine of its own, or use more blocks")
    }
}

fn check_memory(facts: &BTreeMap<&str, &str>) -> Option<Check> {
    let bytes = |name: &str| facts.get(name).and_then(|n| n.parse::<u64>().ok()).map(|n| n * 1024);
    let (total, available) = (bytes("memory_kb")?, bytes("available_kb")?);
    let text = format!("{} of {} available", human::bytes(available), human::bytes(total));
    Some(Check::ok("memory", text))
}

/// `names` is empty on machines without frequency scaling, such as virtual ones.
fn check_governor(names: &str) -> Check {
    const ID: &str = "cpu-governor";
    match names {
        "" => Check::ok(ID, "the kernel does not scale the CPU frequency"),
        "performance" => Check::ok(ID, "performance"),
        other => Check::warning(
            ID,
            format!("{other}: the CPU frequency follows the load, and so do latencies"),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn check_clock(name: &str) -> Option<Check> {
    const ID: &str = "clock-source";
    match name {
        "" => None,
        fast if FAST_CLOCKS.contains(&fast) => Some(Check::ok(ID, fast)),
        slow => Some(Check::warning(
            ID,
            format!("{slow}: reading the clock is slow, which adds to every timed operation"),
            "see /sys/devices/system/clocksource/clocksource0/available_clocksource for tsc",
        )),
    }
}

/// The record of a trial with its series takes some hundred kB.
const MIN_FREE_BYTES: u64 = 1 << 30;

const PROGRAMS: &[Program] = &[
    ("iostat", "iostat.out as the original writes it", "sysstat"),
    ("mpstat", "mpstat.out as the original writes it", "sysstat"),
    ("vmstat", "vmstat.out as the original writes it", "procps"),
    ("ssh", "remote hosts", "openssh-client"),
    ("ss", "round-trip times of standbys", "iproute2"),
];

const JOURNAL_ID: &str = "journal";

pub(super) fn surroundings() -> Section {
    let hint = state::root_journals_hint();
    let journal = state::journal_dir()
        .map(|dir| check_journal(&dir, hint.as_deref(), journal::check_finished(&dir)));
    let journal = journal.unwrap_or_else(|failure| {
        Check::invalid(JOURNAL_ID, words::sentence(&failure), "set PGIO_STATE_DIR")
    });
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = |program: &str| {
        env::split_paths(&path)
            .any(|dir| rustix::fs::access(dir.join(program), rustix::fs::Access::EXEC_OK).is_ok())
    };
    let checks =
        [Some(journal), check_free_space(Path::new(".")), Some(check_programs(is_installed))];
    Section {
        title: format!("pgio {}", env!("CARGO_PKG_VERSION")),
        checks: checks.into_iter().flatten().collect(),
    }
}

/// Names the directory that was searched: another user has another one.
fn check_journal(dir: &Path, hint: Option<&str>, journal: Result<(), JournalError>) -> Check {
    const ID: &str = JOURNAL_ID;
    let words = |error: &JournalError| words::sentence(error);
    match journal {
        Ok(()) => {
            let found = format!("no journal of an interrupted run in {}", dir.display());
            Check::ok(ID, hint.map_or(found.clone(), |hint| format!("{found}; {hint}")))
        }
        Err(error @ JournalError::Busy { .. }) => {
            Check::warning(ID, words(&error), "wait for it to end")
        }
        Err(error @ JournalError::Directory(_)) => {
            Check::invalid(ID, words(&error), "find out who created it, then remove it")
        }
        Err(error) => Check::invalid(ID, words(&error), "undo them with `pgio undo`"),
    }
}

fn check_free_space(dir: &Path) -> Option<Check> {
    const ID: &str = "room-for-results";
    let found = rustix::fs::statvfs(dir).ok()?;
    let free = found.f_bavail * found.f_frsize;
    let text = format!("{} free in the working directory", human::bytes(free));
    Some(if free >= MIN_FREE_BYTES {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "free some space, or choose another directory with --out")
    })
}

fn check_programs(is_installed: impl Fn(&str) -> bool) -> Check {
    const ID: &str = "programs";
    let all = || PROGRAMS.iter().chain(feature::programs());
    let missing: Vec<_> = all().filter(|(program, _, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        let names: Vec<&str> = all().map(|(program, _, _)| *program).collect();
        return Check::ok(ID, format!("{} are installed", names.join(", ")));
    }
    let what: Vec<String> =
        missing.iter().map(|(program, purpose, _)| format!("{program} ({purpose})")).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, _, package)| *package).collect();
    packages.dedup();
    Check::warning(
        ID,
        format!("not installed, optional: {}", what.join(", ")),
        format!("install {}", packages.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict::{self, Ok as Fine};

    #[test]
    fn busy_and_stolen_time_are_shares_of_all() {
        let used = CpuShares::between("0 0 0 0 0 0 0 0 0 0", "20 0 10 50 10 0 0 10 0 0").unwrap();
        assert!((used.busy - 0.3).abs() < 1e-9 && (used.steal - 0.1).abs() < 1e-9, "{used:?}");
        assert_eq!(CpuShares::between("1 2 3", "1 2 4"), None);
        assert_eq!(CpuShares::between("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0"), None);
    }

    #[test]
    fn disturbances_are_warnings() {
        assert_eq!(
            [check_load(0.04, 2.0).verdict, check_load(0.5, 2.0).verdict],
            [Fine, CheckVerdict::Warning]
        );
        assert_eq!(
            [check_steal(0.01).verdict, check_steal(0.2).verdict],
            [Fine, CheckVerdict::Warning]
        );
        assert_eq!(
            [check_governor("").verdict, check_governor("performance").verdict],
            [Fine, Fine]
        );
        assert_eq!(check_governor("performance powersave").verdict, CheckVerdict::Warning);
        assert_eq!(check_clock("hpet").unwrap().verdict, CheckVerdict::Warning);
    }

    #[test]
    fn this_machine_has_every_check() {
        let found = check_machine(&Host::local());
        let ids: Vec<&str> = found.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids[..3], ["foreign-load", "steal", "memory"]);
    }

    #[test]
    fn missing_programs_are_named_with_purpose_and_package() {
        assert_eq!(check_programs(|_| true).verdict, CheckVerdict::Ok);
        let check = check_programs(|program| program == "ssh" || program == "vmstat");
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.contains("ss (round-trip times of standbys)"), "{}", check.message);
        assert!(check.remedy.starts_with("install sysstat, iproute2"), "{}", check.remedy);
    }

    #[test]
    fn a_busy_journal_is_a_warning_and_an_unfinished_one_invalid() {
        let dir = Path::new("/s/journal");
        let ok = check_journal(dir, Some("root has others"), Ok(()));
        assert_eq!(ok.verdict, CheckVerdict::Ok);
        let expected = "no journal of an interrupted run in /s/journal; root has others";
        assert_eq!(ok.message, expected);
        let busy = JournalError::Busy { who: "run r1".to_owned(), what: "server 1".to_owned() };
        assert_eq!(check_journal(dir, None, Err(busy)).verdict, CheckVerdict::Warning);
        let check = check_journal(dir, None, Err(JournalError::Unfinished("/j/1".into())));
        assert_eq!(check.verdict, CheckVerdict::Invalid);
        assert!(check.remedy.contains("pgio undo"));
    }
}
