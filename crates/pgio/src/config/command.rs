//! What the workload `command` runs, as written: lines with placeholders, and where its metrics stand.
//!
//! Plain data. `experiment::command` reads it from a file, over a preset if one is named; a preset is
//! nothing but such a section. Values take the place of placeholders in `workload::command`, which
//! runs the lines. Next: [`line`].

mod line;

use std::collections::BTreeMap;
use std::time::Duration;

use super::keys::{Layer, Use};
pub use line::{Line, Template};

/// What ships: one table a preset, each with the keys of a `[workload]`.
pub const PRESETS: &str = include_str!("../../../../examples/command-presets.toml");

/// What stands for something that only the trial knows, in braces.
pub const PLACEHOLDERS: &[&str] = &[
    "seconds", "warmup", "seed", "sessions", "dsn", "host", "port", "user", "dbname", "schema",
    "dir",
];

#[derive(Debug, Clone, PartialEq)]
pub struct CommandSpec {
    pub preset: Option<String>,
    pub run: Line,
    /// For the time of the warm-up, before the window.
    pub warm_up: Option<Line>,
    pub setup: Option<Line>,
    /// Only before the first trial, and again where the schema is gone; else before each.
    pub setup_once: bool,
    pub setup_limit: Duration,
    /// After each trial.
    pub cleanup: Option<Line>,
    /// Where all of it runs, by the file's name; absent: here.
    pub host: Option<String>,
    /// Made for it, all that its sessions find, dropped at the end.
    pub schema: Option<String>,
    pub env: BTreeMap<String, Template>,
    /// Placeholders of its own.
    pub parameters: BTreeMap<String, Template>,
    pub time_limit: Option<Duration>,
    /// The primary one first; never empty.
    pub metrics: Vec<MetricSpec>,
}

/// A number that the program leaves, and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSpec {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub find: Find,
    pub from: Place,
    /// What is found, times this, is in `unit`.
    pub scale: f64,
    pub primary: bool,
    /// It may be missing, or 0 where nothing was measured.
    pub optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

impl Better {
    pub const ALL: &'static [(&'static str, Better)] =
        &[("higher", Better::Higher), ("lower", Better::Lower), ("neither", Better::Neither)];
}

/// Where the text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Stdout,
    Stderr,
    /// On the host that it runs on.
    File(Template),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Find {
    /// JSON pointers (RFC 6901), in which `*` is every member; all that they find is added up.
    Json(Vec<String>),
    /// A regular expression whose first group, if it has one, is the number.
    Regex {
        pattern: String,
        take: Take,
        /// Matches at the start that do not count.
        skip: u64,
    },
}

/// Of several matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    Last,
    First,
    Mean,
    Sum,
}

impl Take {
    pub const ALL: &'static [(&'static str, Take)] =
        &[("last", Take::Last), ("first", Take::First), ("mean", Take::Mean), ("sum", Take::Sum)];
}

impl CommandSpec {
    /// Every text in which placeholders may stand, apart from those of `warm_up`.
    fn texts(&self) -> impl Iterator<Item = &Template> {
        let lines = [Some(&self.run), self.setup.as_ref(), self.cleanup.as_ref()];
        let files = self.metrics.iter().filter_map(|metric| match &metric.from {
            Place::File(path) => Some(path),
            Place::Stdout | Place::Stderr => None,
        });
        let lines = lines.into_iter().flatten().flat_map(Line::texts);
        lines.chain(self.env.values()).chain(self.parameters.values()).chain(files)
    }

    /// Every text with placeholders.
    pub fn all_texts(&self) -> impl Iterator<Item = &Template> {
        self.texts().chain(self.warm_up.iter().flat_map(Line::texts))
    }

    /// Whether the placeholder stands anywhere but in `warm_up`.
    pub fn says(&self, placeholder: &str) -> bool {
        self.texts().any(|text| text.placeholders().any(|name| name == placeholder))
    }

    /// Whether anything is done for the time of a warm-up.
    pub fn warms_up(&self) -> bool {
        self.warm_up.is_some() || self.says("warmup")
    }

    /// Whether it cannot do without the target's server.
    pub fn needs_server(&self) -> bool {
        let told = ["dsn", "host", "port", "user", "dbname"];
        self.schema.is_some() || told.iter().any(|name| self.says(name))
    }

    pub fn primary(&self) -> &MetricSpec {
        self.metrics.first().expect("a command without a metric is refused where it is read")
    }
}

/// A command with its times.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandSettings {
    pub spec: CommandSpec,
    /// Absent: the command itself says how long it takes.
    pub run_time: Option<Duration>,
    pub warmup: Duration,
    pub sessions: u32,
    /// Of one run; nobody waits longer.
    pub time_limit: Duration,
}

impl CommandSettings {
    pub fn resolve(spec: CommandSpec, layer: Layer) -> Self {
        let all = layer.over(Layer::defaults(Use::Command));
        let run_time = all.run_time.expect("the table has a default for it");
        let warmup = all.warmup.expect("the table has a default for it");
        let time_limit = spec
            .time_limit
            .unwrap_or_else(|| (run_time + warmup).saturating_mul(3) + Duration::from_secs(60));
        Self {
            run_time: spec.says("seconds").then_some(run_time),
            warmup,
            sessions: all.sessions.expect("the table has a default for it"),
            time_limit,
            spec,
        }
    }
}
