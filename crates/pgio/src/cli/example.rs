//! `pgio example`: prints the example experiments.

use super::exit::{Failure, Outcome, USAGE};
use super::output;
use crate::feature;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the example; without it, list all
    name: Option<String>,
}

/// Names of the files under examples/ that belong to no feature, and their text.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    example!("versions"),
    example!("checksums"),
    example!("wal-compression"),
    example!("checkpoints"),
    example!("archive"),
    example!("two-servers"),
    example!("two-standbys"),
    example!("wal-device"),
    example!("my-tables"),
    example!("managed-server"),
    example!("ci-gate"),
    example!("demo"),
    example!("sync-commit"),
    example!("sync-commit-quick"),
    example!("commit-10000"),
    example!("noisy-neighbor"),
    example!("pgbench"),
    example!("sysbench"),
    example!("command-presets"),
    example!("hot-spot"),
    ("pgio.conf", include_str!("../../shipped/pgio.conf")),
];

/// Names and text of all examples.
fn examples() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    EXAMPLES.iter().chain(feature::all().iter().flat_map(|feature| feature.examples))
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.name {
        None => {
            for (name, text) in examples() {
                let title =
                    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
                output::line(&format!("{name:20} {title}"));
            }
            Ok(())
        }
        Some(wanted) => {
            let names: Vec<&str> = examples().map(|(name, _)| *name).collect();
            let text = text_of(wanted).ok_or_else(|| {
                Failure::message(
                    USAGE,
                    format!("unknown example `{wanted}` (known: {})", names.join(", ")),
                )
            })?;
            output::print(text);
            Ok(())
        }
    }
}

/// The extension may be left out.
fn text_of(name: &str) -> Option<&'static str> {
    let bare = name.strip_suffix(".toml").unwrap_or(name);
    examples().find(|(name, _)| *name == bare).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[cfg(feature = "all")]
    fn every_example_file_is_shipped() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        // Directories hold results, not files to run.
        let mut names = Vec::new();
        for file in files.filter(|path| path.is_file()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(text_of(name) == Some(&*fs::read_to_string(&file).unwrap()), "{name}");
            names.push(name.strip_suffix(".toml").unwrap_or(name).to_owned());
        }
        let mut shipped: Vec<&str> = examples().map(|(name, _)| *name).collect();
        shipped.sort_unstable();
        names.sort();
        assert_eq!(shipped, names);
        assert!(text_of("demo.toml").is_some() && text_of("demo.toml") == text_of("demo"));
    }
}
