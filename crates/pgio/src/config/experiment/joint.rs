//! Conditions that run on several servers in one window: `together` of `[experiment]`, and the workloads that can.
//!
//! Next: `condition_targets` reads the list of a condition.

use super::condition::Condition;
use super::section::Section;
use super::workload::WorkloadSpec;
use crate::config::error::ConfigError;
use crate::config::kinds::Sessions;

/// Returns whether conditions that name no target run on all of them in one window.
pub(super) fn together(head: &Section<'_>, targets: usize) -> Result<bool, ConfigError> {
    match (head.boolean("together")?, targets) {
        (Some(true), 0 | 1) => {
            let message = "requires several targets; add [targets.NAME] sections";
            Err(head.error("together", message))
        }
        (asked, _) => Ok(asked.unwrap_or(false)),
    }
}

/// Refuses a workload that cannot share its window: only sessions of pgio's own start at an agreed moment.
pub(super) fn check_workloads(
    root: &Section<'_>,
    workloads: &[WorkloadSpec],
    conditions: &[Condition],
) -> Result<(), ConfigError> {
    for workload in workloads {
        let def = workload.kind.def();
        if def.sessions != Sessions::None && !def.program {
            continue;
        }
        let joint = |c: &&Condition| !c.further_targets.is_empty() && workload.runs_under(&c.name);
        if let Some(condition) = conditions.iter().find(joint) {
            let message = format!(
                "`{}` cannot run on several targets in one window, as condition `{}` asks; only slob and commit can",
                def.name, condition.name
            );
            return Err(root.error("workload", message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::{Experiment, parse};

    const TARGETS: &str = "[targets.a]\nprivate = true\n[targets.b]\nprivate = true\n\
                           [targets.c]\nprivate = true\n";

    fn read(text: &str) -> Result<Experiment, String> {
        parse(text, "x.toml", "x", &["postgres"], &[]).map_err(|error| error.to_string())
    }

    fn with(head: &str, target: &str) -> Result<Experiment, String> {
        let work = "[workload]\nkind = 'commit'\n";
        read(&format!("{head}{TARGETS}{work}[[condition]]\nname = 'all'\n{target}\n"))
    }

    fn targets(e: &Experiment) -> Vec<&str> {
        e.conditions[0].targets().map(String::as_str).collect()
    }

    #[test]
    fn a_condition_names_one_server_several_or_none() {
        assert_eq!(targets(&with("", "target = 'b'").unwrap()), ["b"]);
        // The order is the file's: the first is the one that others are compared by.
        assert_eq!(targets(&with("", "target = ['c', 'a']").unwrap()), ["c", "a"]);
        let together = "[experiment]\ntogether = true\n";
        assert_eq!(targets(&with(together, "").unwrap()), ["a", "b", "c"]);
        assert_eq!(targets(&with(together, "target = 'b'").unwrap()), ["b"]);
    }

    #[test]
    fn wrong_lists_are_refused_with_their_line() {
        let refused = |target: &str, expected: &str| {
            let error = with("", target).unwrap_err();
            assert!(
                error.starts_with("x.toml:11: condition") && error.contains(expected),
                "{error}"
            );
        };
        refused("target = ['a', 'b', 'a']", "target: names `a` twice");
        refused("target = ['a', 'd']", "target: `d` is not a target; ");
        refused("target = []", "target: names no target");
        refused("target = ['a', 1]", "must be an array of strings");
        let error = with("", "").unwrap_err();
        assert!(error.contains("has no target; set target to one of a, b, c"), "{error}");
        let one = "[experiment]\ntogether = true\n[target]\nprivate = true\n[workload]\nkind = 'commit'\n\
                   [[condition]]\nname = 'a'\n";
        let error = read(one).unwrap_err();
        assert!(error.starts_with("x.toml:2: experiment.together: requires several"), "{error}");
    }

    #[test]
    fn only_sessions_of_pgio_share_a_window() {
        let text = format!(
            "{TARGETS}[workload]\nkind = 'device'\n\
             [[condition]]\nname = 'all'\ntarget = ['a', 'b']\n"
        );
        let error = read(&text).unwrap_err();
        assert!(error.contains("`device` cannot run on several targets"), "{error}");
    }
}
