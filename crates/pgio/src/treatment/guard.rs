//! A shell on a host that undoes a change when pgio ends, however it ends.
//!
//! It sees the end of its stdin, also after kill -9 and when a connection breaks, and then runs
//! the release. The journal stays the authority: the release must not touch changes of others,
//! and must be harmless if nothing remains to release, because it runs after a normal end as well.
//!
//! The same shell applies the change, so that a change that is under way when pgio is
//! killed is finished first and then released; a process of its own would come after the release.
//!
//! Used if an abandoned change would harm the host: taken memory, a slow link.
//! The shell also answers for verification, which saves a process each time.

use std::time::Duration;

use super::error::TreatmentError;
use crate::host::{Host, Shell};

const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Caches may have to be written back.
const APPLY_LIMIT: Duration = Duration::from_mins(10);

/// Shell text.
#[derive(Debug)]
pub(super) struct Script<'a> {
    /// Functions that the other parts call.
    pub(super) functions: &'a str,
    pub(super) apply: &'a str,
    pub(super) release: &'a str,
    /// Answers the question in `$ask`, which is never `apply`.
    pub(super) answer: &'a str,
}

#[derive(Debug)]
pub(super) struct Guard {
    shell: Shell,
    host: String,
}

impl Guard {
    /// Starts the shell; nothing is applied yet.
    pub(super) fn start(host: &Host, script: &Script<'_>) -> Result<Guard, TreatmentError> {
        let prelude = prelude(script.functions, script.release);
        let Script { apply, answer, .. } = script;
        // A subshell, since the text may exit.
        let body = format!(
            "if [ \"$ask\" = apply ]; then\n(\n{apply}\n) 2>&1\necho \"status $?\"\nelse\n{answer}\nfi"
        );
        Ok(Guard { shell: Shell::start(host, &prelude, &body)?, host: host.name().to_owned() })
    }

    pub(super) fn apply(&mut self) -> Result<(), TreatmentError> {
        let text = self.shell.ask("apply", APPLY_LIMIT)?.text;
        let (output, status) = text.trim_end().rsplit_once("status ").unwrap_or((&text, "unknown"));
        match status {
            "0" => Ok(()),
            _ => Err(TreatmentError::Refused(format!(
                "the change on host {} failed with status {status}: {}",
                self.host,
                output.trim()
            ))),
        }
    }

    pub(super) fn ask(&mut self, question: &str) -> Result<String, TreatmentError> {
        Ok(self.shell.ask(question, ANSWER_LIMIT)?.text)
    }
}

/// Without the last line a signal would end the shell without its trap, SIGPIPE included, which it
/// gets when pgio is killed while it answers.
fn prelude(functions: &str, release: &str) -> String {
    format!(
        "{functions}\nrelease() {{\n{release}\n}}\ntrap release EXIT\ntrap exit HUP INT PIPE TERM"
    )
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn guard(apply: &str, release: &str) -> Guard {
        let answer = "echo \"$ask!\"";
        Guard::start(&Host::local(), &Script { functions: "", apply, release, answer }).unwrap()
    }

    #[test]
    fn a_guard_applies_answers_and_releases_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let write = |what: &str| format!("echo {what} >{}; exit 0", file.display());
        let state = || std::fs::read_to_string(&file).unwrap_or_default();
        let mut guard = guard(&write("ours"), &write("gone"));
        assert_eq!(guard.ask("here").unwrap(), "here!\n");
        assert_eq!(state(), "");
        guard.apply().unwrap();
        assert_eq!(
            (guard.ask("still").unwrap().as_str(), state().as_str()),
            ("still!\n", "ours\n")
        );
        drop(guard);
        assert_eq!(state(), "gone\n");
    }

    #[test]
    fn a_failed_apply_reports_the_reason() {
        let mut guard = guard("echo because >&2; exit 3; echo never", ":");
        let error = guard.apply().unwrap_err().to_string();
        assert_eq!(error, "the change on host local failed with status 3: because");
        assert_eq!(guard.ask("here").unwrap(), "here!\n", "and it goes on");
    }

    #[test]
    fn a_change_under_way_is_finished_and_then_released() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let apply = format!("sleep 0.3; echo ours >>{}", file.display());
        let release = format!("echo gone >>{}", file.display());
        let mut guard = guard(&apply, &release);
        assert!(guard.shell.ask("apply", Duration::from_millis(50)).is_err(), "too late");
        drop(guard);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "ours\ngone\n");
    }

    #[test]
    fn a_guard_releases_when_its_reader_is_gone() {
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
