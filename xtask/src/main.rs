//! Chores of the workspace: `cargo xtask generate`, `check`, `count`, `features` and `dist`; see the library.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{artifacts, count, dist, features, generate, stale};

#[derive(Debug, Parser)]
#[command(about = "Chores of the pgio workspace")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Write what is generated and remove what no longer is
    Generate,
    /// Name what is stale; exit 1 if anything is
    Check,
    /// Count lines, files, words and crates, and with --times how long builds and tests take
    Count(count::Options),
    /// Show how far each feature spreads, or check pgio without each
    Features(features::Options),
    /// Make what users install: static binaries, archive, Debian package, SBOM, checksums
    Dist(dist::Options),
}

fn main() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is below the root");
    let command = Cli::parse().command;
    let artifacts = artifacts()?;
    match command {
        Command::Count(options) => count::run(root, &options).map(|()| ExitCode::SUCCESS),
        Command::Dist(options) => dist::run(root, &options).map(|()| ExitCode::SUCCESS),
        Command::Features(options) => features::run(root, &options).map(|()| ExitCode::SUCCESS),
        Command::Generate => generate(root, &artifacts).map(|()| ExitCode::SUCCESS),
        Command::Check => {
            let stale = stale(root, &artifacts)?;
            for path in &stale {
                eprintln!("{} is stale: run `cargo xtask generate`", path.display());
            }
            Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
