//! Checks the levels of ARCHITECTURE.md: a module of this crate uses only lower levels. The compiler
//! checks the order of the crates. Also checks that each crate which users need is published.

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules by level. Families that must not depend on each other share a level.
const LEVELS: &[&[&str]] = &[
    &["exit_code", "rng"],
    &["config"],
    &["host"],
    &["pg"],
    &["dataset"],
    &["workload", "treatment", "telemetry"],
    &["experiment"],
    &["cli"],
    &["features"],
];
/// What a feature is, and the list of all: any level may ask it.
const REGISTRY: &str = "feature";

fn level_of(module: &str) -> Option<usize> {
    LEVELS.iter().position(|modules| modules.contains(&module))
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The modules named right after `crate::` anywhere in the text, groups included.
fn modules_used(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let names = match rest.strip_prefix('{') {
            Some(group) => top_level_names(group),
            None => vec![leading_name(rest)],
        };
        used.extend(names.into_iter().filter(|n| !n.is_empty()));
    }
    used
}

fn leading_name(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn top_level_names(group: &str) -> Vec<String> {
    let mut names = vec![leading_name(group)];
    let mut depth = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(leading_name(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

fn violations(file: &str, module: &str, text: &str) -> Vec<String> {
    if module == REGISTRY {
        return Vec::new();
    }
    let Some(own) = level_of(module) else {
        return vec![format!("{file}: module `{module}` is in no level; add it to the table")];
    };
    let mut found = Vec::new();
    for used in modules_used(text) {
        if used == module || used == REGISTRY {
            continue;
        }
        match level_of(&used) {
            Some(level) if level >= own => {
                found.push(format!("{file}: level {own} `{module}` uses level {level} `{used}`"));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn modules_use_only_lower_levels() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/pgio/src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 10, "the scan found the sources");
    let mut found = Vec::new();
    for path in files {
        let relative = path.strip_prefix(&src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if module == "main" || module == "lib" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        found.extend(violations(&relative.display().to_string(), module, &text));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_scan_sees_an_upward_use() {
    let upward = "use crate::{rng, cli::run};\n";
    assert_eq!(violations("x.rs", "pg", upward).len(), 1);
    assert_eq!(violations("x.rs", "experiment", "use crate::cli::output;").len(), 1);
    assert!(violations("x.rs", "pg", "use crate::{rng, host::exec};").is_empty());
}

/// `cargo package` fails for a crate that depends on one which is not published.
#[test]
fn every_crate_that_users_need_is_published() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut private = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let directory = entry.unwrap().path();
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        if manifest.lines().any(|line| line.starts_with("publish")) {
            private.push(directory.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    private.sort();
    assert_eq!(private, ["pgio-bench", "pgio-fuzz"]);
}
