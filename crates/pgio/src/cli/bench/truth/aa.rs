//! Nothing differs: the baseline and its twin, on a small table that is all in shared buffers.

use super::{Judged, Plan, each};
use crate::cli::Outcome;
use crate::config::experiment::AA_SUFFIX;

const REST: &str = r#"
[target]
private = true

[workload]
kind = "slob"
scale = "32M"
work_unit = 8
update_pct = 0
num_schemas = 1
num_threads = 1
create_base_table = false

[[condition]]
name = "cached"
"#;

pub(super) fn run(plan: &Plan) -> Outcome {
    let text = plan.head("aa", true) + REST;
    each(plan, "ratio", |round| {
        let analysis = round.analysis(&text)?;
        let twin = analysis.primary(&format!("cached{AA_SUFFIX}"));
        Ok(Judged::of_ratio(twin, 1.0))
    })
}
