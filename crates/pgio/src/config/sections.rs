//! The sections of an experiment file and their own keys: one table for the parser and the docs.
//!
//! The parser accepts what stands here and nothing else (`experiment::section`), docs/KEYS.md is made
//! of it, and a test sees that each key is really read. Keys of the work itself, which pgio.conf and
//! flags have too, are in [`super::keys`]; those of a treatment are known to the treatment.
//!
//! To add a key: one line below, then read it in the section's file of `experiment`.

/// A section and the keys that are its own.
#[derive(Debug, Clone, Copy)]
pub struct SectionDef {
    /// As people write it.
    pub title: &'static str,
    pub about: &'static str,
    pub keys: &'static [SectionKey],
}

#[derive(Debug, Clone, Copy)]
pub struct SectionKey {
    pub name: &'static str,
    /// What it takes.
    pub value: &'static str,
    /// What holds without it.
    pub default: &'static str,
    pub help: &'static str,
}

impl SectionDef {
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }
}

const fn key(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> SectionKey {
    SectionKey { name, value, default, help }
}

/// All of them, in the order of the docs.
pub static SECTIONS: &[SectionDef] =
    &[EXPERIMENT, TARGET, HOST, CONDITION, AXIS, WORKLOAD, COMMAND, METRIC];

pub static EXPERIMENT: SectionDef = SectionDef {
    title: "[experiment]",
    about: "How the experiment is run and judged.",
    keys: &[
        key("name", "a text of one line", "the file's name", "what reports call the experiment"),
        key(
            "blocks",
            "a whole number of at least 1",
            "6",
            "passes over all conditions, each in a new random order",
        ),
        key("warmup", "a duration", "2s", "time that the workload runs before each window opens"),
        key("duration", "a duration longer than zero", "10s", "length of each measured window"),
        key(
            "seed",
            "a whole number",
            "drawn, and recorded",
            "seed of the order of conditions and of the work",
        ),
        key(
            "baseline",
            "the name of a condition",
            "the first condition",
            "the condition that the others are compared with",
        ),
        key(
            "aa",
            "true or false",
            "true",
            "run the baseline twice in each block, to show the noise",
        ),
        key(
            "burn_in",
            "true or false",
            "true where the workload reads a data set",
            "run the baseline once before the first block, stored and never counted",
        ),
        key("primary", "the name of a metric", "each workload's own", "the metric that is judged"),
        key(
            "telemetry",
            "a duration",
            "1s",
            "how often server and hosts are observed; 0s is not at all",
        ),
        key(
            "precision",
            "a share from 0.1% to below 100%",
            "none",
            "blocks are added until every primary interval is within ± this share",
        ),
        key(
            "max_blocks",
            "a whole number of at least blocks",
            "30",
            "most blocks that precision may lead to",
        ),
        key("repeats", "a whole number", "2", "how often an invalid trial is repeated"),
        key(
            "reset",
            "checkpoint, vacuum, reload or recreate",
            "checkpoint",
            "what is made the same again before each trial: nothing but a CHECKPOINT, dead rows vacuumed, the data set loaded again, the database dropped and made again",
        ),
        key(
            "checkpoint",
            "before, spread or none",
            "before",
            "the checkpoints that windows meet: one before the warm-up, whole cycles inside, or what the server does by itself",
        ),
        key(
            "recreate_database",
            "the name of the database",
            "none",
            "names the database that reset = \"recreate\" may drop; required unless all servers are private",
        ),
        key(
            "judge",
            "an array of names of conditions",
            "all conditions",
            "the conditions whose comparison answers the question; one alone is judged unadjusted, several are one family",
        ),
        key(
            "also_judge",
            "an array of names of metrics",
            "none",
            "metrics judged beside the primary one, in the same family",
        ),
        key(
            "effect",
            "a share from 0.1% to below 100%",
            "none",
            "the effect to plan for: the report says how many blocks detect it with 80 % power",
        ),
        key(
            "tolerate",
            "an array of ids of checks",
            "none",
            "checks that only warn; an id is one of the table Checks below that can make a trial invalid",
        ),
        key(
            "sweep",
            "one-at-a-time or grid",
            "one-at-a-time",
            "which points the axes make: each axis with the others at their middle, or every combination",
        ),
        key(
            "cells_limit",
            "a whole number of at least 1",
            "200",
            "most cells that a sweep may have; stating it also allows more than 8 h",
        ),
    ],
};

pub static TARGET: SectionDef = SectionDef {
    title: "[target], [targets.NAME]",
    about: "The server, or several that conditions name by `target`. Without one, pgio.conf and then the PG* variables say where it is.",
    keys: &[
        key(
            "dsn",
            "a database name, a conninfo string or a URI",
            "none",
            "where the server is; either this or private",
        ),
        key(
            "host",
            "local or a NAME of [hosts]",
            "where it is seen to run, if here",
            "the machine that the server runs on",
        ),
        key(
            "standby_host",
            "local or a NAME of [hosts]",
            "none",
            "the machine that its standby runs on",
        ),
        key(
            "device",
            "a kernel name such as sdb",
            "none",
            "the block device to be measured: data and WAL must lie on it",
        ),
        key(
            "control",
            "pg_ctl or systemctl UNIT",
            "none",
            "how pgio may stop and start the server; without it the server is never stopped",
        ),
        key(
            "private",
            "true or false",
            "false",
            "start a PostgreSQL of pgio's own, removed at the end; either this or dsn",
        ),
        key(
            "pg",
            "a whole number from 13 to 99",
            "the newest installed",
            "major version of a private server",
        ),
        key("standby", "true or false", "false", "give a private server a synchronous standby"),
        key(
            "directory",
            "an absolute path",
            "/var/tmp",
            "where a private server's directory is made",
        ),
    ],
};

pub static HOST: SectionDef = SectionDef {
    title: "[hosts.NAME]",
    about: "A machine to be observed, or changed by a condition. `local` is this one, named or not.",
    keys: &[
        key(
            "ssh",
            "a destination such as postgres@db1",
            "this machine",
            "what ssh is given to get there",
        ),
        key("ssh_config", "a path", "~/.ssh/config", "configuration file for ssh"),
    ],
};

pub static CONDITION: SectionDef = SectionDef {
    title: "[[condition]]",
    about: "One way of running the same work. Any other key is a treatment (table Treatments below).",
    keys: &[
        key("name", "a text of one line", "required", "what reports call the condition"),
        key("target", "a NAME of [targets]", "the only target", "the server that it runs on"),
        key(
            "sweep",
            "true or false",
            "true",
            "run it at every point of a sweep; false: at the middle point only",
        ),
    ],
};

pub static AXIS: SectionDef = SectionDef {
    title: "[[axis]]",
    about: "An axis of a sweep that treatments make; any other key is a treatment in which {name} stands for the value.",
    keys: &[
        key(
            "name",
            "a word of a to z, digits and _",
            "required",
            "name of the axis and of its placeholder",
        ),
        key("unit", "a text of one line", "none", "unit of its values"),
        key("values", "an array of numbers, or of texts", "required", "the points of the axis"),
        key(
            "middle",
            "one of the values",
            "the first one",
            "the point at which the other axes are varied",
        ),
    ],
};

pub static WORKLOAD: SectionDef = SectionDef {
    title: "[workload], [[workload]]",
    about: "What is run. Beside these it takes the keys of its kind (table Keys above); one that is a list is an axis of a sweep.",
    keys: &[
        key("kind", "slob, commit, device, command or mail", "required", "the kind of work"),
        key(
            "name",
            "a text of one line",
            "the kind",
            "what reports call it; workloads of one file need different names",
        ),
        key(
            "conditions",
            "an array of names of conditions",
            "all",
            "the conditions that it runs under",
        ),
        key(
            "middle",
            "a table such as { sessions = 4 }",
            "the first values",
            "the point at which the other axes are varied",
        ),
        key(
            "reset",
            "checkpoint, vacuum or reload",
            "as in [experiment]",
            "what is made the same again before each of its trials",
        ),
    ],
};

pub static COMMAND: SectionDef = SectionDef {
    title: "[workload] with kind = \"command\"",
    about: "A program of yours. Texts may hold placeholders in braces.",
    keys: &[
        key(
            "preset",
            "the name of a preset",
            "none",
            "keys of a known benchmark, which keys beside it override",
        ),
        key(
            "run",
            "a text for sh, or an array of words",
            "required",
            "the program that does the work",
        ),
        key(
            "warm_up",
            "a text for sh, or an array of words",
            "none",
            "run before the window for the time of the warm-up",
        ),
        key("setup", "a text for sh, or an array of words", "none", "run before each trial"),
        key("setup_once", "true or false", "false", "run setup before the first trial only"),
        key("setup_limit", "a duration longer than zero", "1h", "how long setup may take"),
        key("cleanup", "a text for sh, or an array of words", "none", "run after each trial"),
        key(
            "host",
            "local or a NAME of [hosts]",
            "this machine",
            "the machine that all of it runs on",
        ),
        key("schema", "a name", "none", "schema that is made for it and dropped at the end"),
        key("env", "a table of texts", "none", "environment variables"),
        key("parameters", "a table of texts", "none", "placeholders of its own"),
        key("time_limit", "a duration longer than zero", "none", "how long run may take"),
        key("metric", "[[workload.metric]]", "required", "what it prints; at least one"),
    ],
};

pub static METRIC: SectionDef = SectionDef {
    title: "[[workload.metric]]",
    about: "A number that a command leaves, where it stands and what it means.",
    keys: &[
        key("name", "a word of a to z, digits and _", "required", "name of the metric"),
        key("unit", "a text of one line", "required", "unit of the metric"),
        key("better", "higher, lower or neither", "required", "which way is better"),
        key(
            "json",
            "a JSON pointer, or several",
            "none",
            "where the number stands in JSON; either this or regex",
        ),
        key(
            "regex",
            "a regular expression",
            "none",
            "finds the number: its first group, or the whole match",
        ),
        key("take", "last, first, mean or sum", "last", "which of several matches of regex counts"),
        key("skip", "a whole number", "0", "matches of regex at the start that do not count"),
        key("from", "stdout or stderr", "stdout", "the stream that it is looked for in"),
        key("file", "a path", "none", "file that it is looked for in, instead of a stream"),
        key("scale", "a number above 0", "1", "what is found times this is in unit"),
        key("primary", "true or false", "the first metric", "whether this metric is judged"),
        key("optional", "true or false", "false", "whether it may be missing"),
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
