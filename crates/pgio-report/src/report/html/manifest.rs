//! The conditions, the environment, and how to reproduce the experiment.

use maud::html;

use super::super::format::{self, moment};
use super::super::table::{Column, Table, columns};
use super::page::{Page, Section};
use super::table;
use pgio_results::store::Rules;
use pgio_results::telemetry::{Device, HostUse, Storage, Telemetry};

pub(super) fn environment(page: &Page<'_>) -> Section {
    let telemetry = page.stored.trials.iter().rev().find_map(|t| t.telemetry.as_ref());
    let body = html! {
        (table::render(&conditions(page), "Conditions"))
        @let servers = servers(page);
        @if !servers.rows.is_empty() { (table::render(&servers, "Servers")) }
        @if let Some(t) = telemetry {
            @for (table, name) in [(storage(t), "Storage"), (observers(t), "Observation")] {
                @if !table.rows.is_empty() { (table::render(&table, name)) }
            }
        }
        (table::render(&found(page), "Environment"))
    };
    Section { id: "environment", title: "Conditions and environment", body }
}

fn conditions(page: &Page<'_>) -> Table {
    let row = |c: &pgio_results::store::ConditionInfo| {
        let role = if c.name == page.analysis.baseline {
            "baseline"
        } else if page.analysis.is_aa(&c.name) {
            "second copy of the baseline"
        } else {
            ""
        };
        let treatments =
            if c.changes.is_empty() { "nothing".to_owned() } else { c.treatments().join("\n") };
        vec![c.name.clone(), treatments, role.to_owned()]
    };
    Table {
        title: "Conditions".to_owned(),
        columns: ["condition", "what it sets", "role"].map(Column::left).to_vec(),
        rows: page.stored.manifest.conditions.iter().map(row).collect(),
        ..Table::default()
    }
}

/// How private servers were built; not the A/A twin's, which is the baseline's.
fn servers(page: &Page<'_>) -> Table {
    let built = &page.stored.manifest.built;
    let conditions = page.stored.manifest.conditions.iter();
    let shown = conditions.filter(|c| !page.analysis.is_aa(&c.name));
    let row = |c: &pgio_results::store::ConditionInfo| {
        let changes: Vec<String> = built.get(&c.name)?.iter().map(ToString::to_string).collect();
        Some(vec![c.name.clone(), changes.join("\n")])
    };
    Table {
        title: "How the private servers were built, under every trial".to_owned(),
        columns: ["condition", "server"].map(Column::left).to_vec(),
        rows: shown.filter_map(row).collect(),
        ..Table::default()
    }
}

fn storage(t: &Telemetry) -> Table {
    let device = |d: &Device| {
        let queue: Vec<String> = d.queue.iter().map(|(k, v)| format!("{k} {v}")).collect();
        let queue =
            if queue.is_empty() { String::new() } else { format!(": {}", queue.join(", ")) };
        format!("{} ({}{queue})", d.name, d.kind)
    };
    let row = |s: &Storage| {
        let devices: Vec<String> = s.devices.iter().map(device).collect();
        let mount = if s.is_located() {
            format!("{} on {} ({})", s.file_system, s.mount_point, s.mount_options)
        } else {
            "unknown: pgio could not read the directory".to_owned()
        };
        vec![s.role.clone(), s.host.clone(), s.directory.clone(), mount, devices.join("\n")]
    };
    let heading = ["what", "host", "directory", "file system", "devices"];
    Table {
        title: "Where the server keeps its files".to_owned(),
        columns: heading.map(Column::left).to_vec(),
        rows: t.storage.iter().map(row).collect(),
        ..Table::default()
    }
}

/// What telemetry sampled in the last trial, how often, and at what cost.
fn observers(t: &Telemetry) -> Table {
    let host = |(name, h): (&String, &HostUse)| {
        let cost = h.sampling_cpu_seconds.filter(|_| h.ticks > 0).map(|cpu| {
            format!("{:.2} % of a core", cpu / (h.ticks as f64 * h.cadence_seconds) * 100.0)
        });
        vec![
            format!("host {name}"),
            format!("every {:.1} s", h.cadence_seconds),
            h.ticks.to_string(),
            h.missed.to_string(),
            cost.unwrap_or_default(),
        ]
    };
    let mut rows: Vec<Vec<String>> = t.hosts.iter().map(host).collect();
    rows.extend(t.waits.as_ref().map(|w| {
        let rate = format!("{:.0} per second", w.hertz);
        vec![
            "waits".to_owned(),
            rate,
            w.rounds.to_string(),
            w.missed_rounds.to_string(),
            String::new(),
        ]
    }));
    Table {
        title: "Observation, in the last trial".to_owned(),
        columns: columns("source | rate | > samples | > missed | > cost"),
        rows,
        ..Table::default()
    }
}

fn found(page: &Page<'_>) -> Table {
    let manifest = &page.stored.manifest;
    let mut rows = vec![
        vec!["pgio".to_owned(), manifest.pgio.clone()],
        vec!["started".to_owned(), moment(&manifest.created_at)],
        vec!["seed".to_owned(), manifest.seed.to_string()],
        vec!["blocks requested".to_owned(), manifest.blocks.to_string()],
    ];
    rows.extend(rules(&manifest.rules).into_iter().map(|(k, v)| vec![k.to_owned(), v]));
    rows.extend(manifest.resumed.iter().map(|r| {
        let from = format!("{}, from trial {} on", moment(&r.at), r.from_trial);
        let all: Vec<&str> =
            std::iter::once(from.as_str()).chain(r.remarks.iter().map(String::as_str)).collect();
        vec!["continued".to_owned(), all.join("; ")]
    }));
    let known = |name: &str| name == "pgio";
    let environment = manifest.environment.iter().filter(|(name, _)| !known(name));
    rows.extend(environment.map(|(name, value)| vec![name.clone(), value.clone()]));
    Table {
        title: "As found".to_owned(),
        columns: ["name", "value"].map(Column::left).to_vec(),
        rows,
        ..Table::default()
    }
}

fn rules(rules: &Rules) -> Vec<(&'static str, String)> {
    let mut rows = vec![("repeats of an invalid trial", rules.repeats.to_string())];
    if !rules.reset.is_empty() {
        rows.push(("reset before each trial", rules.reset.clone()));
    }
    rows.extend(rules.precision.map(|p| {
        let limit = rules.max_blocks.map_or_else(String::new, |n| format!(", at most {n} blocks"));
        ("requested precision", format!("±{}{limit}", format::size(p)))
    }));
    if !rules.tolerate.is_empty() {
        rows.push(("checks that warn instead", rules.tolerate.join(", ")));
    }
    rows
}

pub(super) fn reproduce(page: &Page<'_>) -> Section {
    let seed = page.stored.manifest.seed;
    let has_seed = page.experiment.lines().any(|line| {
        line.trim_start()
            .strip_prefix("seed")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    });
    let body = html! {
        ol {
            li { "Install pgio " (page.stored.manifest.pgio) "." }
            li { "Save the experiment below as " code { "experiment.toml" } "."
                @if !has_seed {
                    " For the same order of trials and the same blocks visited, put "
                    code { "seed = " (seed) } " under " code { "[experiment]" } "."
                }
            }
            li { "Look at what it would do: " code { "pgio compare experiment.toml --plan" } }
            li { "Run it: " code { "pgio compare experiment.toml --out again" } }
            li { "This page from stored results: "
                code { "pgio report DIR --format html --out report.html" } }
        }
        h3 #experiment-file { "experiment.toml" }
        pre.scroll role="region" aria-labelledby="experiment-file" tabindex="0" {
            code { (page.experiment) }
        }
    };
    Section { id: "reproduce", title: "How to reproduce", body }
}
