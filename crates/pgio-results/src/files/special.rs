//! Writes files named on the command line. /dev/null, /dev/stdout and pipes are written to, never
//! replaced.
//!
//! A link to one of these is followed only if root or the current user owns it: in /tmp, other
//! users could plant a link to a disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

use super::{Directory, Refused, split, write_durably};

pub fn write_named(path: &Path, text: &str) -> io::Result<()> {
    if !is_special(path)? {
        return write_durably(path, text);
    }
    let (directory, _) = split(path)?;
    Directory::open_to_write(directory)?;
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn is_special(path: &Path) -> io::Result<bool> {
    let Ok(named) = fs::symlink_metadata(path) else { return Ok(false) };
    if ![0, geteuid().as_raw()].contains(&named.uid()) {
        return Ok(false);
    }
    let Ok(found) = fs::metadata(path) else { return Ok(false) };
    let kind = found.file_type();
    if kind.is_block_device() {
        return Err(Refused::NotRegular("a device").into());
    }
    Ok(kind.is_char_device() || kind.is_fifo())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn special_files_are_written_to_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("nothing");
        symlink("/dev/null", &link).unwrap();
        write_named(&link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "our own link is followed");
        let file = dir.path().join("file");
        write_named(&file, "text").unwrap();
        write_named(&file, "again").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "again");
        // A link of another user is replaced like a regular file.
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            write_named(&link, "text").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_file());
        }
    }
}
