//! What a program that generates load prints: all of it, and a status line while it runs.

use std::collections::BTreeMap;
use std::fmt;

use pgio_results::model::Metric;
use serde::{Deserialize, Serialize};

/// Maximum size of a status line.
const STATUS_BYTES: usize = 72;

/// The complete output of a failed program.
#[derive(Debug, Clone, Default)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

/// Output and metrics of a program.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProgramOutput {
    /// Empty if it failed.
    pub metrics: BTreeMap<String, Metric>,
    pub stdout: String,
    pub stderr: String,
    /// The number of its sessions; the largest number seen at once if they changed all the time.
    pub sessions: usize,
    /// The number of sessions without its options that began meanwhile, as the same role in the same database.
    pub unproven: usize,
}

/// The beginning of an output line, small enough to be copied about with every sign of progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusLine {
    bytes: [u8; STATUS_BYTES],
    length: usize,
}

impl StatusLine {
    pub fn new(line: &str) -> StatusLine {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let mut status = StatusLine::default();
        for c in line.chars().map(clean) {
            let end = status.length + c.len_utf8();
            if end > STATUS_BYTES {
                break;
            }
            c.encode_utf8(&mut status.bytes[status.length..end]);
            status.length = end;
        }
        status
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Default for StatusLine {
    fn default() -> StatusLine {
        StatusLine { bytes: [0; STATUS_BYTES], length: 0 }
    }
}

impl fmt::Debug for StatusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatusLine({:?})", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_characters_and_stays_one() {
        assert_eq!(StatusLine::new("a\tb\u{7}c").text(), "a b c");
        let long = "ü".repeat(60);
        assert_eq!(StatusLine::new(&long).text(), "ü".repeat(STATUS_BYTES / 2));
        assert_eq!(StatusLine::default().text(), "");
    }
}
