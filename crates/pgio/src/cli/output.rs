//! Prints, and shows one progress line if stderr is a terminal.
//!
//! Everything printed passes `printable` here: names and messages of servers, programs
//! and stored files reach the terminal in no other way.

use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;

use crate::experiment::conflicts::InterruptedRun;
use pgio_results::Warning;

/// Width of a terminal that does not report one.
const USUAL_WIDTH: usize = 79;

/// Prints to stdout. A closed pipe, as with `head`, is not an error.
pub fn print(text: &str) {
    document(&printable::lines(text));
}

/// Prints a document that its renderer has already escaped for its format.
pub fn document(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub fn line(text: &str) {
    print(&format!("{text}\n"));
}

pub fn warn(warning: &Warning) {
    note(&format!("warning: {warning}"));
}

/// Prints one line to stderr.
pub fn note(text: &str) {
    eprintln!("pgio: {}", printable::line(text));
}

pub fn warn_all(warnings: &[Warning]) {
    warnings.iter().for_each(warn);
}

/// Warns of an interrupted run whose changes do not affect this one.
pub fn warn_unfinished(other: &InterruptedRun) {
    note(&format!(
        "an interrupted run left unrelated changes in place ({}; {}); `pgio undo` undoes them",
        other.what,
        other.journal.display()
    ));
}

/// A status line that is rewritten in place, on a terminal only.
#[derive(Debug)]
pub(super) struct Status {
    terminal: bool,
    shown: usize,
}

impl Status {
    pub(super) fn new() -> Status {
        Status { terminal: io::stderr().is_terminal(), shown: 0 }
    }

    /// Returns the columns a line may have; none without a terminal. Read each time, as terminals are resized.
    pub(super) fn width(&self) -> Option<usize> {
        // A line that fills the last column would wrap on some terminals.
        let columns = || match tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 1 => usize::from(size.ws_col) - 1,
            _ => USUAL_WIDTH,
        };
        self.terminal.then(columns)
    }

    pub(super) fn show(&mut self, text: &str) {
        let Some(columns) = self.width() else { return };
        let text: String = printable::line(text).chars().take(columns).collect();
        self.shown = self.shown.min(columns);
        let width = text.chars().count();
        let blank = " ".repeat(self.shown.saturating_sub(width));
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r{text}{blank}").and_then(|()| err.flush());
        self.shown = width;
    }

    /// Erases the line, so that permanent text can be printed.
    pub(super) fn clear(&mut self) {
        if self.terminal && self.shown > 0 {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r{}\r", " ".repeat(self.shown)).and_then(|()| err.flush());
            self.shown = 0;
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}
