//! The sections of an experiment file and their keys: one table for parser and documentation.
//!
//! The parser accepts exactly these keys (`experiment::section`), docs/KEYS.md is generated from this
//! table, and a test checks that the parser reads each key. Workload keys, which are also valid in
//! pgio.conf and as flags, are in [`super::keys`]; each treatment defines its own keys.
//!
//! To add a key, add one line below, or in [`load`] if it says what work is done, then read it in the section's file
//! of `experiment`.

mod definition;
mod load;

pub use self::definition::SectionDef;
use self::definition::key;
pub use self::load::{BACKGROUND, COMMAND, DRIVERS, METRIC, WORKLOAD};

/// All sections, in the order of the documentation.
pub static SECTIONS: &[SectionDef] = &[
    EXPERIMENT, TARGET, STANDBY, HOST, CONDITION, FACTOR, AXIS, WORKLOAD, BACKGROUND, COMMAND,
    METRIC, DRIVERS,
];

pub static EXPERIMENT: SectionDef = SectionDef {
    title: "[experiment]",
    about: "How pgio runs and judges the experiment.",
    keys: &[
        key("name", "one line of text", "the file's name", "name of the experiment in reports"),
        key(
            "blocks",
            "a whole number of at least 1",
            "6 for one comparison, 7 for 2-3, 8 for 4-6, 9 for 7-12, 10 for 13-25",
            "passes over all conditions, each in a new random order; with fewer than the default, one noisy condition can hide the effects of the others",
        ),
        key("warmup", "a duration", "2s", "time that the workload runs before each window starts"),
        key("duration", "a duration above zero", "10s", "length of each measured window"),
        key(
            "seed",
            "a whole number",
            "drawn and recorded",
            "seed of the order of conditions and of the workload",
        ),
        key(
            "baseline",
            "the name of a condition",
            "the first condition",
            "the condition that all others are compared with",
        ),
        key(
            "aa",
            "true or false",
            "true; false with factors, unless design is one-at-a-time",
            "run the baseline twice in each block to measure the noise",
        ),
        key(
            "burn_in",
            "true or false",
            "true if the workload reads a data set, or has setup_once",
            "run the baseline once before the first block; the trial is stored but not counted",
        ),
        key(
            "primary",
            "the name of a metric",
            "depends on the workload",
            "the metric that is judged",
        ),
        key(
            "telemetry",
            "a duration",
            "1s",
            "interval at which pgio observes server and hosts; 0s turns observation off",
        ),
        key(
            "precision",
            "a share from 0.1% to below 100%",
            "none",
            "from 8 blocks on, add blocks until every judged primary interval is within ± this share",
        ),
        key(
            "max_blocks",
            "a whole number of at least blocks",
            "30",
            "maximum number of blocks that precision may add up to",
        ),
        key("repeats", "a whole number", "2", "maximum number of times to repeat an invalid trial"),
        key(
            "reset",
            "checkpoint, vacuum, reload or recreate",
            "checkpoint",
            "what is made equal before each trial: checkpoint restores no data and only issues a CHECKPOINT, vacuum removes dead rows, reload reloads the data set, recreate drops and re-creates the database",
        ),
        key(
            "checkpoint",
            "before, spread or none",
            "before",
            "checkpoints that affect windows: before issues one before the warm-up, spread requires windows of whole checkpoint cycles, none leaves checkpoints to the server",
        ),
        key(
            "weave",
            "auto, false or a duration of at least 5ms",
            "false",
            "mean length of the slices in which the conditions of a block take turns inside one window, for conditions that differ only in settings of sessions; auto finds the shortest length at which slices agree; false gives each trial a window of its own",
        ),
        key(
            "together",
            "true or false",
            "false",
            "run each condition that names no target on all targets, in one window",
        ),
        key(
            "recreate_database",
            "the name of the database",
            "none",
            "the database that reset = \"recreate\" may drop; required unless all servers are private",
        ),
        key(
            "question",
            "a text",
            "made from the conditions",
            "what the experiment shall answer, in words; the report begins with it",
        ),
        key(
            "judge",
            "an array of condition names",
            "all conditions",
            "conditions whose comparisons answer the question; a single one is judged unadjusted, several form one family",
        ),
        key(
            "also_judge",
            "an array of metric names",
            "none",
            "metrics judged in addition to the primary one, in the same family",
        ),
        key(
            "effect",
            "a share from 0.1% to below 100%",
            "none",
            "the effect to plan for; the report shows how many blocks detect it with 80 % power",
        ),
        key(
            "matters",
            "a share from 0.1% to 50%",
            "none",
            "the margin: the report decides whether each effect exceeds the margin, stays below it, or is undecided, and --gate turns the answer into an exit code",
        ),
        key(
            "tolerate",
            "an array of check ids",
            "none",
            "checks that shall warn instead of making a trial invalid; valid ids are those of the table Checks below that can do so",
        ),
        key(
            "sweep",
            "one-at-a-time or grid",
            "one-at-a-time",
            "points of a sweep: vary each axis with the others at their middle value, or run every combination",
        ),
        key(
            "cells_limit",
            "a whole number of at least 1",
            "200; 64 for a design",
            "maximum number of cells of a sweep or of a design; setting it also allows a sweep of more than 8 h",
        ),
        key(
            "design",
            "fractional, full or one-at-a-time",
            "fractional",
            "which combinations of the factors' levels become conditions: a fraction of resolution IV, all of them, or each factor high alone",
        ),
    ],
};

pub static TARGET: SectionDef = SectionDef {
    title: "[target], [targets.NAME]",
    about: "The server, or several servers that conditions select by `target`. Without a target, pgio.conf and then the PG* variables apply. [targets] may have an `inventory`, an array of names or a command that prints one host a line, and keys for each node with {name} in them.",
    keys: &[
        key(
            "dsn",
            "a database name, a conninfo string or a URI",
            "none",
            "connection to the server; set either dsn or private",
        ),
        key(
            "host",
            "local or a NAME of [hosts]",
            "this machine, if the server is found on it",
            "machine that runs the server",
        ),
        key("standby_host", "local or a NAME of [hosts]", "none", "machine that runs the standby"),
        key(
            "device",
            "a name such as sdb or /dev/mapper/vg0-pg",
            "none",
            "block device to measure: data and WAL must be on it",
        ),
        key(
            "control",
            "pg_ctl or systemctl UNIT",
            "none",
            "how pgio may stop and start the server; by default pgio never stops it",
        ),
        key(
            "private",
            "true or false",
            "false",
            "start a private PostgreSQL server and remove it at the end; set either private or dsn",
        ),
        key(
            "pg",
            "a whole number from 13 to 99",
            "the newest installed",
            "major version of a private server",
        ),
        key(
            "initdb",
            "a list of options such as [\"--data-checksums\"]",
            "none",
            "further options of initdb for a private server",
        ),
        key(
            "postgres",
            "a table of settings such as { shared_buffers = \"4GB\" }",
            "none",
            "settings of all servers of a private target, under every condition",
        ),
        key("standby", "true or false", "false", "give a private server a synchronous standby"),
        key(
            "standbys",
            "a number, or a list of tables",
            "none",
            "standbys of a private server, named standby1, standby2 … or as listed; without synchronous_standby_names, commits wait for the first",
        ),
        key(
            "directory",
            "an absolute path",
            "/var/tmp",
            "parent directory of a private server's data directory",
        ),
        key(
            "wal_directory",
            "an absolute path",
            "inside the data directory",
            "parent directory of the WAL of a private primary",
        ),
    ],
};

pub static STANDBY: SectionDef = SectionDef {
    title: "standbys of [target], [targets.NAME]",
    about: "A standby of a private server: a table of the list `standbys`, or `[[targets.NAME.standbys]]`.",
    keys: &[
        key("name", "letters, digits and _", "required", "name for synchronous_standby_names"),
        key(
            "directory",
            "an absolute path",
            "the primary's",
            "parent directory of the standby's data directory",
        ),
        key("from", "a standby listed before", "the primary", "server that it streams from"),
        key(
            "apply_delay",
            "a duration",
            "0s",
            "recovery_min_apply_delay; with remote_apply, commits wait for it",
        ),
        key(
            "archive",
            "true or false",
            "false",
            "archive the WAL that it receives, beside its data (archive_mode = always)",
        ),
        key(
            "postgres",
            "a table of settings",
            "those of the target",
            "settings of this standby, over those of the target",
        ),
    ],
};

pub static HOST: SectionDef = SectionDef {
    title: "[hosts.NAME]",
    about: "A machine that pgio observes or that a condition changes. `local` is always this machine. [hosts] may have an `inventory`, as [targets] may; `ssh` is then \"{name}\" unless set.",
    keys: &[
        key("ssh", "a destination such as postgres@db1", "this machine", "destination for ssh"),
        key("ssh_config", "a path", "~/.ssh/config", "configuration file for ssh"),
    ],
};

pub static CONDITION: SectionDef = SectionDef {
    title: "[[condition]]",
    about: "A variant of the environment that runs the same workload. Any other key is a treatment (table Treatments below).",
    keys: &[
        key("name", "one line of text", "required", "name of the condition in reports"),
        key(
            "target",
            "a NAME of [targets], or an array of them",
            "the only target",
            "server that the condition uses; several share one window: the condition is put in force on each, and rates are their sum",
        ),
        key(
            "sweep",
            "true or false",
            "true",
            "run the condition at every point of a sweep; false: only at the middle point",
        ),
    ],
};

pub static FACTOR: SectionDef = SectionDef {
    title: "[[factor]]",
    about: "Something that is either low or high, in place of conditions: the design makes the conditions from all factors. `low` is the present state.",
    keys: &[
        key("name", "one line of text", "required", "name of the factor in reports"),
        key(
            "low",
            "a table of treatments",
            "required without setting",
            "treatments of the low level; {} changes nothing",
        ),
        key(
            "high",
            "a table of treatments",
            "required without setting",
            "treatments of the high level; {} changes nothing",
        ),
        key(
            "setting",
            "an array of two values",
            "none",
            "low and high value of the PostgreSQL setting that the factor is named after; replaces low and high",
        ),
    ],
};

pub static AXIS: SectionDef = SectionDef {
    title: "[[axis]]",
    about: "An axis of a sweep over treatments. Any other key is a treatment in which {name} is replaced by the value.",
    keys: &[
        key(
            "name",
            "a word of a to z, digits and _",
            "required",
            "name of the axis and of its placeholder",
        ),
        key("unit", "one line of text", "none", "unit of its values"),
        key("values", "an array of numbers or of strings", "required", "values of the axis"),
        key(
            "middle",
            "one of the values",
            "the first value",
            "value of this axis while other axes are varied",
        ),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_help_is_one_line() {
        for section in SECTIONS {
            for (at, key) in section.keys.iter().enumerate() {
                let place = format!("{} {}", section.title, key.name);
                assert!(section.keys[..at].iter().all(|k| k.name != key.name), "{place}");
                assert!(!key.help.contains('\n') && !key.help.ends_with('.'), "{place}");
                assert!(!key.value.is_empty() && !key.default.is_empty(), "{place}");
            }
        }
    }
}
