//! Limits on the size of an experiment file and of the experiment that it describes.
//!
//! The limits are far above what can be measured in reasonable time, and below what would take minutes
//! or gigabytes to plan. A larger value is a typo, and the parser refuses it with its line. docs/KEYS.md
//! lists the limits. `config::keys` has the limits of single workload keys.

use benchmath::factorial::MAX_FACTORS;
use regex_lite::RegexBuilder;

use super::key::{Key, Parsed, Texts, section};
use super::section::Section;
use crate::config::command::{
    Better, Combine, Extractor, MatchChoice, MetricSpec, OutputSource, Template,
};
use crate::config::value::ConfigError;

/// A limit as shown in docs/KEYS.md.
#[derive(Debug, Clone, Copy)]
pub struct LimitDef {
    pub what: &'static str,
    pub most: u64,
}

pub const FILE_BYTES: u64 = 1 << 20;
pub(super) const BLOCKS: u32 = 10_000;
pub(super) const REPEATS: u32 = 100;
pub(crate) const CONDITIONS: usize = 200;
pub(crate) const TREATMENTS: usize = 50;
pub(crate) const WORKLOADS: usize = 50;
pub(super) const TARGETS: usize = 50;
/// The limit for one private server; ten WAL senders are PostgreSQL's default.
pub(super) const STANDBYS: usize = 8;
pub(super) const HOSTS: usize = 100;
pub(crate) const AXES: usize = 10;
pub(crate) const FACTORS: usize = MAX_FACTORS;
pub(crate) const VALUES: usize = 200;
pub(crate) const CELLS: u64 = 10_000;
/// Trials of a workload in the maximum number of blocks.
pub(super) const TRIALS: u64 = 100_000;

pub const LIMITS: &[LimitDef] = &[
    LimitDef { what: "size of an experiment file or pgio.conf in bytes", most: FILE_BYTES },
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
    LimitDef {
        what: "trials of a workload: its cells times the maximum number of blocks",
        most: TRIALS,
    },
];

section! { keys, "[[workload.metric]]",
    "A number in a command's output: where to find it and what it means.";
    name: Parsed<String>("a word of a to z, digits and _", label) or "required", "name of the metric";
    unit: Parsed<String>("one line of text", label) or "required", "unit of the metric";
    better: OneOf<Better>(Better::ALL) or "required", "direction of improvement";
    json: Raw("a JSON pointer, or several"), "location of the number in JSON; set either json or regex";
    regex: Parsed<String>("a regular expression", text), "pattern whose first group, or whole match, is the number";
    take: OneOf<MatchChoice>(MatchChoice::ALL) = MatchChoice::Last,
        "how several matches of regex are combined";
    skip: Whole<u64>(0..=u32::MAX as u64) = 0, "number of matches of regex to skip at the start";
    from: OneOf<OutputSource>(STREAMS) = OutputSource::Stdout, "stream to search";
    file: Parsed<String>("a path", text), "file to search instead of a stream";
    scale: Raw("a number above 0") or "1", "factor that converts the number to unit";
    primary: Switch or "true for the only metric",
        "whether this metric is judged; of several metrics, one must be";
    optional: Switch = false,
        "whether the number may be missing; ignored for a metric that primary or also_judge of [experiment] names";
    combine: OneOf<Combine>(Combine::ALL),
        "how the values of several drivers are combined; without it, several drivers report no such metric";
}

const STREAMS: &[(&str, OutputSource)] =
    &[("stdout", OutputSource::Stdout), ("stderr", OutputSource::Stderr)];

pub(super) fn parse(section: &Section<'_>) -> Result<MetricSpec, ConfigError> {
    section.refuse_keys_outside(&keys::SECTION)?;
    let name = required(section, &keys::name, "\"transactions_per_second\"")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(section.error(&keys::name, "must consist of letters a-z, digits and _"));
    }
    Ok(MetricSpec {
        name,
        unit: required(section, &keys::unit, "\"s\", \"bytes/s\" or \"transactions/s\"")?,
        better: section.read(&keys::better)?.ok_or_else(|| {
            section.error(&keys::better, "is missing; set higher, lower or neither")
        })?,
        extractor: extractor(section)?,
        source: source(section)?,
        scale: scale(section)?,
        primary: section.read(&keys::primary)?.unwrap_or(false),
        named_primary: false,
        optional: section.get(&keys::optional)?,
        combine: section.read(&keys::combine)?,
    })
}

fn required(
    section: &Section<'_>,
    key: &Key<Parsed<String>>,
    example: &str,
) -> Result<String, ConfigError> {
    let missing = || section.error(key, format!("is missing; set {} = {example}", key.name));
    section.read(key)?.ok_or_else(missing)
}

fn extractor(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    match (section.has(&keys::json), section.has(&keys::regex)) {
        (true, true) => {
            Err(section.error(&keys::regex, "conflicts with json; keep only one of them"))
        }
        (false, false) => Err(section.error(
            &keys::regex,
            "and json are missing; set for example regex = \"tps = ([0-9.]+)\" or json = \"/a/b\"",
        )),
        (false, true) => regex(section),
        (true, false) => json(section),
    }
}

fn json(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    if let Some(key) =
        [keys::take.key.name, keys::skip.key.name].into_iter().find(|key| section.has(key))
    {
        return Err(section.error(key, "requires regex"));
    }
    let pointers = match section.value(&keys::json)? {
        toml::Value::String(pointer) => vec![pointer],
        _ => section.read_as(&keys::json, &Texts("")).ok().flatten().unwrap_or_default(),
    };
    if pointers.is_empty() {
        let message =
            "must be a pointer such as \"/jobs/0/read/iops\", or a list of pointers to add up";
        return Err(section.error(&keys::json, message));
    }
    match pointers.iter().find(|p| !p.is_empty() && !p.starts_with('/')) {
        Some(pointer) => Err(section.error(
            &keys::json,
            format!("`{pointer}` is not a JSON pointer, because it does not begin with `/`"),
        )),
        None => Ok(Extractor::Json(pointers)),
    }
}

fn regex(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    let pattern = section.read(&keys::regex)?.unwrap_or_default();
    if let Err(error) = RegexBuilder::new(&pattern).multi_line(true).build() {
        return Err(
            section.error(&keys::regex, format!("is not a valid regular expression: {error}"))
        );
    }
    Ok(Extractor::Regex {
        pattern,
        take: section.get(&keys::take)?,
        skip: section.get(&keys::skip)?,
    })
}

fn source(section: &Section<'_>) -> Result<OutputSource, ConfigError> {
    let (file, stream) = (section.read(&keys::file)?, section.get(&keys::from)?);
    match file {
        None => Ok(stream),
        Some(_) if section.has(&keys::from) => {
            Err(section.error(&keys::from, "conflicts with file; keep only one of them"))
        }
        Some(path) if path.is_empty() => Err(section.error(&keys::file, "is empty")),
        Some(path) => Ok(OutputSource::File(Template::new(path))),
    }
}

fn scale(section: &Section<'_>) -> Result<f64, ConfigError> {
    let scale = match section.read(&keys::scale)? {
        None => 1.0,
        Some(toml::Value::Float(scale)) => scale,
        Some(toml::Value::Integer(scale)) => scale as f64,
        Some(_) => f64::NAN,
    };
    if scale.is_finite() && scale > 0.0 {
        Ok(scale)
    } else {
        Err(section.error(&keys::scale, "must be a number above 0, such as 0.001"))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::parse;
    use std::fmt::Write;
    use std::time::{Duration, Instant};

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
    #[cfg(feature = "sweep")]
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
    #[cfg(feature = "sweep")]
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
