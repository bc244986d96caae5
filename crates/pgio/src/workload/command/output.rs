//! The output of a program: all of it, a status line while it runs, and its last lines if it failed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use pgio_results::model::Metric;

/// Maximum size of a status line.
const STATUS_BYTES: usize = 72;
/// Number of last lines shown.
const TAIL_LINES: usize = 5;
/// Lines shown from an error on, such as LINE and HINT; at most.
const ERROR_CONTEXT_LINES: usize = 4;
const MAX_CHARACTERS: usize = 600;

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

/// The first line that reports an error, with the lines that explain it, and the last lines: a program may
/// go on for a while after what made it fail.
pub(super) fn cause_of_failure(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = lines.len().saturating_sub(TAIL_LINES);
    let end = last_lines(text);
    match lines.iter().position(|line| reports_an_error(line)) {
        Some(first) if first < tail => {
            let until = tail.min(first + ERROR_CONTEXT_LINES);
            let head = lines[first..until].join(" / ");
            let gap = if until < tail { " / …" } else { "" };
            format!("{}{gap} / {end}", printable::truncate(&head, MAX_CHARACTERS))
        }
        // The error is among the last lines: begin with it.
        Some(first) => {
            printable::truncate(&lines[first..].join(" / "), 2 * MAX_CHARACTERS).into_owned()
        }
        None => end,
    }
}

/// As PostgreSQL, its programs and most others write it.
fn reports_an_error(line: &str) -> bool {
    ["ERROR:", "FATAL:", "PANIC:", "error:", "fatal:", "Error:"].iter().any(|w| line.contains(w))
}

/// The last lines that are not empty, on one line.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join(" / ");
    let length = last.chars().count();
    if length > MAX_CHARACTERS {
        format!("… {}", last.chars().skip(length - MAX_CHARACTERS).collect::<String>())
    } else {
        last
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

    #[test]
    fn a_failure_begins_with_its_cause() {
        let cause = "pgbench: error: client 0 aborted: ERROR:  relation \"t\" does not exist";
        let explained = format!("{cause}\nLINE 1: SELECT 1 FROM t;\n         ^");
        assert!(
            cause_of_failure(&explained).starts_with(cause),
            "{}",
            cause_of_failure(&explained)
        );
        let progress: String = (0..9).map(|n| format!("progress: {n}.0 s\n")).collect();
        let cause_shown = cause_of_failure(&format!("{progress}{explained}\n{progress}"));
        assert!(
            cause_shown.starts_with(&format!("{cause} / LINE 1: SELECT 1 FROM t; / ^")),
            "{cause_shown}"
        );
        assert!(cause_shown.ends_with("/ … / progress: 4.0 s / progress: 5.0 s / progress: 6.0 s / progress: 7.0 s / progress: 8.0 s"), "{cause_shown}");
        assert_eq!(cause_of_failure("why\nso\n"), "why / so");
        let long = cause_of_failure(&format!("ERROR: {}\n{progress}", "x".repeat(1 << 20)));
        assert!(long.starts_with("ERROR: xx") && long.len() < 3 * MAX_CHARACTERS, "{}", long.len());
    }

    #[test]
    fn last_lines_are_few_and_short() {
        assert_eq!(last_lines("1\n2\n\n3\n4\n 5 \n6\n\n"), "2 / 3 / 4 / 5 / 6");
        assert_eq!(last_lines(""), "");
        let long = last_lines(&"x".repeat(5000));
        assert_eq!(long.chars().count(), MAX_CHARACTERS + 2);
    }
}
