//! `pgio example`: prints the example experiments.

use super::exit::{Failure, Outcome, USAGE};
use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the example; without it, list all
    name: Option<String>,
}

/// File names under examples/ and their text.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("demo", include_str!("../../../../examples/demo.toml")),
    ("sync-commit", include_str!("../../../../examples/sync-commit.toml")),
    ("sync-commit-quick", include_str!("../../../../examples/sync-commit-quick.toml")),
    ("commit-10000", include_str!("../../../../examples/commit-10000.toml")),
    ("drbd-arms", include_str!("../../../../examples/drbd-arms.toml")),
    ("drbd-impact", include_str!("../../../../examples/drbd-impact.toml")),
    ("drbd-protocols", include_str!("../../../../examples/drbd-protocols.toml")),
    ("drbd-protocols-full", include_str!("../../../../examples/drbd-protocols-full.toml")),
    ("io-throttle", include_str!("../../../../examples/io-throttle.toml")),
    ("page-cache", include_str!("../../../../examples/page-cache.toml")),
    ("link-delay", include_str!("../../../../examples/link-delay.toml")),
    ("device", include_str!("../../../../examples/device.toml")),
    ("pgbench", include_str!("../../../../examples/pgbench.toml")),
    ("sysbench", include_str!("../../../../examples/sysbench.toml")),
    ("command-presets", include_str!("../../../../examples/command-presets.toml")),
    ("ext4-options", include_str!("../../../../examples/ext4-options.toml")),
    ("hot-spot", include_str!("../../../../examples/hot-spot.toml")),
    ("mail-ext4", include_str!("../../../../examples/mail-ext4.toml")),
    ("mail-drbd", include_str!("../../../../examples/mail-drbd.toml")),
    ("dovecot.sh", include_str!("../../../../examples/dovecot.sh")),
    ("pgio.conf", include_str!("../../../../examples/pgio.conf")),
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
            let bare = wanted.strip_suffix(".toml").unwrap_or(wanted);
            let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
            let (_, text) = EXAMPLES.iter().find(|(name, _)| *name == bare).ok_or_else(|| {
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
