//! `pgio example`: prints the example experiments.

use super::exit::{Failure, Outcome, USAGE};
use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the example; without it, list all
    name: Option<String>,
}

/// An experiment of examples/, named without its extension.
macro_rules! experiment {
    ($name:literal) => {
        ($name, include_str!(concat!("../../shipped/", $name, ".toml")))
    };
}

/// Names of the files under examples/ and their text.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    experiment!("versions"),
    experiment!("checksums"),
    experiment!("wal-compression"),
    experiment!("checkpoints"),
    experiment!("archive"),
    experiment!("two-servers"),
    experiment!("two-standbys"),
    experiment!("wal-device"),
    experiment!("background-work"),
    experiment!("backup"),
    experiment!("replica-reads"),
    experiment!("my-tables"),
    experiment!("managed-server"),
    experiment!("ci-gate"),
    experiment!("demo"),
    experiment!("sync-commit"),
    experiment!("sync-commit-quick"),
    experiment!("commit-10000"),
    experiment!("drbd-arms"),
    experiment!("drbd-impact"),
    experiment!("drbd-protocols"),
    experiment!("drbd-protocols-full"),
    experiment!("io-throttle"),
    experiment!("noisy-neighbor"),
    experiment!("page-cache"),
    experiment!("link-delay"),
    experiment!("device"),
    experiment!("pgbench"),
    experiment!("sysbench"),
    experiment!("command-presets"),
    experiment!("ext4-options"),
    experiment!("hot-spot"),
    experiment!("screening"),
    experiment!("mail-ext4"),
    experiment!("mail-drbd"),
    ("dovecot.sh", include_str!("../../shipped/dovecot.sh")),
    ("pgio.conf", include_str!("../../shipped/pgio.conf")),
];

pub(super) fn run(args: &Args) -> Outcome {
    match &args.name {
        None => {
            for (name, text) in EXAMPLES {
                let title =
                    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
                output::line(&format!("{name:20} {title}"));
            }
            Ok(())
        }
        Some(wanted) => {
            let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
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
    EXAMPLES.iter().find(|(name, _)| *name == bare).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
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
        let mut shipped: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        shipped.sort_unstable();
        names.sort();
        assert_eq!(shipped, names);
        assert!(text_of("demo.toml").is_some() && text_of("demo.toml") == text_of("demo"));
    }
}
