//! Files in directories that other users may write to.
//!
//! pgio runs as root on hosts of other people. A name in such a directory may be a link to
//! /etc/shadow, a FIFO that never answers, or a device, and it may become one between a look and an
//! open. So a [`Directory`] is opened once and everything below it by that descriptor: links are not
//! followed, what is read is a regular file of bounded size, and what is written gets a new file that
//! is renamed into place. [`write_durably`] is the one way to write a whole file.
//!
//! This module knows no format and no domain. Links above the directory are the user's choice and
//! are followed.

mod directory;
mod special;
mod text;

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::fs::Stat;
use rustix::process::geteuid;

pub use self::directory::Directory;
pub use self::special::write_named;
pub use self::text::read_text;
use crate::units::human;

/// Why a file is not opened although it exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is a symbolic link, and links are not followed here: replace it with the file")]
    Link,
    #[error("it is {0} and not a regular file")]
    NotRegular(&'static str),
    #[error(
        "it has {} and at most {} are read: it was not written by pgio, or it is damaged",
        human::bytes(*bytes), human::bytes(*limit)
    )]
    TooLarge { bytes: u64, limit: u64 },
    #[error(
        "it has another name elsewhere (a hard link), and what is written here would change it there: copy the file"
    )]
    HardLink,
    #[error("`{0}` is no name of a file below this directory")]
    Name(String),
    #[error("it belongs to another user (uid {0})")]
    Owner(u32),
    #[error("users other than its owner may write to it")]
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

/// Whether nobody but the present user and root can have written it.
pub fn check_ours(found: &Stat) -> Result<(), Refused> {
    match found {
        _ if ![0, geteuid().as_raw()].contains(&found.st_uid) => Err(Refused::Owner(found.st_uid)),
        _ if found.st_mode & 0o022 != 0 => Err(Refused::Writable),
        _ => Ok(()),
    }
}

/// Replaces a file: it is the old one or the new one, never a part, and on disk when this returns.
/// Whatever has the name is replaced and not followed.
pub fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let (directory, name) = split(path)?;
    Directory::open(directory)?.write(Path::new(name), text.as_bytes())
}

/// The directory and the name in it.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(Refused::Name(path.display().to_string()).into());
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}
