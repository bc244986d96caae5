//! Every rule of measurement validity, broken on purpose on a real server: does the named check see it?
//!
//! Each fault runs a complete short experiment by the path of `compare`. It is caught if the analysis of the
//! stored results has the expected check, with the expected verdict, for the condition that the fault
//! hit. The bench judges nothing itself. Afterwards come experiments that resemble a fault without being one,
//! of which the same check must be silent, and healthy ones, which must not be accused of anything.
//!
//! The faults are in [`server`], [`steady`], [`generator`], [`device`] and [`host`] (need root) and [`drbd`]
//! (needs the lab: `lab/enter pgio-bench truth faults`). [`inject`] disturbs a running window.

mod accusations;
mod case;
mod device;
mod drbd;
mod generator;
mod healthy;
mod host;
mod inject;
mod server;
mod steady;

use std::collections::BTreeSet;
use std::path::PathBuf;

use self::accusations::Accusations;
use self::case::{Case, Fault, Needs};
use super::disk::enter_namespace;
use super::rounds::{Round, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome, REFUSED, USAGE};
use pgio::cli::{output, signals};
use pgio::pg::private::VersionRequest;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Break only these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    only: Vec<u32>,
    /// Number of healthy experiments
    #[arg(long, value_name = "N", default_value_t = 10)]
    healthy: usize,
    /// Do not count accusations by this check, such as foreign-load on a shared machine
    #[arg(long, value_name = "CHECK")]
    tolerate: Vec<String>,
    /// Keep the results here, a directory for each experiment
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

/// Number of rules. The last one is that of the statistics: a window must be steady, and so must the blocks.
const RULES: u32 = 16;

/// At least one for each rule.
const FAULTS: [Fault; 26] = [
    server::UNDECLARED_SETTING,
    device::OTHER_READ_AHEAD,
    host::OTHER_WRITE_BACK,
    host::OTHER_GOVERNOR,
    server::CHANGED_TREATMENT,
    drbd::DISCONNECTED,
    drbd::LOST_PEER,
    server::DEMOTED_STANDBY,
    server::NO_FSYNC,
    server::STANDBY_NO_FSYNC,
    generator::SATURATED,
    server::BLOATED_DATA,
    server::CHECKPOINT_INSIDE,
    server::FULL_PAGE_IMAGES,
    server::AUTOVACUUM_INSIDE,
    server::COLD_START,
    drbd::COLD_ACTIVITY_LOG,
    device::NO_BARRIERS,
    device::OTHER_WRITER,
    generator::BUSY_PROGRAMS,
    drbd::SLOW_CLOCK,
    steady::STEP_INSIDE,
    steady::EPISODE_INSIDE,
    steady::SLOWER_BLOCKS,
    steady::LATE_TREND,
    steady::LATE_CLIFF,
];

/// Resemble a fault without being one: the expected check must not be found.
const LOOKALIKES: [Fault; 4] =
    [host::SAME_WRITE_BACK, host::SAME_GOVERNORS, drbd::WARM_ACTIVITY_LOG, steady::LEVEL_BLOCKS];

pub(super) fn run(args: &Args) -> Outcome {
    let (faults, lookalikes) = chosen(&args.only)?;
    let all = || faults.iter().chain(&lookalikes);
    let of_lab = all().filter(|fault| fault.needs == Needs::Lab);
    let of_lab: BTreeSet<String> = of_lab.map(|fault| fault.rule.to_string()).collect();
    if !of_lab.is_empty() && !drbd::in_lab() {
        let text = format!(
            "rules broken on the hosts of the lab: {}; use lab/enter pgio-bench truth faults, or choose \
             others by --only",
            of_lab.into_iter().collect::<Vec<_>>().join(", ")
        );
        return Err(Failure::message(REFUSED, text));
    }
    let is_root = rustix::process::geteuid().is_root();
    let needs_mounts =
        all().any(|fault| matches!(fault.needs, Needs::LoopDevice | Needs::Namespace));
    if needs_mounts || (args.healthy > 0 && is_root) {
        enter_namespace()?;
    }
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let case = |name: String| {
        let out = args.out.as_deref().unwrap_or(scratch.path()).join(name);
        let round = Round { out, stop: &stop, pg: args.pg };
        round.check_interrupted()?;
        Ok::<_, Failure>(Case { round, tolerate: &args.tolerate })
    };
    let missed = break_rules(&faults, &case)?;
    let accused = imitate(&lookalikes, &case)? + healthy::run(args.healthy, &case)?;
    match (missed, accused) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::message(FAILED, "a healthy experiment was accused")),
        _ => Err(Failure::message(FAILED, "a broken rule was not noticed")),
    }
}

/// Returns the number of faults that were not caught.
fn break_rules<'a>(
    chosen: &[&Fault],
    case: &impl Fn(String) -> Result<Case<'a>, Failure>,
) -> Result<usize, Failure> {
    if chosen.is_empty() {
        return Ok(0);
    }
    output::line("rule  caught  expected                           fault; all that were accused");
    let mut missed = 0;
    for (number, fault) in (1..).zip(chosen) {
        let case = case(format!("fault-{number:02}-rule-{:02}", fault.rule))?;
        let found = Accusations::of(&(fault.run)(&case)?);
        let caught = found.contains(&fault.expected);
        missed += usize::from(!caught);
        output::line(&format!(
            "{:4}  {:6}  {:33}  {}; {found}",
            fault.rule,
            if caught { "yes" } else { "NO" },
            fault.expected.to_string(),
            fault.what
        ));
    }
    output::line(&format!("{} of {} caught", chosen.len() - missed, chosen.len()));
    Ok(missed)
}

/// Returns the number of lookalikes that were accused of the fault.
fn imitate<'a>(
    chosen: &[&Fault],
    case: &impl Fn(String) -> Result<Case<'a>, Failure>,
) -> Result<usize, Failure> {
    if chosen.is_empty() {
        return Ok(0);
    }
    output::line(
        "rule  silent  not expected                       no fault; all that were accused",
    );
    let mut accused = 0;
    for (number, lookalike) in (1..).zip(chosen) {
        let case = case(format!("lookalike-{number:02}-rule-{:02}", lookalike.rule))?;
        let found = Accusations::of(&(lookalike.run)(&case)?);
        let silent = !found.contains(&lookalike.expected);
        accused += usize::from(!silent);
        output::line(&format!(
            "{:4}  {:6}  {:33}  {}; {found}",
            lookalike.rule,
            if silent { "yes" } else { "NO" },
            lookalike.expected.to_string(),
            lookalike.what
        ));
    }
    output::line(&format!("{accused} of {} accused", chosen.len()));
    Ok(accused)
}

/// Returns the faults and the lookalikes of these rules, or all.
fn chosen(only: &[u32]) -> Result<(Vec<&'static Fault>, Vec<&'static Fault>), Failure> {
    if let Some(unknown) = only.iter().find(|rule| !FAULTS.iter().any(|f| f.rule == **rule)) {
        let text = format!("--only: there is no rule {unknown}; the rules are 1 to {RULES}");
        return Err(Failure::message(USAGE, text));
    }
    const ALL: (&[Fault], &[Fault]) = (&FAULTS, &LOOKALIKES);
    let of_rules = |all: &'static [Fault]| {
        all.iter().filter(|fault| only.is_empty() || only.contains(&fault.rule)).collect()
    };
    Ok((of_rules(ALL.0), of_rules(ALL.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_fault_with_a_check_that_exists() {
        let mut rules: Vec<u32> = FAULTS.iter().map(|fault| fault.rule).collect();
        assert!(rules.is_sorted());
        rules.dedup();
        assert_eq!(rules, (1..=RULES).collect::<Vec<_>>());
        for fault in FAULTS.iter().chain(&LOOKALIKES) {
            assert!(fault.expected.exists(), "rule {}", fault.rule);
        }
        let (faults, lookalikes) = chosen(&[7, 2, 3, 12]).unwrap();
        assert_eq!((faults.len(), lookalikes.len()), (5, 1));
        assert!(chosen(&[17]).is_err());
    }
}
