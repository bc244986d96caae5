//! Chores of the workspace: `cargo xtask generate` and `cargo xtask check`; see the library.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{artefacts, generate, stale};

#[derive(Debug, Parser)]
#[command(about = "Chores of the pgio workspace")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Write what is generated and remove what no longer is
    Generate,
    /// Name what is stale; exit 1 if anything is
    Check,
}

fn main() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is below the root");
    let artefacts = artefacts()?;
    match Cli::parse().command {
        Command::Generate => generate(root, &artefacts).map(|()| ExitCode::SUCCESS),
        Command::Check => {
            let stale = stale(root, &artefacts)?;
            for path in &stale {
                eprintln!("{} is stale: run `cargo xtask generate`", path.display());
            }
            Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
