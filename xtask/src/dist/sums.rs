//! SHA256SUMS: one line for each file of the release, as `sha256sum --check` reads it.
//!
//! The file is made last, of everything that was made before. packaging/oci adds the image's line.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const NAME: &str = "SHA256SUMS";

pub(super) fn make(out: &Path, paths: &[PathBuf]) -> Result<PathBuf> {
    let mut lines = String::new();
    for path in paths {
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
    fn sums_list_exactly_the_files_that_were_made() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        fs::write(&b, "").unwrap();
        fs::write(&a, "abc").unwrap();
        fs::write(dir.path().join("of the release before"), "").unwrap();
        let sums = fs::read_to_string(make(dir.path(), &[a, b]).unwrap()).unwrap();
        assert_eq!(
            sums,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
        );
    }
}
