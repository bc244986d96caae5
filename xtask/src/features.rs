//! The features of pgio: does it build without each of them, and how far does each spread?
//!
//! A feature is a directory in crates/pgio/src/features. A source file outside it spreads the feature if its code names
//! it: in an identifier or in a text. Comments and tests do not count.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::build::run as run_program;
use crate::count;

const FEATURES: &str = "crates/pgio/src/features";
const LIST: &str = "crates/pgio/src/features.rs";
/// The program without any.
const ALL: &str = "all";
/// It measures pgio, and is not built with it.
const BENCH: &str = "crates/pgio-bench/";

/// Sets that are checked in one day.
const A_DAY: usize = 3;

/// Words that the core has for other things, such as a thread in the background, the page cache, symbolic links and runs of
/// an experiment: these features are named where the whole text is theirs, or a path.
const ORDINARY: &[&str] =
    &["background", "cache", "device", "link", "live", "memory", "runs", "shell", "store"];
/// Crates that only one feature uses.
const OWN_CRATES: &[(&str, &str)] =
    &[("drivers", "crates/pgio-link/"), ("mail", "crates/pgio-mail/")];

/// The most files that may name a feature. `device` is also a key of servers and treatments.
fn most(feature: &str) -> usize {
    if ["device", "drbd", "drivers"].contains(&feature) { 8 } else { 3 }
}

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Check that pgio and its tests compile without each feature, and without all
    #[arg(long)]
    check: bool,
    /// Check only the program without this feature, or without `all`
    #[arg(long, value_name = "FEATURE", requires = "check", conflicts_with = "today")]
    without: Option<String>,
    /// Check only without each of three, which change from day to day
    #[arg(long, requires = "check")]
    today: bool,
    /// Also run the unit tests and the smoke suite of what is left
    #[arg(long, requires = "check")]
    test: bool,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let features = features(root)?;
    if options.check {
        return check(root, &features, options);
    }
    println!("source files outside its directory that name a feature");
    for feature in &features {
        let files = spread(root, feature)?;
        println!("{feature:<12}{:>4} of at most {}", files.len(), most(feature));
        files.iter().for_each(|file| println!("    {}", file.display()));
    }
    Ok(())
}

fn features(root: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(root.join(FEATURES)).context("read the features")?;
    let names = entries.map(|entry| {
        let path = entry?.path();
        Ok(path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
    });
    names.collect()
}

/// Checks pgio without each feature, and without all.
fn check(root: &Path, features: &BTreeSet<String>, options: &Options) -> Result<()> {
    let mut left_out: Vec<&str> = features.iter().map(String::as_str).collect();
    if options.today {
        let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / (24 * 60 * 60);
        let first = day as usize * A_DAY;
        left_out = (first..first + A_DAY).map(|n| left_out[n % left_out.len()]).collect();
    } else {
        left_out.push(ALL);
    }
    if let Some(without) = &options.without {
        left_out.retain(|name| name == without);
        if left_out.is_empty() {
            bail!("`{without}` is no feature; the features are {features:?} and {ALL}");
        }
    }
    for without in left_out {
        let kept = features.iter().filter(|name| without != ALL && *name != without);
        let mut set: Vec<&str> = kept.map(String::as_str).collect();
        set.push("download");
        let mut cargo = Command::new("cargo");
        let what = if options.test { "test" } else { "check" };
        cargo.current_dir(root).args([what, "--quiet", "--package", "pgio", "--lib"]);
        cargo.args(["--test", "smoke"]);
        if without == ALL {
            // The program without others also shows what a new one needs.
            set.push("dummy");
            cargo.args(["--test", "dummy"]);
        }
        cargo.args(["--no-default-features", "--features"]).arg(set.join(","));
        run_program(&mut cargo).with_context(|| format!("pgio without {without}"))?;
        println!("without {without}: {what} ok");
    }
    Ok(())
}

/// Returns the source files that name a feature, but for those of its own and the list of all.
fn spread(root: &Path, feature: &str) -> Result<Vec<PathBuf>> {
    let own = [format!("{FEATURES}/{feature}/"), format!("{FEATURES}/{feature}.rs")];
    let own_crates = OWN_CRATES.iter().filter(|(name, _)| *name == feature);
    let own: Vec<&str> =
        own.iter().map(String::as_str).chain(own_crates.map(|(_, path)| *path)).collect();
    let mut found = Vec::new();
    count::find(&root.join("crates"), "rs", &mut |path, text| {
        let below = path.strip_prefix(root).unwrap_or(path);
        let name = below.to_string_lossy();
        let is_own =
            own.iter().any(|own| name.starts_with(own)) || name == LIST || name.starts_with(BENCH);
        if !is_own && !count::is_test_file(below) && names(text, feature) {
            found.push(below.to_owned());
        }
    })?;
    found.sort();
    Ok(found)
}

/// Whether code, without comments and tests, has the word, also as a part of an identifier.
fn names(text: &str, feature: &str) -> bool {
    let is_test_module = |(at, attribute): &(usize, &str)| {
        let module = text[at + attribute.len()..].lines().next().unwrap_or_default();
        let is_module = module.starts_with("mod ") || module.contains(") mod ");
        is_module && module.ends_with('{')
    };
    let end = text.match_indices("#[cfg(test)]\n").find(is_test_module).map(|(at, _)| at);
    text[..end.unwrap_or(text.len())]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .any(|line| {
            let line = line.to_lowercase();
            if ORDINARY.contains(&feature) {
                let names = [format!("\"{feature}\""), format!("features::{feature}")];
                return names.iter().any(|name| line.contains(name));
            }
            line.split(|c: char| !c.is_alphanumeric()).any(|word| word == feature)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_in_code_and_not_in_comments_or_tests() {
        for text in [
            "fn drbd_step() {}",
            "let x = \"of DRBD\";",
            "use crate::drbd::A;",
            "#[cfg(test)]\nmod tests;\nuse crate::drbd::A;",
        ] {
            assert!(names(text, "drbd"), "{text}");
        }
        for text in [
            "// drbd",
            "fn drbdsetup() {}",
            "fn a() {}\n#[cfg(test)]\nmod tests {\ndrbd }",
            "#[cfg(test)]\npub(super) mod tests {\ndrbd }",
        ] {
            assert!(!names(text, "drbd"), "{text}");
        }
        assert!(!names("let link = fs::read_link(path);", "link"));
        assert!(names("if kind == \"link\" {}", "link"));
    }

    #[test]
    fn no_feature_spreads_over_the_core() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for feature in features(root).unwrap() {
            let found = spread(root, &feature).unwrap();
            assert!(found.len() <= most(&feature), "{feature} is named in {found:?}");
        }
    }
}
