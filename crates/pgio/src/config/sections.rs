//! The sections of an experiment file and their keys: one table for parser and documentation.
//!
//! The parser accepts exactly these keys (`experiment::section`), docs/KEYS.md is generated from this
//! table, and a test checks that the parser reads each key. Workload keys, which are also valid in
//! pgio.conf and as flags, are in [`super::keys`]; each treatment defines its own keys.
//!
//! To add a key, add one line below, then read it in the section's file
//! of `experiment`.

use std::time::Duration;

use pgio_results::units;

/// A section and its keys.
#[derive(Debug, Clone, Copy)]
pub struct SectionDef {
    /// The section header as written in a file.
    pub title: &'static str,
    pub about: &'static str,
    pub keys: &'static [SectionKey],
}

#[derive(Debug, Clone, Copy)]
pub struct SectionKey {
    pub name: &'static str,
    /// The values that the key takes.
    pub value: &'static str,
    /// The default.
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

    /// The default of a key, which is a value and not a sentence.
    fn default(&self, name: &str) -> &'static str {
        self.keys.iter().find(|key| key.name == name).map_or("", |key| key.default)
    }

    pub(super) fn default_duration(&self, name: &str) -> Duration {
        let default = units::parse_duration(self.default(name));
        default.expect("a test reads a file without the key")
    }

    pub(super) fn default_number(&self, name: &str) -> u32 {
        self.default(name).parse().expect("a test reads a file without the key")
    }
}

/// A section by its name, title and description, and its keys: `name: values, default, help`.
macro_rules! section {
    ($section:ident, $title:literal, $about:literal; $($name:literal: $value:expr, $default:expr, $help:expr;)*) => {
        pub static $section: SectionDef = SectionDef {
            title: $title,
            about: $about,
            keys: &[$(SectionKey { name: $name, value: $value, default: $default, help: $help }),*],
        };
    };
}

/// All sections, in the order of the documentation.
pub static SECTIONS: &[SectionDef] = &[
    EXPERIMENT, TARGET, STANDBY, HOST, CONDITION, FACTOR, AXIS, WORKLOAD, BACKGROUND, COMMAND,
    METRIC, DRIVERS,
];

section! { EXPERIMENT, "[experiment]",
    "How pgio runs and judges the experiment.";
    "name": "one line of text", "the file's name", "name of the experiment in reports";
    "blocks": "a whole number of at least 1", "6 for one comparison, 7 for 2-3, 8 for 4-6, 9 for 7-12, 10 for 13-25",
        "passes over all conditions, each in a new random order; with fewer than the default, one noisy condition can hide the effects of the others";
    "warmup": "a duration", "2s", "time that the workload runs before each window starts";
    "duration": "a duration above zero", "10s", "length of each measured window";
    "seed": "a whole number", "drawn and recorded", "seed of the order of conditions and of the workload";
    "baseline": "the name of a condition", "the first condition", "the condition that all others are compared with";
    "aa": "true or false", "true; false with factors, unless design is one-at-a-time",
        "run the baseline twice in each block to measure the noise";
    "burn_in": "true or false", "true if the workload reads a data set, or has setup_once",
        "run the baseline once before the first block; the trial is stored but not counted";
    "primary": "the name of a metric", "depends on the workload", "the metric that is judged";
    "telemetry": "a duration", "1s", "interval at which pgio observes server and hosts; 0s turns observation off";
    "precision": "a share from 0.1% to below 100%", "none",
        "from 8 blocks on, add blocks until every judged primary interval is within ± this share";
    "max_blocks": "a whole number of at least blocks", "30", "maximum number of blocks that precision may add up to";
    "repeats": "a whole number", "2", "maximum number of times to repeat an invalid trial";
    "reset": "checkpoint, vacuum, reload or recreate", "checkpoint",
        "what is made equal before each trial: checkpoint restores no data and only issues a CHECKPOINT, vacuum removes dead rows, reload reloads the data set, recreate drops and re-creates the database";
    "checkpoint": "before, spread or none", "before",
        "checkpoints that affect windows: before issues one before the warm-up, spread requires windows of whole checkpoint cycles, none leaves checkpoints to the server";
    "weave": "auto, false or a duration of at least 5ms", "false",
        "mean length of the slices in which the conditions of a block take turns inside one window, for conditions that differ only in settings of sessions; auto finds the shortest length at which slices agree; false gives each trial a window of its own";
    "together": "true or false", "false", "run each condition that names no target on all targets, in one window";
    "recreate_database": "the name of the database", "none",
        "the database that reset = \"recreate\" may drop; required unless all servers are private";
    "question": "a text", "made from the conditions",
        "what the experiment shall answer, in words; the report begins with it";
    "judge": "an array of condition names", "all conditions",
        "conditions whose comparisons answer the question; a single one is judged unadjusted, several form one family";
    "also_judge": "an array of metric names", "none",
        "metrics judged in addition to the primary one, in the same family";
    "effect": "a share from 0.1% to below 100%", "none",
        "the effect to plan for; the report shows how many blocks detect it with 80 % power";
    "matters": "a share from 0.1% to 50%", "none",
        "the margin: the report decides whether each effect exceeds the margin, stays below it, or is undecided, and --gate turns the answer into an exit code";
    "tolerate": "an array of check ids", "none",
        "checks that shall warn instead of making a trial invalid; valid ids are those of the table Checks below that can do so";
    "sweep": "one-at-a-time or grid", "one-at-a-time",
        "points of a sweep: vary each axis with the others at their middle value, or run every combination";
    "cells_limit": "a whole number of at least 1", "200; 64 for a design",
        "maximum number of cells of a sweep or of a design; setting it also allows a sweep of more than 8 h";
    "design": "fractional, full or one-at-a-time", "fractional",
        "which combinations of the factors' levels become conditions: a fraction of resolution IV, all of them, or each factor high alone";
}

section! { TARGET, "[target], [targets.NAME]",
    "The server, or several servers that conditions select by `target`. Without a target, pgio.conf and then the PG* variables apply. [targets] may have an `inventory`, an array of names or a command that prints one host a line, and keys for each node with {name} in them.";
    "dsn": "a database name, a conninfo string or a URI", "none",
        "connection to the server; set either dsn or private";
    "host": "local or a NAME of [hosts]", "this machine, if the server is found on it",
        "machine that runs the server";
    "standby_host": "local or a NAME of [hosts]", "none", "machine that runs the standby";
    "device": "a name such as sdb or /dev/mapper/vg0-pg", "none",
        "block device to measure: data and WAL must be on it";
    "control": "pg_ctl or systemctl UNIT", "none",
        "how pgio may stop and start the server; by default pgio never stops it";
    "private": "true or false", "false",
        "start a private PostgreSQL server and remove it at the end; set either private or dsn";
    "pg": "a whole number from 13 to 99", "the newest installed", "major version of a private server";
    "initdb": "a list of options such as [\"--data-checksums\"]", "none",
        "further options of initdb for a private server";
    "postgres": "a table of settings such as { shared_buffers = \"4GB\" }", "none",
        "settings of all servers of a private target, under every condition";
    "standby": "true or false", "false", "give a private server a synchronous standby";
    "standbys": "a number, or a list of tables", "none",
        "standbys of a private server, named standby1, standby2 … or as listed; without synchronous_standby_names, commits wait for the first";
    "directory": "an absolute path", "/var/tmp", "parent directory of a private server's data directory";
    "wal_directory": "an absolute path", "inside the data directory",
        "parent directory of the WAL of a private primary";
}

section! { STANDBY, "standbys of [target], [targets.NAME]",
    "A standby of a private server: a table of the list `standbys`, or `[[targets.NAME.standbys]]`.";
    "name": "letters, digits and _", "required", "name for synchronous_standby_names";
    "directory": "an absolute path", "the primary's", "parent directory of the standby's data directory";
    "from": "a standby listed before", "the primary", "server that it streams from";
    "apply_delay": "a duration", "0s", "recovery_min_apply_delay; with remote_apply, commits wait for it";
    "archive": "true or false", "false", "archive the WAL that it receives, beside its data (archive_mode = always)";
    "postgres": "a table of settings", "those of the target", "settings of this standby, over those of the target";
}

section! { HOST, "[hosts.NAME]",
    "A machine that pgio observes or that a condition changes. `local` is always this machine. [hosts] may have an `inventory`, as [targets] may; `ssh` is then \"{name}\" unless set.";
    "ssh": "a destination such as postgres@db1", "this machine", "destination for ssh";
    "ssh_config": "a path", "~/.ssh/config", "configuration file for ssh";
}

section! { CONDITION, "[[condition]]",
    "A variant of the environment that runs the same workload. Any other key is a treatment (table Treatments below).";
    "name": "one line of text", "required", "name of the condition in reports";
    "target": "a NAME of [targets], or an array of them", "the only target",
        "server that the condition uses; several share one window: the condition is put in force on each, and rates are their sum";
    "sweep": "true or false", "true", "run the condition at every point of a sweep; false: only at the middle point";
}

section! { FACTOR, "[[factor]]",
    "Something that is either low or high, in place of conditions: the design makes the conditions from all factors. `low` is the present state.";
    "name": "one line of text", "required", "name of the factor in reports";
    "low": "a table of treatments", "required without setting", "treatments of the low level; {} changes nothing";
    "high": "a table of treatments", "required without setting", "treatments of the high level; {} changes nothing";
    "setting": "an array of two values", "none",
        "low and high value of the PostgreSQL setting that the factor is named after; replaces low and high";
}

section! { AXIS, "[[axis]]",
    "An axis of a sweep over treatments. Any other key is a treatment in which {name} is replaced by the value.";
    "name": "a word of a to z, digits and _", "required", "name of the axis and of its placeholder";
    "unit": "one line of text", "none", "unit of its values";
    "values": "an array of numbers or of strings", "required", "values of the axis";
    "middle": "one of the values", "the first value", "value of this axis while other axes are varied";
}

section! { WORKLOAD, "[workload], [[workload]]",
    "The workload. It also takes the keys of its kind (table Keys above); a key with a list of values is an axis of a sweep.";
    "kind": "one of the workloads listed below", "slob", "kind of workload";
    "name": "the name of a directory, at most 64 characters", "the kind",
        "name of the workload in reports; must be unique in the file";
    "conditions": "an array of condition names", "all", "conditions that run this workload";
    "middle": "a table such as { sessions = 4 }", "the first values",
        "value of each axis while other axes are varied";
    "reset": "checkpoint, vacuum or reload", "as in [experiment]",
        "what is made equal before each trial of this workload";
}

section! { BACKGROUND, "[[background]]",
    "Work beside the judged workload, in named conditions. It takes the keys of a workload as well, runs as long as the trial, is not judged, and is not taken for foreign load.";
    "target": "a NAME of [targets]", "required",
        "server that it works on; it may be a standby, for work that only reads";
    "standby": "the name of a standby", "none",
        "standby of a private target, instead of its primary, for work that only reads; standby = true names it standby, standbys = 2 names them standby1 and standby2";
    "conditions": "an array of condition names", "required", "conditions in which it runs";
}

section! { COMMAND, "[workload] with kind = \"command\"",
    "A program to run as the workload. Texts may contain placeholders in braces.";
    "preset": "the name of a preset", "none", "settings of a known benchmark; other keys override them";
    "run": "a command line for sh, or an array of words", "required", "program to measure";
    "warm_up": "a command line for sh, or an array of words", "none", "run before the window for the warm-up time";
    "setup": "a command line for sh, or an array of words", "none", "run before each trial";
    "setup_once": "true or false", "false", "run setup before the first trial only";
    "setup_limit": "a duration above zero", "1h", "maximum time for setup";
    "cleanup": "a command line for sh, or an array of words", "none", "run after each trial";
    "host": "local or a NAME of [hosts]", "this machine", "machine that runs the command";
    "schema": "a name", "none", "schema to create for the command and to drop at the end";
    "env": "a table of strings", "none", "environment variables";
    "parameters": "a table of strings", "none", "user-defined placeholders";
    "time_limit": "a duration above zero", "3 times run_time and warmup, and 1 min", "maximum time for run";
    "metric": "[[workload.metric]]", "required",
        "metrics in the output; at least one, but background work needs none";
}

section! { METRIC, "[[workload.metric]]",
    "A number in a command's output: where to find it and what it means.";
    "name": "a word of a to z, digits and _", "required", "name of the metric";
    "unit": "one line of text", "required", "unit of the metric";
    "better": "higher, lower or neither", "required", "direction of improvement";
    "json": "a JSON pointer, or several", "none", "location of the number in JSON; set either json or regex";
    "regex": "a regular expression", "none", "pattern whose first group, or whole match, is the number";
    "take": "last, first, mean or sum", "last", "how several matches of regex are combined";
    "skip": "a whole number", "0", "number of matches of regex to skip at the start";
    "from": "stdout or stderr", "stdout", "stream to search";
    "file": "a path", "none", "file to search instead of a stream";
    "scale": "a number above 0", "1", "factor that converts the number to unit";
    "primary": "true or false", "true for the only metric",
        "whether this metric is judged; of several metrics, one must be";
    "optional": "true or false", "false",
        "whether the number may be missing; ignored for a metric that primary or also_judge of [experiment] names";
    "combine": "sum, mean, max or min", "none",
        "how the values of several drivers are combined; without it, several drivers report no such metric";
}

section! { DRIVERS, "[drivers]",
    "Several processes that generate the load together. Without it, pgio alone does.";
    "engine": "local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND", "none; --drivers",
        "what starts the N drivers; COMMAND contains {drive}, the driver's command, and may contain {n}";
    "count": "a whole number from 1 to 1024", "none", "number of drivers if the engine is run:COMMAND";
    "spread": "sessions or target", "sessions",
        "what is divided among the drivers: sessions gives each a range of every server's sessions; target gives each server drivers of its own";
    "image": "the name of an image", "none; --image",
        "container image for Kubernetes drivers; it must contain the same program file";
    "cpu": "a number of cores, or of thousandths of one with m", "1",
        "CPU that each driver pod requests, such as \"500m\"";
    "listen": "ADDRESS:PORT", "a free port on all addresses, for local drivers on the loopback",
        "where pgio listens for its drivers";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::parse;
    use crate::config::experiment::tests::{CHECKS, TREATMENTS, read};

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

    /// Returns a valid file with these lines in one of its sections.
    fn with_lines_in(title: &str, lines: &str) -> String {
        let at = |section: &str, own: &str| {
            // The key under test replaces the file's own.
            let tried = lines.split(' ').next().filter(|_| section == title);
            let own = own.lines().filter(|line| line.split(' ').next() != tried);
            let own = own.collect::<Vec<_>>().join("\n");
            if section == title { format!("{own}\n{lines}\n") } else { format!("{own}\n") }
        };
        let is_command =
            ["[workload] with kind = \"command\"", "[[workload.metric]]"].contains(&title);
        let work = if is_command {
            at("[workload] with kind = \"command\"", "kind = 'command'\nrun = 'work {seconds}'")
        } else {
            at("[workload], [[workload]]", "kind = 'commit'")
        };
        // The key under test may be the array itself, or conflict with regex.
        let find = if lines.starts_with("json ") { "" } else { "regex = 'x'" };
        let metric = if is_command && !lines.starts_with("metric ") {
            format!(
                "[[workload.metric]]\n{}",
                at(
                    "[[workload.metric]]",
                    &format!("name = 'm'\nunit = 's'\nbetter = 'lower'\n{find}")
                )
            )
        } else {
            String::new()
        };
        let axis = if title == "[[axis]]" {
            at("[[axis]]", "[[axis]]\nname = 'd'\nvalues = [1, 2, 3]\npostgres = { a = '{d}' }")
        } else {
            String::new()
        };
        let background = if title == "[[background]]" {
            let own = at(title, "target = 'target'\nconditions = ['a']");
            format!("[[background]]\nkind = 'slob'\n{own}")
        } else {
            String::new()
        };
        let conditions = if title == "[[factor]]" {
            let own = at("[[factor]]", "name = 'f'\nlow = {}\nhigh = { postgres = { a = 1 } }");
            let other = "name = 'g'\nsetting = [1, 2]\n";
            format!("[[factor]]\n{own}[[factor]]\n{other}")
        } else {
            format!("[[condition]]\n{}", at("[[condition]]", "name = 'a'"))
        };
        format!(
            "[experiment]\n{}[drivers]\n{}[target]\n{}[hosts.h]\n{}[workload]\n{work}{metric}{background}{axis}{conditions}",
            at("[experiment]", ""),
            at("[drivers]", ""),
            match title {
                "[target], [targets.NAME]" => at(title, own_target(lines)),
                "standbys of [target], [targets.NAME]" => {
                    let own = at(title, "name = 's'");
                    format!("private = true\n[[target.standbys]]\n{own}")
                }
                _ => "dsn = 'x'\n".to_owned(),
            },
            at("[hosts.NAME]", "ssh = 'x'"),
        )
    }

    /// The target on which the key is valid.
    fn own_target(lines: &str) -> &'static str {
        let key = lines.split(' ').next().unwrap_or_default();
        let private =
            ["pg", "initdb", "postgres", "standby", "standbys", "directory", "wal_directory"];
        if private.contains(&key) { "private = true" } else { "dsn = 'x'" }
    }

    /// The parser reads every key of the table: it refuses a value that no key takes, and names the key.
    /// `refuse_keys_outside` refuses all other keys.
    #[test]
    fn the_parser_reads_exactly_the_keys_of_the_table() {
        const NO_VALUE: &str = "1979-05-27T07:32:00Z";
        let refused = |title: &str, key: &str| {
            let text = with_lines_in(title, &format!("{key} = {NO_VALUE}"));
            parse(&text, "x.toml", "x", TREATMENTS, CHECKS)
                .expect_err(&format!("{title} {key} is not read:\n{text}"))
        };
        for section in SECTIONS {
            read(&with_lines_in(section.title, ""));
            for key in section.keys {
                let error = refused(section.title, key.name);
                let named = error.key.clone().unwrap_or_default();
                assert_eq!(named.rsplit('.').next(), Some(key.name), "{}: {error}", section.title);
                assert!(!error.message.contains("unknown key"), "{}: {error}", section.title);
            }
            let error = refused(section.title, "no_such_key");
            assert!(error.message.contains("unknown key"), "{}: {error}", section.title);
        }
    }
}
