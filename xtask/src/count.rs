//! How large the project is: lines, files, directories, words, crates, and on request seconds.
//!
//! Counts a checkout, this one or another, so that two states can be compared. A line is code, a comment or blank;
//! code from `#[cfg(test)] mod` to the end of a file, and in files of tests, is test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::build::captured;
use crate::{format, keys};

/// Fewer lines of code than this hardly make a file that a reader looks for.
const SMALL_FILE: usize = 40;
/// Directories of the workspace that hold Rust.
const SOURCES: [&str; 3] = ["crates", "tests", "xtask"];
/// Pages that a program writes.
const GENERATED: [&str; 2] = [keys::PAGE, format::PAGE];
const EXCLUDED: [&str; 3] = ["target", "man", "schema"];

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The checkout to count; without it, this one
    checkout: Option<PathBuf>,
    /// Also build and test in an empty target directory, which takes minutes
    #[arg(long)]
    times: bool,
}

/// Lines of one kind each.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lines {
    code: usize,
    test: usize,
    comment: usize,
    blank: usize,
}

impl Lines {
    fn all(self) -> usize {
        self.code + self.test + self.comment + self.blank
    }

    fn add(&mut self, other: Lines) {
        self.code += other.code;
        self.test += other.test;
        self.comment += other.comment;
        self.blank += other.blank;
    }
}

pub fn run(here: &Path, options: &Options) -> Result<()> {
    let root = options.checkout.as_deref().unwrap_or(here);
    let members = default_members(root)?;
    let mut files = BTreeMap::new();
    for source in SOURCES {
        find(&root.join(source), "rs", &mut |path, text| {
            let below = path.strip_prefix(root).unwrap_or(path).to_owned();
            let lines = count_lines(text, is_test_file(&below));
            files.insert(below, lines);
        })?;
    }
    let sum = |of: &dyn Fn(&Path) -> bool| {
        let mut sum = Lines::default();
        files.iter().filter(|(path, _)| of(path)).for_each(|(_, lines)| sum.add(*lines));
        sum
    };
    let row = |name: &str, lines: Lines| {
        let Lines { code, test, comment, blank } = lines;
        println!(
            "{name:<24}{:>8} = {code} code, {test} test, {comment} comment, {blank} blank",
            lines.all()
        );
    };
    row("Rust lines", sum(&|_| true));
    row("  default members", sum(&|path| members.iter().any(|member| path.starts_with(member))));
    println!("{:<24}{:>8}", "Rust files", files.len());
    let small = files.values().filter(|lines| lines.code + lines.test < SMALL_FILE).count();
    println!("{:<24}{small:>8}", format!("  under {SMALL_FILE} lines"));
    let mut directories: BTreeMap<&Path, usize> = BTreeMap::new();
    files
        .keys()
        .filter_map(|path| path.parent())
        .for_each(|dir| *directories.entry(dir).or_default() += 1);
    let few = directories.values().filter(|count| **count <= 2).count();
    println!("{:<24}{:>8}, {few} with one or two files", "directories", directories.len());
    let depth =
        |path: &Path| path.iter().skip_while(|part| *part != "src").count().saturating_sub(2);
    let deepest = files.keys().max_by_key(|path| depth(path)).context("no file")?;
    println!("{:<24}{:>8} ({})", "directories below src", depth(deepest), deepest.display());

    let mut words = BTreeMap::new();
    find(root, "md", &mut |path, text| {
        let below = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let parts: Vec<&str> = below.split('/').collect();
        let page = match parts.as_slice() {
            [page] => (*page).to_owned(),
            ["docs", page] => format!("docs/{page}"),
            ["docs", dir, ..] => format!("docs/{dir}/"),
            _ => return,
        };
        *words.entry(page).or_insert(0) += text.split_whitespace().count();
    })?;
    let written = words.iter().filter(|(page, _)| !GENERATED.contains(&page.as_str()));
    println!(
        "{:<24}{:>8} without generated pages",
        "words",
        written.map(|(_, count)| count).sum::<usize>()
    );
    for (page, count) in &words {
        println!("  {page:<22}{count:>8}");
    }
    println!("{:<24}{:>8}", "crates, default build", crates(root)?);
    if options.times {
        times(root)?;
    }
    Ok(())
}

/// Calls `each` for every file of this kind below the directory.
pub(crate) fn find(dir: &Path, kind: &str, each: &mut dyn FnMut(&Path, &str)) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !EXCLUDED.contains(&name.as_str()) {
            find(&path, kind, each)?;
        } else if path.extension().is_some_and(|extension| extension == kind) {
            each(&path, &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

pub(crate) fn is_test_file(below: &Path) -> bool {
    let stem = below.file_stem().unwrap_or_default().to_string_lossy();
    below.iter().any(|part| part == "tests" || part == "integration")
        || ["tests", "test_support"].contains(&&*stem)
        || stem.ends_with("_tests")
}

fn count_lines(text: &str, mut is_test: bool) -> Lines {
    let mut lines = Lines::default();
    let mut before = "";
    for line in text.lines().map(str::trim) {
        is_test |= before == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
        match line {
            "" => lines.blank += 1,
            comment if comment.starts_with("//") => lines.comment += 1,
            _ if is_test => lines.test += 1,
            _ => lines.code += 1,
        }
        before = line;
    }
    lines
}

/// The directories of what a bare `cargo` command builds.
fn default_members(root: &Path) -> Result<Vec<PathBuf>> {
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata: serde_json::Value =
        serde_json::from_str(&captured(Command::new("cargo").args(args).current_dir(root))?)?;
    let is_default = |package: &&serde_json::Value| {
        let members = metadata["workspace_default_members"].as_array();
        members.is_some_and(|members| members.contains(&package["id"]))
    };
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(is_default);
    let manifests = packages.filter_map(|package| package["manifest_path"].as_str());
    let root = root.canonicalize()?;
    let below =
        manifests.filter_map(|manifest| Path::new(manifest).parent()?.strip_prefix(&root).ok());
    Ok(below.map(Path::to_owned).collect())
}

/// All crates that `cargo build` compiles, its own included.
fn crates(root: &Path) -> Result<usize> {
    let args = ["tree", "--offline", "--prefix", "none", "--edges", "normal,build", "--no-dedupe"];
    let text = captured(Command::new("cargo").args(args).current_dir(root))?;
    let names = text.lines().map(|line| line.split(" (").next().unwrap_or(line));
    let names: std::collections::BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    Ok(names.len())
}

fn times(root: &Path) -> Result<()> {
    let target = tempfile::tempdir()?;
    for args in [&["build", "--release"][..], &["test"], &["test"]] {
        let begun = Instant::now();
        let mut cargo = Command::new("cargo");
        cargo.args(args).arg("--quiet").current_dir(root).env("CARGO_TARGET_DIR", target.path());
        captured(&mut cargo)?;
        println!("{:<24}{:>8} s", format!("cargo {}", args.join(" ")), begun.elapsed().as_secs());
    }
    let program = fs::metadata(target.path().join("release/pgio"))?.len();
    println!("{:<24}{program:>8} bytes", "release/pgio");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_kind() {
        let text =
            "//! What.\n\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    // Why.\n    fn b() {}\n}\n";
        let counted = count_lines(text, false);
        assert_eq!(counted, Lines { code: 2, test: 3, comment: 2, blank: 2 });
        assert_eq!(count_lines(text, true), Lines { code: 0, test: 5, comment: 2, blank: 2 });
        // A module in a file of its own is counted there.
        assert_eq!(count_lines("#[cfg(test)]\nmod tests;\nfn a() {}\n", false).code, 3);
    }

    #[test]
    fn files_of_tests_are_known_by_their_names() {
        for test in ["tests/src/lib.rs", "crates/a/src/b/tests.rs", "crates/a/src/fetch_tests.rs"] {
            assert!(is_test_file(Path::new(test)), "{test}");
        }
        assert!(!is_test_file(Path::new("crates/a/src/contest.rs")));
    }
}
