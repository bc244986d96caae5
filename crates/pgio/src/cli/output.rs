//! Prints, asks, and shows progress in lines that are rewritten if stderr is a terminal.
//!
//! Everything printed passes `printable` here: names and messages of servers, programs
//! and stored files reach the terminal in no other way.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;

use crate::experiment::admin::InterruptedRun;
use pgio_results::Warning;

/// Width of a terminal that does not report one.
const DEFAULT_WIDTH: usize = 79;
const DEFAULT_HEIGHT: usize = 24;

/// The first error of stdout. Global, because stdout is.
static STDOUT_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints to stdout.
pub fn print(text: &str) {
    document(&printable::lines(text));
}

/// Prints a document that its renderer has already escaped for its format. The command continues after an error, since
/// it may have changes to undo; [`take_stdout_error`] returns it at the end.
pub fn document(text: &str) {
    keep_error(write_to(&mut io::stdout().lock(), text));
}

/// Prints help, the version or a usage error; clap knows which stream it belongs to.
pub(crate) fn usage(message: &clap::Error) {
    let printed = message.print();
    if !message.use_stderr() {
        keep_error(unless_closed(printed.and_then(|()| io::stdout().flush())));
    }
}

fn keep_error(written: io::Result<()>) {
    if let Err(error) = written {
        STDOUT_ERROR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Writes everything.
fn write_to(out: &mut impl Write, text: &str) -> io::Result<()> {
    unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A closed pipe, as with `head`, is not an error.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns the first error of stdout, which lacks a part of the output then.
pub(crate) fn take_stdout_error() -> Option<io::Error> {
    STDOUT_ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

pub fn line(text: &str) {
    print(&format!("{text}\n"));
}

pub fn warn(warning: &Warning) {
    note(&format!("warning: {warning}"));
}

/// Prints one line to stderr.
pub fn note(text: &str) {
    to_stderr(&format!("pgio: {}\n", printable::line(text)));
}

/// Writes to stderr. Errors are ignored: a command whose stderr nobody reads still has to undo its changes, and
/// `eprintln!` would panic.
pub(crate) fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
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

/// Asks the user on the terminal; only the word yes, in upper or lower case, confirms.
pub(crate) fn confirmed(question: &str) -> bool {
    print(&format!("{question} Type yes: "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim().eq_ignore_ascii_case("yes")
}

/// A few lines that are rewritten in place, on a terminal only.
///
/// indicatif redraws them, also after the terminal was resized. Ratatui would take the whole screen, or a part
/// of fixed height, and with it the messages that stay; nothing here needs widgets or keys.
#[derive(Debug)]
pub(crate) struct Status {
    terminal: bool,
    shown: Option<ProgressBar>,
}

impl Status {
    pub(crate) fn new() -> Status {
        // Such a terminal cannot move its cursor.
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Status { terminal: io::stderr().is_terminal() && !dumb, shown: None }
    }

    /// Returns the columns a line may have; none without a terminal. Read each time, as terminals are resized.
    pub(crate) fn width(&self) -> Option<usize> {
        // A line that fills the last column would wrap on some terminals. Without rows, indicatif does not
        // believe the columns either.
        let columns = || match tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 1 && size.ws_row > 0 => usize::from(size.ws_col) - 1,
            _ => DEFAULT_WIDTH,
        };
        self.terminal.then(columns)
    }

    /// Returns the rows of the terminal.
    pub(crate) fn height(&self) -> usize {
        match tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_row > 0 => size.ws_row.into(),
            _ => DEFAULT_HEIGHT,
        }
    }

    pub(crate) fn show(&mut self, text: &str) {
        self.show_all(&[text]);
    }

    /// Shows these lines in place of the former ones.
    pub(crate) fn show_all<T: AsRef<str>>(&mut self, lines: &[T]) {
        let Some(columns) = self.width() else { return };
        let fits =
            |line: &T| -> String { printable::line(line.as_ref()).chars().take(columns).collect() };
        let text = lines.iter().map(fits).collect::<Vec<_>>().join("\n");
        self.shown.get_or_insert_with(new_progress_bar).set_message(text);
    }

    /// Erases the lines, so that permanent text can be printed.
    pub(crate) fn clear(&mut self) {
        self.shown.take().iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn new_progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").expect("a fixed template");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let error = write_to(&mut full, "text\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        write_to(&mut writer, "text\n").unwrap();
    }
}
