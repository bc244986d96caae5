//! Marks around an answer in a stream into which others may write as well: the login shell of a host prints what its
//! start-up files say, and a forced command what it likes.
//!
//! What is outside the marks is never parsed. Next: [`super::shell`] and [`super::ssh`] print and look for them.

use std::hash::{BuildHasher, RandomState};

/// The kinds of marks around an answer.
pub(super) const BEGIN: &str = "begin";
pub(super) const END: &str = "end";

/// The marks of one session.
#[derive(Debug, Clone)]
pub(super) struct Marks(String);

impl Marks {
    /// Returns marks that no output contains by chance.
    pub(super) fn new() -> Marks {
        // RandomState takes its keys from the system's random numbers.
        Marks(format!("{:016x}", RandomState::new().hash_one(0)))
    }

    /// Returns shell code that has to come before [`Marks::print`]. The marks never stand in the code as they are
    /// printed: a login shell may print the command that it is to run.
    pub(super) fn define(&self) -> String {
        format!("pgio_mark={}", self.0)
    }

    /// Returns the arguments of a `printf` that prints a mark of this kind, `text`, and a line break.
    pub(super) fn print(kind: &str, text: &str) -> String {
        format!("'pgio-{kind}-%s %s\\n' \"$pgio_mark\" {text}")
    }

    /// Returns what a stream has between its marks. A start-up file can lead both streams of a session into one, which
    /// then has the marks of both around it.
    pub(super) fn between<'a>(&self, stream: &'a str) -> Option<&'a str> {
        let (_, rest) = stream.rsplit_once(&format!("{}\n", self.printed(BEGIN)))?;
        Some(rest.split_once(&self.printed(END))?.0)
    }

    /// Returns the mark as it is printed.
    pub(super) fn printed(&self, kind: &str) -> String {
        format!("pgio-{kind}-{} ", self.0)
    }
}
