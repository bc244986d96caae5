//! Limits on the size of an experiment file and of the experiment that it describes.
//!
//! The limits are far above what can be measured in reasonable time, and below what would take minutes
//! or gigabytes to plan. A larger value is a typo, and the parser refuses it with its line. docs/KEYS.md
//! lists the limits. `config::keys` has the limits of single workload keys.

use benchmath::factorial::MAX_FACTORS;

/// A limit as shown in docs/KEYS.md.
#[derive(Debug, Clone, Copy)]
pub struct LimitDef {
    pub what: &'static str,
    pub most: u64,
}

pub const FILE_BYTES: u64 = 1 << 20;
pub(super) const BLOCKS: u64 = 10_000;
pub(super) const REPEATS: u64 = 100;
pub(super) const CONDITIONS: usize = 200;
pub(super) const TREATMENTS: usize = 50;
pub(super) const WORKLOADS: usize = 50;
pub(super) const TARGETS: usize = 50;
/// The limit for one private server; ten WAL senders are PostgreSQL's default.
pub(super) const STANDBYS: usize = 8;
pub(super) const HOSTS: usize = 100;
pub(super) const AXES: usize = 10;
pub(super) const FACTORS: usize = MAX_FACTORS;
pub(super) const VALUES: usize = 200;
pub(super) const CELLS: u64 = 10_000;
/// Trials of a workload in the maximum number of blocks.
pub(super) const TRIALS: u64 = 100_000;

pub const LIMITS: &[LimitDef] = &[
    LimitDef { what: "size of an experiment file or pgio.conf in bytes", most: FILE_BYTES },
    LimitDef { what: "`blocks`, `max_blocks`", most: BLOCKS },
    LimitDef { what: "`repeats` of an invalid trial", most: REPEATS },
    LimitDef { what: "`[[condition]]`", most: CONDITIONS as u64 },
    LimitDef { what: "treatments of a condition", most: TREATMENTS as u64 },
    LimitDef { what: "`[[workload]]`", most: WORKLOADS as u64 },
    LimitDef { what: "`[targets.NAME]`", most: TARGETS as u64 },
    LimitDef { what: "`standbys` of a private server", most: STANDBYS as u64 },
    LimitDef { what: "`[hosts.NAME]`", most: HOSTS as u64 },
    LimitDef { what: "axes of a workload, `[[axis]]` included", most: AXES as u64 },
    LimitDef { what: "values of an axis", most: VALUES as u64 },
    LimitDef { what: "`[[factor]]`", most: FACTORS as u64 },
    LimitDef { what: "cells of a design, regardless of `cells_limit`", most: CONDITIONS as u64 },
    LimitDef { what: "`cells_limit`: conditions at points of a workload", most: CELLS },
    LimitDef {
        what: "trials of a workload: its cells times the maximum number of blocks",
        most: TRIALS,
    },
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::time::{Duration, Instant};

    use crate::config::experiment::parse;

    const TWO: &str = "[[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n";

    /// Checks that the text is refused with these words, and in less than quadratic time.
    #[track_caller]
    fn refused(text: &str, words: &[&str]) {
        let began = Instant::now();
        let error = parse(text, "f.toml", "f", &["postgres", "throttle"], &[]).unwrap_err();
        let shown = error.to_string();
        assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
        // A debug build parses a few MB of TOML in seconds; everything else must be negligible.
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    fn numbers(n: usize) -> String {
        (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn values_above_the_limits_are_refused_with_their_line() {
        let head = |keys: &str| format!("[experiment]\n{keys}\n{TWO}");
        refused(&head("blocks = 20000000"), &["f.toml:2", "blocks", "from 1 to 10000"]);
        refused(&head("precision = \"5%\"\nmax_blocks = 20000"), &["max_blocks", "to 10000"]);
        refused(&head("repeats = 4000000000"), &["repeats", "from 0 to 100"]);
        refused(&head("duration = \"9000h\""), &["duration", "at most 720h"]);
        refused(&head("warmup = \"9000h\""), &["warmup", "at most 720h"]);

        let mut many = String::new();
        for n in 0..20_000 {
            let _ = write!(many, "[[condition]]\nname = \"c{n}\"\n");
        }
        refused(&many, &["has 20000 tables", "maximum is 200"]);
        let body = vec!["{ device = \"/dev/x\", write_iops = 100 }"; 51].join(", ");
        let throttled = format!("[[condition]]\nname = \"a\"\nthrottle = [{body}]\n");
        refused(&throttled, &["51 treatments", "maximum is 50"]);

        let work = |keys: &str| format!("[workload]\nkind = \"commit\"\n{keys}\n{TWO}");
        let axis = format!("sessions = [{}]", numbers(20_000));
        refused(&work(&axis), &["sessions", "20000 values", "maximum is 200"]);
        refused(&work("sessions = 2000000"), &["sessions", "from 1 to 10000"]);
        refused(&work("run_time = \"721h\""), &["run_time", "at most 720h"]);
        let axis = format!(
            "{}[[axis]]\nname = \"x\"\nvalues = [{}]\npostgres = {{ work_mem = \"{{x}}kB\" }}\n",
            work(""),
            numbers(20_000)
        );
        refused(&axis, &["20000 values", "maximum is 200"]);
    }

    #[test]
    fn products_of_small_numbers_are_limited() {
        let head = "[experiment]\nblocks = 10000\nsweep = \"grid\"\nduration = \"1s\"\ncells_limit = 10000\n";
        let lists = |n: usize| {
            format!(
                "{head}[workload]\nkind = \"commit\"\nsessions = [{0}]\nrows_per_transaction = [{0}]\n{TWO}",
                numbers(n)
            )
        };
        refused(&lists(10), &["2010000 trials", "maximum is 100000"]);
        let more = lists(100).replace("= 10000\nsweep", "= 1\nsweep");
        refused(&more, &["20000 cells", "only 10000 are allowed"]);
        let limit = lists(2).replace("cells_limit = 10000", "cells_limit = 20000");
        refused(&limit, &["cells_limit", "from 1 to 10000"]);
        let many_targets: String = (0..51).fold(TWO.to_owned(), |mut text, n| {
            let _ = write!(text, "[targets.t{n}]\nprivate = true\n");
            text
        });
        refused(&many_targets, &["has 51", "maximum is 50"]);
    }
}
