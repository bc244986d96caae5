//! The sections that say what work is done, and by whom. Next: [`super::definition`].

use super::definition::{SectionDef, key};

pub static WORKLOAD: SectionDef = SectionDef {
    title: "[workload], [[workload]]",
    about: "The workload. It also takes the keys of its kind (table Keys above); a key with a list of values is an axis of a sweep.",
    keys: &[
        key("kind", "one of the workloads listed below", "slob", "kind of workload"),
        key(
            "name",
            "the name of a directory, at most 64 characters",
            "the kind",
            "name of the workload in reports; must be unique in the file",
        ),
        key(
            "conditions",
            "an array of condition names",
            "all",
            "conditions that run this workload",
        ),
        key(
            "middle",
            "a table such as { sessions = 4 }",
            "the first values",
            "value of each axis while other axes are varied",
        ),
        key(
            "reset",
            "checkpoint, vacuum or reload",
            "as in [experiment]",
            "what is made equal before each trial of this workload",
        ),
    ],
};

pub static BACKGROUND: SectionDef = SectionDef {
    title: "[[background]]",
    about: "Work beside the judged workload, in named conditions. It takes the keys of a workload as well, runs as long as the trial, is not judged, and is not taken for foreign load.",
    keys: &[
        key(
            "target",
            "a NAME of [targets]",
            "required",
            "server that it works on; it may be a standby, for work that only reads",
        ),
        key(
            "standby",
            "the name of a standby",
            "none",
            "standby of a private target, instead of its primary, for work that only reads; standby = true names it standby, standbys = 2 names them standby1 and standby2",
        ),
        key("conditions", "an array of condition names", "required", "conditions in which it runs"),
    ],
};

pub static COMMAND: SectionDef = SectionDef {
    title: "[workload] with kind = \"command\"",
    about: "A program to run as the workload. Texts may contain placeholders in braces.",
    keys: &[
        key(
            "preset",
            "the name of a preset",
            "none",
            "settings of a known benchmark; other keys override them",
        ),
        key("run", "a command line for sh, or an array of words", "required", "program to measure"),
        key(
            "warm_up",
            "a command line for sh, or an array of words",
            "none",
            "run before the window for the warm-up time",
        ),
        key(
            "setup",
            "a command line for sh, or an array of words",
            "none",
            "run before each trial",
        ),
        key("setup_once", "true or false", "false", "run setup before the first trial only"),
        key("setup_limit", "a duration above zero", "1h", "maximum time for setup"),
        key(
            "cleanup",
            "a command line for sh, or an array of words",
            "none",
            "run after each trial",
        ),
        key("host", "local or a NAME of [hosts]", "this machine", "machine that runs the command"),
        key("schema", "a name", "none", "schema to create for the command and to drop at the end"),
        key("env", "a table of strings", "none", "environment variables"),
        key("parameters", "a table of strings", "none", "user-defined placeholders"),
        key(
            "time_limit",
            "a duration above zero",
            "3 times run_time and warmup, and 1 min",
            "maximum time for run",
        ),
        key(
            "metric",
            "[[workload.metric]]",
            "required",
            "metrics in the output; at least one, but background work needs none",
        ),
    ],
};

pub static METRIC: SectionDef = SectionDef {
    title: "[[workload.metric]]",
    about: "A number in a command's output: where to find it and what it means.",
    keys: &[
        key("name", "a word of a to z, digits and _", "required", "name of the metric"),
        key("unit", "one line of text", "required", "unit of the metric"),
        key("better", "higher, lower or neither", "required", "direction of improvement"),
        key(
            "json",
            "a JSON pointer, or several",
            "none",
            "location of the number in JSON; set either json or regex",
        ),
        key(
            "regex",
            "a regular expression",
            "none",
            "pattern whose first group, or whole match, is the number",
        ),
        key(
            "take",
            "last, first, mean or sum",
            "last",
            "how several matches of regex are combined",
        ),
        key("skip", "a whole number", "0", "number of matches of regex to skip at the start"),
        key("from", "stdout or stderr", "stdout", "stream to search"),
        key("file", "a path", "none", "file to search instead of a stream"),
        key("scale", "a number above 0", "1", "factor that converts the number to unit"),
        key(
            "primary",
            "true or false",
            "true for the only metric",
            "whether this metric is judged; of several metrics, one must be",
        ),
        key(
            "optional",
            "true or false",
            "false",
            "whether the number may be missing; ignored for a metric that primary or also_judge of [experiment] names",
        ),
        key(
            "combine",
            "sum, mean, max or min",
            "none",
            "how the values of several drivers are combined; without it, several drivers report no such metric",
        ),
    ],
};

pub static DRIVERS: SectionDef = SectionDef {
    title: "[drivers]",
    about: "Several processes that generate the load together. Without it, pgio alone does.",
    keys: &[
        key(
            "engine",
            "local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND",
            "none; --drivers",
            "what starts the N drivers; COMMAND contains {drive}, the driver's command, and may contain {n}",
        ),
        key(
            "count",
            "a whole number from 1 to 1024",
            "none",
            "number of drivers if the engine is run:COMMAND",
        ),
        key(
            "spread",
            "sessions or target",
            "sessions",
            "what is divided among the drivers: sessions gives each a range of every server's sessions; target gives each server drivers of its own",
        ),
        key(
            "image",
            "the name of an image",
            "none; --image",
            "container image for Kubernetes drivers; it must contain the same program file",
        ),
        key(
            "cpu",
            "a number of cores, or of thousandths of one with m",
            "1",
            "CPU that each driver pod requests, such as \"500m\"",
        ),
        key(
            "listen",
            "ADDRESS:PORT",
            "a free port on all addresses, for local drivers on the loopback",
            "where pgio listens for its drivers",
        ),
    ],
};
