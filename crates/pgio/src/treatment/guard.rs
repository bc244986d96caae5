//! A shell on a host that undoes a change when pgio ends, however it ends.
//!
//! It sees the end of its stdin, also after kill -9 and when a connection breaks, and then runs
//! the release. The journal stays the authority: the release must not touch changes of others,
//! and must be harmless if nothing remains to release, because it runs after a normal end as well.
//!
//! The same shell applies the change, so that a change that is under way when pgio is
//! killed is finished first and then released; a process of its own would come after the release.
//!
//! A connection may break without an end of stdin, as when the machine of pgio loses its power: then the shell
//! lives for as long as ssh on its host believes in the connection. `pgio undo` ends it first
//! ([`end_leftover_guard`]), or its release might one day undo somebody's later change.
//!
//! Used if an abandoned change would harm the host: taken memory, a slow link.
//! The shell also answers for verification, which saves a process each time.

use std::thread;
use std::time::{Duration, Instant};

use super::error::TreatmentError;
use crate::host::exec::{CommandLine, Exec};
use crate::host::{Host, Shell};

const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Caches may have to be written back.
const APPLY_LIMIT: Duration = Duration::from_mins(10);

/// How long the shell of a killed run may take to release.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// What a guard, or another shell that changes the same, holds; by this word in its script it is found on its host.
/// Only one run at a time holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// `what` is a kind of change, `of` the part of the host that it is about.
    pub(crate) fn new(what: &str, of: &str) -> Mark {
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        Mark(format!("pgio-guard-{}-{};", plain(what), plain(of)))
    }

    /// A line of a script that gives its shell the mark.
    pub(crate) fn as_comment(&self) -> String {
        format!("# {}", self.0)
    }
}

/// Shell text.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    pub(crate) mark: &'a Mark,
    /// Functions that the other parts call.
    pub(crate) functions: &'a str,
    pub(crate) apply: &'a str,
    pub(crate) release: &'a str,
    /// Answers the question in `$ask`, which is never `apply`.
    pub(crate) answer: &'a str,
}

#[derive(Debug)]
pub(crate) struct Guard {
    shell: Shell,
    host: String,
}

impl Guard {
    /// Starts the shell, which applies the change.
    pub(crate) fn apply(host: &Host, script: &Script<'_>) -> Result<Guard, TreatmentError> {
        let mut guard = Guard::start(host, script)?;
        guard.run_apply()?;
        Ok(guard)
    }

    fn start(host: &Host, script: &Script<'_>) -> Result<Guard, TreatmentError> {
        let prelude = prelude(script);
        let Script { apply, answer, .. } = script;
        // A subshell, since the text may exit.
        let body = format!(
            "if [ \"$ask\" = apply ]; then\n(\n{apply}\n) 2>&1\necho \"status $?\"\nelse\n{answer}\nfi"
        );
        Ok(Guard { shell: Shell::start(host, &prelude, &body)?, host: host.name().to_owned() })
    }

    fn run_apply(&mut self) -> Result<(), TreatmentError> {
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

    pub(crate) fn ask(&mut self, question: &str) -> Result<String, TreatmentError> {
        Ok(self.shell.ask(question, ANSWER_LIMIT)?.text)
    }
}

/// For `pgio undo`: returns when no guard of a killed run can release any more, and no other shell with its mark can
/// change anything. A guard whose stdin has ended releases now; others are killed without their release, which the
/// undo does itself.
pub(crate) fn end_leftover_guard(host: &Host, mark: &Mark) -> Result<(), TreatmentError> {
    let deadline = Instant::now() + RELEASE_LIMIT;
    loop {
        let found = processes_with(host, &mark.0)?;
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let kill = CommandLine::new("sh").args(["-c", "kill -KILL \"$@\"", "sh"]);
            // One may have ended meanwhile.
            host.output(&kill.args(&found).timeout(LOOK_LIMIT))?;
        }
        thread::sleep(POLL);
    }
}

/// Without the last line a signal would end the shell without its trap, SIGPIPE included, which it
/// gets when pgio is killed while it answers.
fn prelude(script: &Script<'_>) -> String {
    let Script { mark, functions, release, .. } = script;
    let mark = mark.as_comment();
    format!(
        "{mark}\n{functions}\nrelease() {{\n{release}\n}}\ntrap release EXIT\ntrap exit HUP INT PIPE TERM"
    )
}

/// The numbers of the processes with this word, which holds a `-` and no other special character of a pattern.
pub(crate) fn processes_with(host: &Host, mark: &str) -> Result<Vec<String>, TreatmentError> {
    // The pattern must not match itself among the arguments of this search.
    let pattern = mark.replacen('-', "[-]", 1);
    let search = "grep -ls -e \"$1\" /proc/[0-9]*/cmdline";
    let search = CommandLine::new("sh").args(["-c", search, "sh", &pattern]).timeout(LOOK_LIMIT);
    let output = host.output(&search)?.stdout;
    let pid = |path: &str| Some(path.strip_prefix("/proc/")?.strip_suffix("/cmdline")?.to_owned());
    Ok(output.lines().filter_map(pid).collect())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn guard(apply: &str, release: &str) -> Guard {
        let answer = "echo \"$ask!\"";
        let mark = &Mark::new("test", release);
        let script = Script { mark, functions: "", apply, release, answer };
        Guard::start(&Host::local(), &script).unwrap()
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
        guard.run_apply().unwrap();
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
        let error = guard.run_apply().unwrap_err().to_string();
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
    fn a_guard_whose_connection_hangs_is_ended_without_its_release() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released");
        let release = format!("echo gone >{}", file.display());
        // Nobody closes its stdin.
        let guard = guard(":", &release);
        let (host, mark) = (Host::local(), Mark::new("test", &release));
        assert_eq!(processes_with(&host, &mark.0).unwrap().len(), 1);
        let other = Mark::new("test", &release[..release.len() - 1]);
        assert!(processes_with(&host, &other.0).unwrap().is_empty());
        end_leftover_guard(&host, &mark).unwrap();
        assert!(processes_with(&host, &mark.0).unwrap().is_empty());
        drop(guard);
        assert!(!file.exists());
    }

    #[test]
    fn a_guard_releases_when_its_reader_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released");
        let release = format!("echo gone >{}", file.display());
        let mark = &Mark::new("test", &release);
        let script = Script { mark, functions: "", apply: "", release: &release, answer: "" };
        let script = format!("{}\nread go\necho one\necho two", prelude(&script));
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
