//! Printing, and one line of progress where stderr is a terminal.
//!
//! All that is printed passes `printable` here, whatever made it: names and messages of servers, programs
//! and stored files reach the terminal on no other way.

use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;

use crate::experiment::conflicts::Elsewhere;
use crate::printable;
use crate::results::Warning;

/// Of a terminal that does not say how wide it is.
const USUAL_WIDTH: usize = 79;

/// Prints to stdout. A reader that has gone away, such as `head`, is not an error.
pub fn print(text: &str) {
    document(&printable::lines(text));
}

/// As [`print`], for what a renderer has made safe in the way of its own format.
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

/// One line to stderr.
pub fn note(text: &str) {
    eprintln!("pgio: {}", printable::line(text));
}

pub fn warn_all(warnings: &[Warning]) {
    warnings.iter().for_each(warn);
}

/// An interrupted run whose changes do not concern this one.
pub fn left_elsewhere(other: &Elsewhere) {
    note(&format!(
        "an interrupted run left changes elsewhere ({}; {}): `pgio undo` puts them back",
        other.what,
        other.journal.display()
    ));
}

/// A line that is written over again and again, on a terminal only.
#[derive(Debug)]
pub struct Status {
    terminal: bool,
    shown: usize,
}

impl Status {
    pub fn new() -> Status {
        Status { terminal: io::stderr().is_terminal(), shown: 0 }
    }

    /// Columns that a line may have; none without a terminal. Asked each time: it may be resized.
    pub fn width(&self) -> Option<usize> {
        // A line that fills the last column would wrap on some terminals.
        let columns = || match tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 1 => usize::from(size.ws_col) - 1,
            _ => USUAL_WIDTH,
        };
        self.terminal.then(columns)
    }

    pub fn show(&mut self, text: &str) {
        let Some(columns) = self.width() else { return };
        let text: String = printable::line(text).chars().take(columns).collect();
        self.shown = self.shown.min(columns);
        let width = text.chars().count();
        let blank = " ".repeat(self.shown.saturating_sub(width));
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r{text}{blank}").and_then(|()| err.flush());
        self.shown = width;
    }

    /// Takes the line away, so that something lasting can be printed.
    pub fn clear(&mut self) {
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
