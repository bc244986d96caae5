//! Whether a standby flushes what it confirms: with fsync = off, a commit that waits for its flush waits
//! for nothing, and the level of synchronous_commit that the condition names was not measured.
//!
//! The settings of standbys are among the facts of the environment (`telemetry::environment`).

use pgio_results::change::fact;
use pgio_results::model::{Check, Trial};

/// `None` if no standby was found on an observed host, or the server itself does not flush.
pub(super) fn check(trial: &Trial) -> Option<Check> {
    const ID: &str = "standby-durability";
    if trial.server.fsync == "off" {
        return None;
    }
    let flushes = trial
        .environment
        .iter()
        .filter(|(name, _)| fact::is_of_standby(name) && name.ends_with(".fsync"));
    let (mut known, mut off) = (0, Vec::new());
    for (name, value) in flushes {
        known += 1;
        if value == "off" {
            off.push(name.as_str());
        }
    }
    if off.is_empty() {
        return (known > 0).then(|| Check::ok(ID, "fsync is on on every standby that was found"));
    }
    Some(Check::warning(
        ID,
        format!(
            "{} = off: commits that wait for the standby's flush wait for nothing",
            off.join(" and ")
        ),
        "turn fsync on in the standby's configuration and reload it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn checked(facts: &[(&str, &str)]) -> Option<Check> {
        let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        check(&Trial { environment: Arc::new(facts.collect::<BTreeMap<_, _>>()), ..full_trial() })
    }

    #[test]
    fn a_standby_that_does_not_flush_is_reported() {
        let check = checked(&[("db2.standby./srv/s.fsync", "off"), ("standby./srv/t.fsync", "on")])
            .unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.starts_with("db2.standby./srv/s.fsync = off: "), "{}", check.message);
    }

    #[test]
    fn a_healthy_standby_passes_and_none_is_not_judged() {
        let healthy = [("standby./srv/t.fsync", "on"), ("standby./srv/t.shared_buffers", "off")];
        assert_eq!(checked(&healthy).unwrap().verdict, CheckVerdict::Ok);
        assert_eq!(checked(&[("setting.fsync", "off"), ("host.kernel", "6.1")]), None);
    }
}
