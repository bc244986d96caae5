//! `--resume` with more blocks than the experiment started with.
//!
//! Only `blocks` and `max_blocks` may differ, and only grow: blocks of the same seed begin with the same
//! ones, so stored trials keep their places. The numbers come from the file, or from `--blocks` and `--max-blocks`,
//! which change the stored file's text.

use super::edit::with_key;
use super::error::ResumeError;
use crate::config::experiment::Experiment;
use pgio_results::store::Manifest;

/// Numbers of blocks given on the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockLimits {
    pub blocks: Option<u32>,
    pub max_blocks: Option<u32>,
}

/// The keys of `[experiment]` that may grow.
pub(super) const EXTENDABLE_KEYS: [&str; 2] = ["experiment.blocks", "experiment.max_blocks"];

impl BlockLimits {
    /// Returns the text of an experiment file with these numbers.
    pub(super) fn apply_to(self, text: &str) -> Result<String, ResumeError> {
        let mut text = text.to_owned();
        for (key, value) in [("blocks", self.blocks), ("max_blocks", self.max_blocks)] {
            if let Some(value) = value {
                let changed = with_key(&text, key, &value.to_string());
                text = changed.ok_or_else(|| ResumeError::NotInsertable { key: key.to_owned() })?;
            }
        }
        Ok(text)
    }
}

/// Describes what grew; refuses what became smaller.
pub(super) fn check_growth(
    e: &Experiment,
    manifest: &Manifest,
) -> Result<Vec<String>, ResumeError> {
    let blocks = ("blocks", manifest.blocks, e.blocks);
    let limit = manifest.rules.max_blocks;
    let max_blocks = limit.map(|was| ("max_blocks", was, e.rules.max_blocks));
    let mut found = Vec::new();
    for (key, was, is) in [Some(blocks), max_blocks].into_iter().flatten() {
        if is < was {
            return Err(ResumeError::Smaller { key, was, is });
        }
        if is > was {
            found.push(format!("{key} was {was} and is {is}"));
        }
    }
    Ok(found)
}

/// Updates the manifest, which is written with the note that the run was resumed.
pub(super) fn update_manifest(e: &Experiment, manifest: &mut Manifest) {
    manifest.blocks = e.blocks;
    if let Some(limit) = &mut manifest.rules.max_blocks {
        *limit = e.rules.max_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "# as planned\n[experiment] # of mine\nblocks = 6 # enough?\n[[condition]]\nname = \"a\"\n";

    fn put(text: &str, blocks: Option<u32>, max_blocks: Option<u32>) -> Result<String, String> {
        BlockLimits { blocks, max_blocks }.apply_to(text).map_err(|e| e.to_string())
    }

    #[test]
    fn extend_changes_block_numbers_and_keeps_the_rest_of_the_file() {
        let changed = put(FILE, Some(12), Some(40)).unwrap();
        assert_eq!(
            changed,
            "# as planned\n[experiment] # of mine\nmax_blocks = 40\nblocks = 12\n[[condition]]\nname = \"a\"\n"
        );
        assert_eq!(put(FILE, None, None).unwrap(), FILE);
    }

    #[test]
    fn extend_refuses_a_file_without_an_experiment_section() {
        for text in ["experiment = { blocks = 6 }\n", "[[condition]]\nname = \"a\"\n", "no toml"] {
            let error = put(text, Some(12), None).unwrap_err();
            assert!(error.contains("before --resume"), "{error}");
        }
    }
}
