//! Every rule of measurement validity, broken on purpose on a real server: does the named check see it?
//!
//! Each fault runs a complete short experiment by the path of `compare`. It is caught if the analysis of the
//! stored results has the expected check, with the expected verdict, for the condition that the fault
//! hit. The bench judges nothing itself. Afterwards, healthy experiments must not be accused of
//! anything.
//!
//! The faults are in [`server`], [`steady`], [`generator`], [`device`] (needs root) and [`drbd`] (needs the
//! lab: `lab/enter pgio-bench truth faults`). [`inject`] disturbs a running window.

mod accusations;
mod case;
mod device;
mod drbd;
mod generator;
mod healthy;
mod inject;
mod server;
mod steady;

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
const FAULTS: [Fault; 22] = [
    server::UNDECLARED_SETTING,
    device::OTHER_READ_AHEAD,
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
];

pub(super) fn run(args: &Args) -> Outcome {
    let chosen = chosen(&args.only)?;
    let of_lab = chosen.iter().filter(|fault| fault.needs == Needs::Lab);
    let of_lab: Vec<String> = of_lab.map(|fault| fault.rule.to_string()).collect();
    if !of_lab.is_empty() && !drbd::in_lab() {
        let text = format!(
            "rules broken on the hosts of the lab: {}; use lab/enter pgio-bench truth faults, or choose \
             others by --only",
            of_lab.join(", ")
        );
        return Err(Failure::message(REFUSED, text));
    }
    let is_root = rustix::process::geteuid().is_root();
    let needs_disk = chosen.iter().any(|fault| fault.needs == Needs::LoopDevice);
    if needs_disk || (args.healthy > 0 && is_root) {
        enter_namespace()?;
    }
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let case = |name: String| {
        let out = args.out.as_deref().unwrap_or(scratch.path()).join(name);
        let round = Round { out, stop: &stop, pg: args.pg };
        round.go_on()?;
        Ok::<_, Failure>(Case { round, tolerate: &args.tolerate })
    };
    let missed = break_rules(&chosen, &case)?;
    let accused = healthy::run(args.healthy, &case)?;
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

/// Returns the faults of these rules, or all.
fn chosen(only: &[u32]) -> Result<Vec<&'static Fault>, Failure> {
    if let Some(unknown) = only.iter().find(|rule| !FAULTS.iter().any(|f| f.rule == **rule)) {
        let text = format!("--only: there is no rule {unknown}; the rules are 1 to {RULES}");
        return Err(Failure::message(USAGE, text));
    }
    const ALL: &[Fault] = &FAULTS;
    Ok(ALL.iter().filter(|fault| only.is_empty() || only.contains(&fault.rule)).collect())
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
        for fault in &FAULTS {
            assert!(fault.expected.exists(), "rule {}", fault.rule);
        }
        assert_eq!(chosen(&[7, 2, 3]).unwrap().len(), 4);
        assert!(chosen(&[17]).is_err());
    }
}
