//! Reasons why results cannot be stored or read. Messages name the file and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST_SCHEMA, MAX_NAME_BYTES};
use crate::files::Refused;
use crate::wire::WireError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} already contains an experiment; specify another directory with --out", .0.display())]
    Occupied(PathBuf),
    #[error("{} contains no pgio results: {missing} is missing", dir.display())]
    NotResults { dir: PathBuf, missing: &'static str },
    #[error("cannot parse {}", path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
    #[error("{} has format {found}, but this pgio reads {MANIFEST_SCHEMA}; use the version of pgio that wrote it", path.display())]
    ManifestVersion { path: PathBuf, found: String },
    #[error(
        "{} was removed, renamed or replaced while the experiment ran, so no further trial can be stored: rerun the experiment, or continue a renamed directory with --resume",
        .0.display()
    )]
    Gone(PathBuf),
    #[error("{place} is longer than {limit} bytes: it was not written by pgio, or it is damaged")]
    LongLine { place: String, limit: u64 },
    #[error(
        "the trial has a record of {bytes} bytes, more than the {limit} that pgio reads from {}: use fewer sessions, or a duration instead of a number of transactions",
        path.display()
    )]
    LongRecord { path: PathBuf, bytes: usize, limit: u64 },
    #[error("{} has a name of {bytes} bytes, more than the {MAX_NAME_BYTES} that pgio writes: it is damaged", path.display())]
    LongName { path: PathBuf, bytes: usize },
    #[error("{place} names the file `{name}` for its samples, which must be below series/")]
    SeriesName { place: String, name: String },
    #[error(
        "cannot trust the commands in {}, because {why}: check the stored experiment.toml, then specify your own experiment file before --resume, or take ownership (chown, chmod go-w)",
        path.display()
    )]
    Untrusted { path: PathBuf, why: Refused },
    #[error(transparent)]
    Wire(#[from] WireError),
}

pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: path.to_owned(), source }
}
