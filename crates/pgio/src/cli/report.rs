//! `pgio report`: tells a stored experiment again, or holds two against each other.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Outcome, output};
use crate::analysis::across::across;
use crate::analysis::{self, Analysis};
use crate::report;
use crate::results::store;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What compare or demo wrote; of two directories the second is compared with the first
    #[arg(required = true, num_args = 1..=2, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(args: &Args) -> Outcome {
    let text = match args.dirs.as_slice() {
        [a, b] => {
            let across = across(&store::read(a)?, &store::read(b)?);
            match args.format {
                Format::Text => report::text::render(&report::across_document(&across)),
                Format::Json => report::json::across::render(&across),
            }
        }
        dirs => {
            let mut told = String::new();
            for dir in dirs {
                let analysis = analyse(dir)?;
                told += &match args.format {
                    Format::Text => text(&analysis),
                    Format::Json => report::json::render(&analysis),
                };
            }
            told
        }
    };
    output::print(&text);
    Ok(())
}

pub(super) fn analyse(dir: &Path) -> Result<Analysis, store::StoreError> {
    Ok(analysis::analyse(&store::read(dir)?))
}

/// The comparison and what speaks against it, without the secondary metrics.
pub(super) fn short(analysis: &Analysis) -> String {
    let mut document = report::document(analysis);
    document.tables.truncate(1);
    report::text::render(&document)
}

pub(super) fn text(analysis: &Analysis) -> String {
    report::text::render(&report::document(analysis))
}
