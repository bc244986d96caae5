//! How the private servers of an experiment were built, as changes that tell targets apart.
//!
//! They are stored beside the conditions and are no treatments: `pgio_report::analysis` attributes a
//! difference between two targets to them. A server of the user's is not described, because what
//! it was built from is unknown.

use std::collections::BTreeMap;

use crate::config::experiment::{Experiment, PrivateTarget, StandbyTarget, Target};
use crate::experiment::live::LiveCell;
use crate::experiment::target;
use pgio_results::change::{Change, Subject};
use pgio_results::units;

/// By condition, of those on private servers.
pub(super) fn of_conditions(
    cells: &[LiveCell],
    e: &Experiment,
    targets: &BTreeMap<String, target::Target>,
) -> BTreeMap<String, Vec<Change>> {
    let built = |cell: &LiveCell| {
        let Some(Target::Private(private)) = e.targets.get(&cell.target) else { return None };
        let version = targets.get(&cell.target)?.cluster.as_ref()?.version();
        Some((cell.cell.condition.clone(), describe(private, &version.to_string())))
    };
    cells.iter().filter_map(built).collect()
}

fn describe(target: &PrivateTarget, version: &str) -> Vec<Change> {
    let mut all = vec![Change::new(None, Subject::Version, "version", version)];
    let mut options = target.initdb.iter().peekable();
    while let Some(option) = options.next() {
        let (name, mut value) = match option.split_once('=') {
            Some((name, value)) if option.starts_with("--") => (name, value),
            _ => (option.as_str(), ""),
        };
        // `-E UTF8`: the value is an argument of its own.
        if let Some(next) = options.next_if(|next| !next.starts_with('-')) {
            value = next;
        }
        all.push(Change::new(None, Subject::Initdb, name, value));
    }
    for (key, path) in [("directory", &target.directory), ("wal_directory", &target.wal_directory)]
    {
        if let Some(path) = path {
            all.push(Change::new(None, Subject::Directory, key, path.to_string_lossy()));
        }
    }
    let settings = target.settings.iter();
    all.extend(settings.map(|(name, value)| Change::server(name.as_str(), value.as_str())));
    all.extend(target.standbys.iter().map(standby));
    all
}

fn standby(of: &StandbyTarget) -> Change {
    let mut parts = vec![format!("from {}", of.from.as_deref().unwrap_or("the primary"))];
    parts.extend(of.directory.iter().map(|path| format!("in {}", path.display())));
    if !of.apply_delay.is_zero() {
        parts.push(format!("apply_delay {}", units::exact_duration(of.apply_delay)));
    }
    if of.archive {
        parts.push("archive".to_owned());
    }
    parts.extend(of.settings.iter().map(|(name, value)| format!("{name} = {value}")));
    let subject = Subject::Standby { name: of.name.clone() };
    Change::new(None, subject, "standby", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::test_support::{COMMITS, job};

    #[test]
    fn a_private_target_is_described_by_version_options_and_standbys() {
        let lines = "private = true\ninitdb = ['-E', 'UTF8', '--wal-segsize=64', '-k']\n\
                     wal_directory = '/srv/wal'\npostgres = { shared_buffers = '64MB' }\n\
                     standbys = [{ name = 'a' }, { name = 'b', from = 'a', apply_delay = '5s' }]";
        let job = job(&COMMITS.replace("private = true", lines));
        let Target::Private(private) = &job.experiment.targets["target"] else { panic!() };
        let texts: Vec<String> = describe(private, "18.6").iter().map(Change::to_string).collect();
        let expected = [
            "PostgreSQL 18.6",
            "initdb -E=UTF8",
            "initdb --wal-segsize=64",
            "initdb -k",
            "wal_directory = /srv/wal",
            "shared_buffers = 64MB",
            "standby a (from the primary)",
            "standby b (from a, apply_delay 5s)",
        ];
        assert_eq!(texts, expected);
    }
}
