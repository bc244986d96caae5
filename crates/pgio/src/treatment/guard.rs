//! A `sh` on a host that puts something back when this program is gone, however it went.
//!
//! It sees the end of its stdin, also after kill -9 and when a connection breaks, and then runs
//! the release. The journal stays the authority: the release must leave alone what is not ours,
//! and be harmless where there is nothing to release, for it also runs when all is well.
//!
//! It pays where what is left behind harms the host: memory that is taken, a link that is slow.
//! The same shell answers what verification asks, which spares a process of ours each time.

use std::time::Duration;

use super::TreatmentError;
use crate::host::{Host, Shell};

const ANSWER_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Guard(Shell);

impl Guard {
    /// All shell text: functions that the others use, the release, and what answers `$ask`.
    pub(super) fn start(
        host: &Host,
        functions: &str,
        release: &str,
        body: &str,
    ) -> Result<Guard, TreatmentError> {
        let prelude = prelude(functions, release);
        Ok(Guard(Shell::start(host, &prelude, body)?))
    }

    pub(super) fn ask(&mut self, question: &str) -> Result<String, TreatmentError> {
        Ok(self.0.ask(question, ANSWER_LIMIT)?.text)
    }
}

/// Without its last line a signal would end the shell past its trap: that of a broken pipe, too,
/// where we are killed while it answers.
fn prelude(functions: &str, release: &str) -> String {
    format!(
        "{functions}\nrelease() {{\n{release}\n}}\ntrap release EXIT\ntrap exit HUP INT PIPE TERM"
    )
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn it_answers_and_releases_when_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released");
        let release = format!("echo gone >{}", file.display());
        let mut guard = Guard::start(&Host::local(), "", &release, "echo \"$ask!\"").unwrap();
        assert_eq!(guard.ask("here").unwrap(), "here!\n");
        assert!(!file.exists());
        drop(guard);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "gone\n");
    }
    #[test]
    fn it_releases_when_nobody_is_there_to_be_answered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released");
        let release = format!("echo gone >{}", file.display());
        let script = format!("{}\nread go\necho one\necho two", prelude("", &release));
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "gone\n");
    }
}
