//! Every rule of measurement validity, broken on purpose on a real server: does the named check see it?
//!
//! Each fault runs a complete short experiment by the path of `compare`. It is caught if the analysis of the
//! stored results has the expected check, with the expected verdict, for the condition that the fault
//! hit. The bench judges nothing itself. Afterwards come experiments that resemble a fault without being one,
//! of which the same check must be silent, and healthy ones, which must not be accused of anything.
//!
//! The faults are the table in [`table`]; [`experiment`] runs a line of it.

mod accusations;
mod experiment;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;

use self::accusations::Accusations;
use self::experiment::{Case, Fault, Place, analyze};
use self::table::{FAULTS, HEALTHY, LOOKALIKES, RULES, in_lab};
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

pub(super) fn run(args: &Args) -> Outcome {
    let (faults, lookalikes) = chosen(&args.only)?;
    let all = || faults.iter().chain(&lookalikes);
    let in_the_lab: BTreeSet<String> = all()
        .filter(|fault| fault.place == Place::Lab)
        .map(|fault| fault.rule.to_string())
        .collect();
    if !in_the_lab.is_empty() && !in_lab() {
        let text = format!(
            "rules broken on the hosts of the lab: {}; use lab/enter pgio-bench truth faults, or choose \
             others by --only",
            in_the_lab.into_iter().collect::<Vec<_>>().join(", ")
        );
        return Err(Failure::message(REFUSED, text));
    }
    let is_root = rustix::process::geteuid().is_root();
    let needs_mounts = all().any(|fault| matches!(fault.place, Place::LoopDisk | Place::Namespace));
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
    let missed = {
        let titles = [
            "rule  caught  expected                           fault; all that were accused",
            "fault",
        ];
        let silent = run_all(&faults, titles, false, &case)?;
        if !faults.is_empty() {
            output::line(&format!("{} of {} caught", faults.len() - silent, faults.len()));
        }
        silent
    };
    let titles = [
        "rule  silent  not expected                       no fault; all that were accused",
        "lookalike",
    ];
    let mut accused = run_all(&lookalikes, titles, true, &case)?;
    if !lookalikes.is_empty() {
        output::line(&format!("{accused} of {} accused", lookalikes.len()));
    }
    accused += run_healthy(args.healthy, &case)?;
    match (missed, accused) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::message(FAILED, "a healthy experiment was accused")),
        _ => Err(Failure::message(FAILED, "a broken rule was not noticed")),
    }
}

/// Returns the number of faults that were not caught or, if `silent` is right, of lookalikes that were accused.
fn run_all<'a>(
    chosen: &[&Fault],
    [head, name]: [&str; 2],
    silent: bool,
    case: &impl Fn(String) -> Result<Case<'a>, Failure>,
) -> Result<usize, Failure> {
    if !chosen.is_empty() {
        output::line(head);
    }
    let mut wrong = 0;
    for (number, fault) in (1..).zip(chosen) {
        let case = case(format!("{name}-{number:02}-rule-{:02}", fault.rule))?;
        let found = Accusations::new(&analyze(fault, &case)?);
        let is_right = found.contains(&fault.expected) != silent;
        wrong += usize::from(!is_right);
        output::line(&format!(
            "{:4}  {:6}  {:33}  {}; {found}",
            fault.rule,
            if is_right { "yes" } else { "NO" },
            fault.expected.to_string(),
            fault.what
        ));
    }
    Ok(wrong)
}

/// Runs experiments whose conditions do not differ: reads of a cached table, commits and updates take turns; every
/// second one has a synchronous standby. Work of others on the machine is not healthy: run this on an idle machine, or
/// tolerate `foreign-load`. As root each has a loop device of its own, which others do not use.
///
/// Returns the number of experiments that were accused.
fn run_healthy<'a>(
    experiments: usize,
    case: &impl Fn(String) -> Result<Case<'a>, Failure>,
) -> Result<usize, Failure> {
    if experiments == 0 {
        return Ok(0);
    }
    output::line("healthy  workload  standby  accused of");
    let place = if rustix::process::geteuid().is_root() { Place::LoopDisk } else { Place::Server };
    let mut accused = 0;
    for number in 0..experiments {
        let case = case(format!("healthy-{:03}", number + 1))?;
        let (name, fault) = &HEALTHY[number % HEALTHY.len()];
        let standby = number % 2 == 1;
        let all = Accusations::new(&analyze(&Fault { place, standby, ..*fault }, &case)?);
        let shown = all.to_string();
        let counted = all.without(case.tolerate);
        accused += usize::from(!counted.is_empty());
        let standby = if standby { "yes" } else { "no" };
        output::line(&format!("{:7}  {name:8}  {standby:7}  {shown}", number + 1));
        for message in &counted.messages {
            output::line(&format!("         {message}"));
        }
    }
    output::line(&format!("{accused} of {experiments} accused"));
    Ok(accused)
}

/// Returns the faults and the lookalikes of these rules, or all.
fn chosen(only: &[u32]) -> Result<(Vec<&'static Fault>, Vec<&'static Fault>), Failure> {
    if let Some(unknown) = only.iter().find(|rule| !FAULTS.iter().any(|f| f.rule == **rule)) {
        let text = format!("--only: there is no rule {unknown}; the rules are 1 to {RULES}");
        return Err(Failure::message(USAGE, text));
    }
    let by_rule = |all: &'static [Fault]| {
        all.iter().filter(|fault| only.is_empty() || only.contains(&fault.rule)).collect()
    };
    Ok((by_rule(FAULTS), by_rule(LOOKALIKES)))
}

#[cfg(test)]
mod tests {
    use super::accusations::Expected;
    use super::*;

    #[test]
    fn each_rule_has_a_fault_with_a_check_that_exists() {
        let mut rules: Vec<u32> = FAULTS.iter().map(|fault| fault.rule).collect();
        assert!(rules.is_sorted());
        rules.dedup();
        assert_eq!(rules, (1..=RULES).collect::<Vec<_>>());
        for fault in FAULTS.iter().chain(LOOKALIKES) {
            match &fault.expected {
                Expected::Check { id, .. } => {
                    assert!(pgio::feature::definition(id).is_some(), "rule {}", fault.rule);
                }
                Expected::ImagesNote => {}
            }
        }
        let (faults, lookalikes) = chosen(&[7, 2, 3, 12]).unwrap();
        assert_eq!((faults.len(), lookalikes.len()), (5, 1));
        assert!(chosen(&[17]).is_err());
    }
}
