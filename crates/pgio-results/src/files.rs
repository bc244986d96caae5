//! Safe access to files in directories that other users may write to.
//!
//! pgio runs as root on other people's hosts. A name in such a directory may be a link to
//! /etc/shadow, a FIFO that blocks, or a device, and it may become one between check and open.
//! Therefore a [`Directory`] is opened once, and everything below it is opened through its
//! descriptor: links are not followed, only regular files of limited size are read, and writing
//! creates a new file and renames it into place. Whole files are always written by
//! [`write_durably`].
//!
//! This module knows no file formats. Links in the path of the directory itself are the user's
//! choice and are followed, but root does not write through links of other users.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;
use rustix::process::geteuid;

pub use crate::directory::{Directory, walk};
use crate::units::human;

/// Why an existing file is not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is a symbolic link, and pgio does not follow links here: replace it with the file")]
    Link,
    #[error("it is {0} and not a regular file")]
    NotRegular(&'static str),
    #[error(
        "its size is {}, and the limit is {}: it was not written by pgio, or it is damaged",
        human::bytes(*bytes), human::bytes(*limit)
    )]
    TooLarge { bytes: u64, limit: u64 },
    #[error(
        "it has another hard link, so writing to it would change a file elsewhere: replace it with a copy"
    )]
    HardLink,
    #[error("`{0}` is not the name of a file below this directory")]
    Name(String),
    #[error("the link {} belongs to another user, and root does not write through it: name the directory it leads to", .0.display())]
    ForeignLink(PathBuf),
    #[error("it belongs to another user (uid {0})")]
    Owner(u32),
    #[error("other users may write to it")]
    Writable,
}

impl Refused {
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Refused>())
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        io::Error::other(refused)
    }
}

/// Checks that only the current user and root can have written the file.
pub fn check_owner(found: &Stat) -> Result<(), Refused> {
    match found {
        _ if ![0, geteuid().as_raw()].contains(&found.st_uid) => Err(Refused::Owner(found.st_uid)),
        _ if found.st_mode & 0o022 != 0 => Err(Refused::Writable),
        _ => Ok(()),
    }
}

/// Replaces a file atomically; the new file is on disk when this returns. An existing file or link
/// of that name is replaced, never followed.
pub fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let (directory, name) = split(path)?;
    Directory::open_to_write(directory)?.write(Path::new(name), text.as_bytes())
}

/// Splits a path into directory and file name.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(Refused::Name(path.display().to_string()).into());
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}

/// Reads a file as text; a file of more than `most` bytes is an error.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

/// Reads a file; one of more than `most` bytes is an error.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Writes a file named on the command line. /dev/null, /dev/stdout and pipes are written to, never replaced.
///
/// A link to one of these is followed only if root or the current user owns it: in /tmp, other
/// users could plant a link to a disk.
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
    fn root_does_not_write_through_links_of_others() {
        use std::os::unix::fs::lchown;
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [link, elsewhere, ours] = ["link", "elsewhere", "ours"].map(|n| dir.path().join(n));
        fs::create_dir(&elsewhere).unwrap();
        symlink("elsewhere", &link).unwrap();
        symlink(dir.path(), &ours).unwrap();
        write_durably(&ours.join("link/f"), "ours").unwrap();
        lchown(&link, Some(65534), None).unwrap();
        for through in [link, ours.join("elsewhere/../link")] {
            for refused in [
                write_durably(&through.join("g"), "ours").unwrap_err(),
                write_named(&through.join("f"), "ours").unwrap_err(),
                Directory::open_or_create(&through.join("made")).unwrap_err(),
            ] {
                assert!(refused.to_string().contains("belongs to another user"), "{refused}");
            }
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    }

    #[test]
    fn reading_stops_at_the_size_limit_of_a_file() {
        let error = read_text(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 1000 bytes");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "four").unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "four");
        assert!(read_text(&file, 3).is_err());
    }

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
