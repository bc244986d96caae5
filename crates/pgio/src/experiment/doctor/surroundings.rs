//! pgio's own surroundings: changes of earlier runs, space for results, programs.

use std::env;
use std::path::Path;

use super::Section;
use crate::experiment::state;
use crate::pg::words;
use crate::treatment::journal::{self, JournalError};
use pgio_results::Check;
use pgio_results::units::human;

/// The record of a trial with its series takes some hundred kB.
const MIN_FREE_BYTES: u64 = 1 << 30;

/// Program, purpose, package.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("iostat", "iostat.out as the original writes it", "sysstat"),
    ("mpstat", "mpstat.out as the original writes it", "sysstat"),
    ("vmstat", "vmstat.out as the original writes it", "procps"),
    ("ssh", "remote hosts", "openssh-client"),
    ("ss", "round-trip times of standbys", "iproute2"),
    ("fio", "figures of the bare device", "fio"),
];

const JOURNAL_ID: &str = "journal";

pub(super) fn section() -> Section {
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
    let missing: Vec<_> =
        PROGRAMS.iter().filter(|(program, _, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        let names: Vec<&str> = PROGRAMS.iter().map(|(program, _, _)| *program).collect();
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
    use pgio_results::CheckVerdict;

    #[test]
    fn missing_programs_are_named_with_purpose_and_package() {
        assert_eq!(check_programs(|_| true).verdict, CheckVerdict::Ok);
        let check = check_programs(|program| program == "ssh" || program == "vmstat");
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.contains("fio (figures of the bare device)"), "{}", check.message);
        assert_eq!(check.remedy, "install sysstat, iproute2, fio");
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
