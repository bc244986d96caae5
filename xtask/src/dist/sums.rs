//! SHA256SUMS: one line for each file of the release, as `sha256sum --check` reads it.
//!
//! The file is made last, from what lies in the directory, so that nothing is released without a sum.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const NAME: &str = "SHA256SUMS";

pub(super) fn make(out: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(out).with_context(|| format!("list {}", out.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(|name| name != NAME) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut lines = String::new();
    for path in &paths {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let name = path.file_name().expect("files have names").to_string_lossy();
        for byte in Sha256::digest(&bytes) {
            // Writing to a string cannot fail.
            let _ = write!(lines, "{byte:02x}");
        }
        let _ = writeln!(lines, "  {name}");
    }
    let sums = out.join(NAME);
    super::write(&sums, &lines)?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_line_and_the_sums_have_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), "").unwrap();
        fs::write(dir.path().join("a"), "abc").unwrap();
        make(dir.path()).unwrap();
        let sums = fs::read_to_string(make(dir.path()).unwrap()).unwrap();
        assert_eq!(
            sums,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
        );
    }
}
