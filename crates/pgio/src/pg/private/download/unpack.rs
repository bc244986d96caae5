//! Unpacks a build: a jar, which is a zip, with one tar inside, compressed by xz.
//!
//! The caller has checked the hash of the bytes. Paths that lead out of the directory are refused
//! nevertheless.

use std::io;
use std::path::Path;

use lzma_rust2::XzReader;
use rawzip::{CompressionMethod, ZipArchive};

/// Three times the size of the largest compressed tar of a build.
const MAX_BYTES: usize = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the archive is not a zip file")]
    Zip(#[from] rawzip::Error),
    #[error("the archive contains no .txz file")]
    NoTar,
    #[error("cannot decompress the .txz file in the archive: {0}")]
    Inflate(String),
    #[error("cannot write the unpacked files")]
    Tar(#[source] io::Error),
}

/// Creates the directory. Owner, times and extended attributes are not restored.
pub(super) fn unpack(jar: &[u8], into: &Path) -> Result<(), UnpackError> {
    let compressed = compressed_tar(jar)?;
    let mut tar = tar::Archive::new(XzReader::new(compressed.as_slice(), false));
    tar.set_preserve_mtime(false);
    tar.unpack(into).map_err(UnpackError::Tar)
}

fn compressed_tar(jar: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let zip = ZipArchive::from_slice(jar)?;
    for entry in zip.entries() {
        let entry = entry?;
        if !entry.file_path().as_ref().ends_with(b".txz") {
            continue;
        }
        let data = zip.get_entry(entry.wayfinder())?.data();
        return match entry.compression_method() {
            CompressionMethod::STORE => Ok(data.to_owned()),
            CompressionMethod::DEFLATE => {
                miniz_oxide::inflate::decompress_to_vec_with_limit(data, MAX_BYTES)
                    .map_err(|e| UnpackError::Inflate(e.to_string()))
            }
            other => Err(UnpackError::Inflate(format!("method {other:?}"))),
        };
    }
    Err(UnpackError::NoTar)
}

/// Like a build: a manifest and a tar of `bin/postgres` (0700), `lib/libpq.so` (a symbolic link)
/// and two more files, made by Python's zipfile, lzma (CRC64) and tarfile.
#[cfg(test)]
pub(super) const SAMPLE: &[u8] = include_bytes!("sample.jar");

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_modes_and_links_are_unpacked() {
        let dir = tempfile::TempDir::new().unwrap();
        let into = dir.path().join("server");
        unpack(SAMPLE, &into).unwrap();
        let mode = |name: &str| fs::metadata(into.join(name)).unwrap().permissions().mode() & 0o777;
        let modes = ["bin", "bin/postgres", "lib/libpq.so.5.18", "share/postgresql/README"];
        assert_eq!(modes.map(mode), [0o700, 0o700, 0o600, 0o640]);
        assert_eq!(fs::read_to_string(into.join("lib/libpq.so")).unwrap(), "a library\n");
        let link = fs::read_link(into.join("lib/libpq.so")).unwrap();
        assert_eq!(link, Path::new("libpq.so.5.18"));
    }

    #[test]
    fn an_archive_that_is_not_a_build_is_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        let refused = |jar: &[u8]| unpack(jar, &dir.path().join("server")).unwrap_err();
        assert!(matches!(refused(b""), UnpackError::Zip(_)));
        assert!(matches!(refused(&SAMPLE[..SAMPLE.len() - 30]), UnpackError::Zip(_)));
        // An empty zip: its end record alone.
        let empty = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
        assert!(matches!(refused(&empty), UnpackError::NoTar));
        // A bit in the compressed tar.
        let mut damaged = SAMPLE.to_owned();
        damaged[300] ^= 1;
        assert!(matches!(refused(&damaged), UnpackError::Inflate(_) | UnpackError::Tar(_)));
    }
}
