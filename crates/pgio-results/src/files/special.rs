//! A file that the user names on the command line may be /dev/null, /dev/stdout or a pipe of the
//! shell's: that is written to, never replaced.
//!
//! A link is only followed to one of these where root or the present user made it: others plant
//! links, in /tmp for example, to a disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

use super::{Refused, write_durably};

pub fn write_named(path: &Path, text: &str) -> io::Result<()> {
    if !is_special(path)? {
        return write_durably(path, text);
    }
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
    fn what_takes_text_is_written_to_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("nothing");
        symlink("/dev/null", &link).unwrap();
        write_named(&link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "our own link is followed");
        let file = dir.path().join("file");
        write_named(&file, "text").unwrap();
        write_named(&file, "again").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "again");
        // One that somebody else made is a name like any other.
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            write_named(&link, "text").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_file());
        }
    }
}
