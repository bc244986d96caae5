//! The workload `command` as written: command lines with placeholders, and how metrics are extracted.
//!
//! Plain data. `experiment::command` reads it from a file, on top of a preset if the file names one; a
//! preset is a section of the same form. `workload::command` fills in the placeholders and runs the
//! lines. Next: [`line`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Duration;

use super::keys::{Layer, Use};
use super::kinds::COMMAND;
use pgio_results::joint;

/// The presets that ship with pgio: one table each, with the keys of a `[workload]`.
pub const PRESETS: &str = include_str!("../../shipped/command-presets.toml");

/// Placeholders whose values only the trial knows.
pub const PLACEHOLDERS: &[&str] = &[
    "seconds", "warmup", "seed", "sessions", "dsn", "host", "port", "user", "dbname", "schema",
    "dir",
];

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CommandSpec {
    pub preset: Option<String>,
    pub run: Line,
    /// Runs before the window for the warm-up time.
    pub warm_up: Option<Line>,
    pub setup: Option<Line>,
    /// Run `setup` only before the first trial, and again if the schema is gone; otherwise before each trial.
    pub setup_once: bool,
    pub setup_limit: Duration,
    /// Runs after each trial.
    pub cleanup: Option<Line>,
    /// The host that runs all lines, by its name in the file; absent: this machine.
    pub host: Option<String>,
    /// A schema that pgio creates for the command, uses as its search_path, and drops at the end.
    pub schema: Option<String>,
    pub env: BTreeMap<String, Template>,
    /// User-defined placeholders.
    pub parameters: BTreeMap<String, Template>,
    pub time_limit: Option<Duration>,
    /// The primary metric is first; only background work may have none.
    pub metrics: Vec<MetricSpec>,
}

/// A number in the program's output, and its meaning.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MetricSpec {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub extractor: Extractor,
    pub source: OutputSource,
    /// Factor that converts the extracted number to `unit`.
    pub scale: f64,
    pub primary: bool,
    /// Whether `[experiment] primary` names it, which does not change the workload's own.
    pub named_primary: bool,
    /// The number may be missing, or 0 if nothing was measured.
    pub optional: bool,
    /// How the numbers of several drivers make one; absent: they make none.
    pub combine: Option<Combine>,
}

/// How the numbers of several drivers make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Combine {
    Sum,
    /// Each driver counts by its share of the primary metric, if that is a sum; else all alike.
    Mean,
    Max,
    Min,
}

choice! { Combine: Sum "sum", Mean "mean", Max "max", Min "min" }

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

choice! { Better: Higher "higher", Lower "lower", Neither "neither" }

/// Where a metric is looked up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OutputSource {
    Stdout,
    Stderr,
    /// A file on the host that runs the command.
    File(Template),
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Extractor {
    /// JSON pointers (RFC 6901), where `*` matches every member; the values are added up.
    Json(Vec<String>),
    /// A regular expression; its first group, or the whole match, is the number.
    Regex {
        pattern: String,
        take: MatchChoice,
        /// Number of matches to skip at the start.
        skip: u64,
    },
}

/// How several matches make one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MatchChoice {
    Last,
    First,
    Mean,
    Sum,
}

choice! { MatchChoice: Last "last", First "first", Mean "mean", Sum "sum" }

impl MetricSpec {
    /// Returns whether trials are compared by it, which needs a number above 0.
    pub fn is_primary(&self) -> bool {
        self.primary || self.named_primary
    }
}

impl CommandSpec {
    /// Notes the metrics that `[experiment]` names, which may be none of the command's. Without its number a trial is not
    /// compared, and the worst trials might lack it, so a judged number is not optional.
    pub fn note_judged(&mut self, primary: Option<&str>, also_judge: &[String]) {
        for metric in &mut self.metrics {
            let is = |named: &str| joint::base_metric(named) == metric.name;
            let (named_primary, also) =
                (primary.is_some_and(is), also_judge.iter().any(|named| is(named)));
            metric.named_primary = named_primary;
            metric.optional &= !named_primary && !also;
        }
    }

    /// Returns every text that may contain placeholders, except the texts of `warm_up`.
    fn texts(&self) -> impl Iterator<Item = &Template> {
        let lines = [Some(&self.run), self.setup.as_ref(), self.cleanup.as_ref()];
        let files = self.metrics.iter().filter_map(|metric| match &metric.source {
            OutputSource::File(path) => Some(path),
            OutputSource::Stdout | OutputSource::Stderr => None,
        });
        let lines = lines.into_iter().flatten().flat_map(Line::texts);
        lines.chain(self.env.values()).chain(self.parameters.values()).chain(files)
    }

    /// Returns every text that may contain placeholders.
    pub fn all_texts(&self) -> impl Iterator<Item = &Template> {
        self.texts().chain(self.warm_up.iter().flat_map(Line::texts))
    }

    /// Returns whether the placeholder occurs anywhere except in `warm_up`.
    pub fn uses_placeholder(&self, placeholder: &str) -> bool {
        self.texts().any(|text| text.placeholders().any(|name| name == placeholder))
    }

    /// Returns whether the command has a warm-up.
    pub fn warms_up(&self) -> bool {
        self.warm_up.is_some() || self.uses_placeholder("warmup")
    }

    /// Returns whether the command needs the target's server.
    pub fn needs_server(&self) -> bool {
        let connection = ["dsn", "host", "port", "user", "dbname"];
        self.schema.is_some() || connection.iter().any(|name| self.uses_placeholder(name))
    }

    pub fn primary(&self) -> Option<&MetricSpec> {
        self.metrics.first()
    }
}

/// A command with its durations.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CommandSettings {
    pub spec: CommandSpec,
    /// Absent: the command decides how long it runs.
    pub run_time: Option<Duration>,
    pub warmup: Duration,
    pub sessions: u32,
    /// Maximum time for one run.
    pub time_limit: Duration,
}

impl CommandSettings {
    /// Returns the sessions that several drivers divide; none: each runs the whole command.
    pub fn divisible(&self) -> Option<u32> {
        self.spec.uses_placeholder("sessions").then_some(self.sessions)
    }

    pub fn resolve(spec: CommandSpec, layer: Layer) -> Self {
        let all = layer.over(Layer::defaults(Use::Work(COMMAND)));
        let run_time = all.run_time.expect("the table has a default for it");
        let warmup = all.warmup.expect("the table has a default for it");
        let time_limit = spec
            .time_limit
            .unwrap_or_else(|| (run_time + warmup).saturating_mul(3) + Duration::from_secs(60));
        Self {
            run_time: spec.uses_placeholder("seconds").then_some(run_time),
            warmup,
            sessions: all.sessions.expect("the table has a default for it"),
            time_limit,
            spec,
        }
    }
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Template(String);

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl Template {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// Replaces each placeholder by its value; a placeholder without a value stays.
    pub fn fill(&self, value: &dyn Fn(&str) -> Option<String>) -> String {
        let filled = self.pieces().into_iter().map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Placeholder(name) => value(name).unwrap_or_else(|| format!("{{{name}}}")),
        });
        filled.collect()
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let text = self.0.as_str();
        // The text before `from` is already in `pieces`.
        let (mut from, mut at) = (0, 0);
        while let Some(open) = text[at..].find('{').map(|offset| at + offset) {
            let doubled = text[open + 1..].starts_with('{');
            let name_at = open + 1 + usize::from(doubled);
            let name = name(&text[name_at..]);
            let close = name_at + name.len();
            let closed = text[close..].starts_with(if doubled { "}}" } else { "}" });
            if name.is_empty() || !closed || text[..open].ends_with('$') {
                at = open + 1;
                continue;
            }
            if doubled {
                pieces.push(Piece::Text(&text[from..=open]));
                pieces.push(Piece::Text(&text[name_at..=close]));
                at = close + 2;
            } else {
                pieces.push(Piece::Text(&text[from..open]));
                pieces.push(Piece::Placeholder(name));
                at = close + 1;
            }
            from = at;
        }
        pieces.push(Piece::Text(&text[from..]));
        pieces
    }
}

/// Returns the longest name at the beginning of the text.
fn name(text: &str) -> &str {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let end = text.find(|c| !plain(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_lowercase()) { &text[..end] } else { "" }
}

/// A command line: a program with its arguments, or a text for `sh`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Line {
    /// Never empty.
    Words(Vec<Template>),
    Shell(Template),
}

impl Line {
    pub fn texts(&self) -> impl Iterator<Item = &Template> {
        match self {
            Line::Words(words) => words.as_slice(),
            Line::Shell(text) => std::slice::from_ref(text),
        }
        .iter()
    }

    /// Returns the program and its arguments. In a text for `sh`, values are quoted if necessary.
    pub fn fill(
        &self,
        value: &dyn Fn(&str) -> Option<String>,
        quoted: fn(&OsStr) -> String,
    ) -> Vec<String> {
        match self {
            Line::Words(words) => words.iter().map(|word| word.fill(value)).collect(),
            Line::Shell(text) => {
                let quoted = |name: &str| value(name).map(|v| quoted(OsStr::new(&v)));
                ["sh", "-c", &text.fill(&quoted)].map(str::to_owned).to_vec()
            }
        }
    }

    /// The program to show in messages: the first word, or `sh`.
    pub fn program(&self) -> &str {
        match self {
            Line::Words(words) => words.first().map_or("", Template::text),
            Line::Shell(_) => "sh",
        }
    }

    /// The line as written, for display.
    pub fn shown(&self) -> String {
        self.texts().map(Template::text).collect::<Vec<_>>().join(" ")
    }
}

/// Returns what prevents other processes from running a command; none: nothing. `judged` are metrics judged beside the
/// first.
pub(super) fn indivisible(spec: &CommandSpec, judged: &[String]) -> Option<String> {
    if let Some(host) = &spec.host {
        return Some(format!(
            "each driver runs the command on its own host, not on {host}; delete host"
        ));
    }
    // Without `combine` no trial of several drivers has a value to compare.
    let is_judged = |metric: &MetricSpec| metric.is_primary() || judged.contains(&metric.name);
    let uncombined = spec.metrics.iter().find(|m| is_judged(m) && m.combine.is_none())?;
    Some(format!(
        "pgio does not know how to combine the values of several drivers for `{}`; write combine = \"sum\", \"mean\", \"max\" or \"min\" in its [[workload.metric]]",
        uncombined.name
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(name: &str) -> Option<String> {
        (name != "unknown").then(|| format!("<{name}>"))
    }

    #[test]
    fn placeholders_differ_from_other_braces() {
        for (text, filled) in [
            ("-T {seconds}", "-T <seconds>"),
            ("{a}{b_1}", "<a><b_1>"),
            ("{{seconds}} {seconds}", "{seconds} <seconds>"),
            ("${HOME} ${seconds}", "${HOME} ${seconds}"),
            ("awk '{print $1}' {x", "awk '{print $1}' {x"),
            ("{\"a\": {\"b\": 1}} {}", "{\"a\": {\"b\": 1}} {}"),
            ("{Upper} {1} {a-b} {{a}", "{Upper} {1} {a-b} {<a>"),
            ("{unknown}ü{a}", "{unknown}ü<a>"),
        ] {
            assert_eq!(Template::new(text).fill(&value), filled, "{text}");
        }
        let text = Template::new("{a} {{b}} {c}");
        assert_eq!(text.placeholders().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn words_stay_separate_and_shell_text_is_quoted() {
        let words = Line::Words(["p", "{a} b", ""].map(Template::new).to_vec());
        let quoted: fn(&OsStr) -> String = |word| format!("'{}'", word.to_string_lossy());
        assert_eq!(words.fill(&value, quoted), ["p", "<a> b", ""]);
        assert_eq!((words.program(), words.shown().as_str()), ("p", "p {a} b "));
        let shell = Line::Shell(Template::new("p {a} | q"));
        assert_eq!(shell.fill(&value, quoted), ["sh", "-c", "p '<a>' | q"]);
        assert_eq!(shell.program(), "sh");
    }

    proptest! {
        #[test]
        fn filling_loses_no_text(text in "[{}$a-c ü]{0,24}") {
            let same = |name: &str| Some(format!("{{{name}}}"));
            let undoubled = Template::new(text.clone()).fill(&same);
            // Only doubled braces change.
            prop_assert_eq!(undoubled.replace(['{', '}'], ""), text.replace(['{', '}'], ""));
            if !text.contains("{{") {
                prop_assert_eq!(undoubled, text);
            }
        }
    }
}
