//! docs/KEYS.md: keys, metrics, treatments, checks and exit codes, from the tables that the program reads.

use std::fmt::Write;
use std::path::PathBuf;

use pgio::cli::exit;
use pgio::config::experiment::WorkloadKind;
use pgio::config::experiment::limits::LIMITS;
use pgio::config::value::Kind;
use pgio::config::{KEYS, Key, SECTIONS, SectionDef, Use};
use pgio::results::checks::{CHECKS, CheckDef};
use pgio::results::metrics::{Direction, METRICS, MetricDef};
use pgio::treatment::KINDS;

const HEAD: &str = "\
# Keys, metrics, treatments, checks, exit codes

Made by `cargo xtask generate` from the tables that the program itself reads; do not edit.

## Keys

One key has three spellings: `UPDATE_PCT` in pgio.conf, `update_pct` in `[workload]` of an experiment
file, `--update-pct` as a flag. A flag overrides the file. In an experiment file a key that is absent
comes from ./pgio.conf, then from the data set's own mark, then it has the default below.

Used by: `connect` finding the server (in an experiment file: `[target]`), `load` loading the data
set, `slob`, `commit`, `device`, `command` and `mail` the workloads of these names. Flags are for the commands that
use the key: `connect` for `setup`, `run`, `doctor` and `destroy`, `load` for `setup`, `slob` for `run` and `doctor`; what only
the other workloads use is a key of pgio.conf and of experiment files, and no flag. What a command is and
prints is said in README.md, [Any program](../README.md#any-program).
";

pub(crate) fn artefacts() -> Vec<(PathBuf, String)> {
    let sections = [
        HEAD.to_owned(),
        keys(),
        "## Sections of an experiment file\n\nKeys of the sections themselves. The keys of the work in `[workload]` are those above.\n".to_owned(),
        sections(),
        "## Metrics\n\nBetter: which way is faster; `-` is a plain quantity, neither better nor worse.\n".to_owned(),
        metrics(),
        workloads(),
        "## Treatments\n\nWhat a `[[condition]]` can change, by the name of its key.\n".to_owned(),
        treatments(),
        "## Checks\n\nOf each trial, by the name that reports show. Of the kind `measurement`: one that is invalid leaves its\ntrial out, unless `tolerate` in `[experiment]` names it. Of the kind `behavior`: how the condition behaved; the trial\ncounts, and the share of such trials is compared with the baseline's.\n".to_owned(),
        checks(),
        "## Limits\n\nWhat is beyond is refused with its line, before anything is made of it. Those of single keys stand above.\n".to_owned(),
        limits(),
        "## Exit codes\n".to_owned(),
        exit_codes(),
    ];
    vec![(PathBuf::from("docs/KEYS.md"), sections.join("\n"))]
}

fn keys() -> String {
    table(
        ["Key", "pgio.conf", "Flag", "Value", "Default", "Used by", "Meaning"],
        KEYS.iter().map(|key| {
            let shown = |name: String, has: bool| match has {
                true => format!("`{name}`"),
                false => "-".to_owned(),
            };
            [
                format!("`{}`", key.name),
                shown(key.conf_name(), key.is_conf_key()),
                shown(format!("--{}", key.flag()), key.is_flag()),
                value(&key.kind),
                default(key),
                key.uses.iter().map(|u| name_of(*u)).collect::<Vec<_>>().join(", "),
                key.help.to_owned(),
            ]
        }),
    )
}

fn sections() -> String {
    let one = |section: &SectionDef| {
        let rows = section.keys.iter().map(|key| {
            [
                format!("`{}`", key.name),
                key.value.to_owned(),
                key.default.to_owned(),
                key.help.to_owned(),
            ]
        });
        let table = table(["Key", "Value", "Default", "Meaning"], rows);
        format!("### `{}`\n\n{}\n\n{table}", section.title, section.about)
    };
    SECTIONS.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn value(kind: &Kind) -> String {
    kind.to_string()
}

fn default(key: &Key) -> String {
    let shown = |text: &str| format!("`{text}`");
    let all = key.default.map_or_else(|| "none".to_owned(), shown);
    match key.default_for(Use::Load) {
        Some(load) if key.default != Some(load) => format!("{all} (load: `{load}`)"),
        _ => all,
    }
}

fn name_of(using: Use) -> &'static str {
    match using {
        Use::Connect => "connect",
        Use::Load => "load",
        Use::Slob => WorkloadKind::Slob.name(),
        Use::Commit => WorkloadKind::Commit.name(),
        Use::Device => WorkloadKind::Device.name(),
        Use::Command => WorkloadKind::Command.name(),
        Use::Mail => WorkloadKind::Mail.name(),
    }
}

fn metrics() -> String {
    table(
        ["Metric", "Unit", "Better", "Meaning"],
        METRICS.iter().map(|m: &MetricDef| {
            let better = match m.direction {
                Direction::HigherIsFaster => "higher",
                Direction::LowerIsFaster => "lower",
                Direction::Neutral => "-",
            };
            [format!("`{}`", m.name), m.unit.to_owned(), better.to_owned(), m.help.to_owned()]
        }),
    )
}

fn workloads() -> String {
    let names: Vec<String> = WorkloadKind::ALL.iter().map(|k| format!("`{}`", k.name())).collect();
    format!("## Workloads\n\n`kind` in `[workload]` is one of {}.\n", names.join(", "))
}

fn treatments() -> String {
    table(
        ["Treatment", "Meaning"],
        KINDS.iter().map(|kind| [format!("`{}`", kind.name), kind.help.to_owned()]),
    )
}

fn checks() -> String {
    table(
        ["Check", "Kind", "Invalid when", "Warning when", "What to do"],
        CHECKS.iter().map(|c: &CheckDef| {
            let or_not =
                |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            [
                format!("`{}`", c.id),
                c.kind.name().to_owned(),
                or_not(c.invalid),
                or_not(c.warning),
                c.remedy.to_owned(),
            ]
        }),
    )
}

fn limits() -> String {
    table(
        ["What", "At most"],
        LIMITS.iter().map(|limit| [limit.what.to_owned(), limit.most.to_string()]),
    )
}

fn exit_codes() -> String {
    let rows = exit::CODES.iter().map(|(code, meaning)| [code.to_string(), (*meaning).to_owned()]);
    table(["Code", "Meaning"], rows)
}

fn table<const N: usize>(headings: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_table_is_there() {
        let (_, text) = artefacts().remove(0);
        let names = KEYS
            .iter()
            .map(|key| key.name.to_owned())
            .chain(METRICS.iter().map(|m| m.name.to_owned()))
            .chain(KINDS.iter().map(|k| k.name.to_owned()))
            .chain(CHECKS.iter().map(|c| c.id.to_owned()));
        for name in names {
            assert!(text.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn a_bar_in_a_cell_stays_one_cell() {
        assert_eq!(table(["a"], [["x|y".to_owned()]].into_iter()), "| a |\n|---|\n| x\\|y |\n");
    }
}
