//! Healthy experiments, which must not be accused of anything.
//!
//! Reads of a cached table, updates and commits take turns; every second experiment has a synchronous
//! standby. Nothing differs between the conditions. Work of others on the machine is not healthy: run
//! this on an idle machine, or tolerate `foreign-load`. As root each experiment has a loop device of its
//! own, which others do not use.

use super::accusations::Accusations;
use super::case::Case;
use super::device::disk;
use super::server::{slob, text};
use crate::truth::server::{load, private, private_pair};
use pgio::cli::exit::Failure;
use pgio::cli::output;
use pgio_bench::loop_disk::LoopDisk;

/// Windows as long as five of telemetry's intervals: in shorter ones it samples more often, which costs a slow
/// processor more than `telemetry-cost` allows.
const EXPERIMENT: &str = "blocks = 6\nduration = \"5s\"";

/// Name and workload; those that read tables have their scale.
fn workload(number: usize) -> (&'static str, String, Option<&'static str>) {
    match number % 3 {
        0 => ("reads", slob("32M", 8, 0), Some("32M")),
        1 => ("commits", "[workload]\nkind = \"commit\"\nsessions = 2\n".to_owned(), None),
        _ => ("updates", slob("32M", 8, 50), Some("32M")),
    }
}

/// Returns the number of experiments that were accused.
pub(super) fn run<'a>(
    experiments: usize,
    case: &impl Fn(String) -> Result<Case<'a>, Failure>,
) -> Result<usize, Failure> {
    if experiments == 0 {
        return Ok(0);
    }
    output::line("healthy  workload  standby  accused of");
    let mut accused = 0;
    for number in 0..experiments {
        let case = case(format!("healthy-{:03}", number + 1))?;
        let has_standby = number % 2 == 1;
        let (name, workload, scale) = workload(number);
        // Dropped after the server.
        let disk = rustix::process::geteuid().is_root().then(disk).transpose()?;
        let base = disk.as_ref().map(LoopDisk::path);
        let cluster = if has_standby {
            private_pair(case.round.pg, base)?
        } else {
            private(case.round.pg, base, &[])?
        };
        if let Some(scale) = scale {
            load(&cluster, scale)?;
        }
        let text = text(&case, &cluster, EXPERIMENT, &workload, &["a", "b"]);
        let all = Accusations::of(&case.undisturbed(&text)?);
        let shown = all.to_string();
        let counted = all.without(case.tolerate);
        accused += usize::from(!counted.is_empty());
        let standby = if has_standby { "yes" } else { "no" };
        output::line(&format!("{:7}  {name:8}  {standby:7}  {shown}", number + 1));
        for message in &counted.messages {
            output::line(&format!("         {message}"));
        }
    }
    output::line(&format!("{accused} of {experiments} accused"));
    Ok(accused)
}
