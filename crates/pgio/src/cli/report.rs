//! `pgio report`: tells a stored experiment again.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Outcome, output};
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
    /// Directories that compare or demo wrote
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(args: &Args) -> Outcome {
    for dir in &args.dirs {
        let analysis = analyse(dir)?;
        output::print(&match args.format {
            Format::Text => text(&analysis),
            Format::Json => report::json::render(&analysis),
        });
    }
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
