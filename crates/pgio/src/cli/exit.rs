//! Exit codes, and the conversion of an error into one sentence and its code.

use std::process::ExitCode;

use super::output;
pub use crate::exit_code::*;
use crate::experiment::application::error::RunError;
use crate::pg::words;

pub fn help() -> String {
    let lines = CODES.iter().map(|(code, meaning)| format!("  {code:>3}  {meaning}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

/// An error for the user, with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code, error: error.into() }
    }

    pub fn message(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, error: anyhow::Error::msg(message.into()) }
    }

    pub fn interrupted() -> Failure {
        Failure::message(INTERRUPTED, "stopped")
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    /// Prepends what was being done to the cause.
    pub fn context(self, doing: impl Into<String>) -> Failure {
        Failure { code: self.code, error: self.error.context(doing.into()) }
    }

    /// Returns one sentence that names each cause once.
    pub fn sentence(&self) -> String {
        words::sentence(self.error.as_ref())
    }

    pub fn print(&self) -> ExitCode {
        output::to_stderr(&format!("pgio: {}\n", printable::lines(&self.sentence())));
        ExitCode::from(self.code)
    }
}

/// The result of a command.
pub type Outcome = Result<(), Failure>;

/// Turns success into a failure if stdout lacks a part of the output.
pub fn check_stdout(outcome: Outcome) -> Outcome {
    outcome?;
    output::take_stdout_error()
        .map_or(Ok(()), |error| Err(Failure::new(FILES, error).context("cannot write to stdout")))
}

impl<E: HasExitCode> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { code: error.code(), error: error.into() }
    }
}

/// A run that leaves changes in place reports it itself, before the next run is refused for it.
impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let code = match &error {
            RunError::Open(source) => source.code(),
            RunError::Resume(source) => source.code(),
            RunError::Conflict(source) => source.code(),
            RunError::State(source) => source.code(),
            RunError::Store(source) => source.code(),
            RunError::Live(source) => source.code(),
            RunError::ChangesRemain { source, .. } if source.code() == UNFINISHED => {
                return Failure {
                    code: UNFINISHED,
                    error: anyhow::Error::msg(words::sentence(source)),
                };
            }
            RunError::ChangesRemain { journal, source } => {
                let text = format!("{}; {journal}", words::sentence(source));
                return Failure::message(UNFINISHED, text);
            }
            RunError::Interrupted => INTERRUPTED,
            RunError::Failing(_) | RunError::NoneValid(_) | RunError::Outgrown(_) => TRIAL,
        };
        Failure { code, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::JobError;
    use crate::experiment::application::error::{OpenError, ResumeError};
    use crate::experiment::live::LiveError;
    use crate::experiment::run::NoneValid;
    use crate::experiment::state::StateError;
    use crate::experiment::undo::UndoError;
    use crate::pg::private::{self, DownloadError};
    use crate::treatment::TreatmentError;
    use crate::treatment::journal::JournalError;
    use crate::workload::EngineError;
    use pgio_connect::ConnectError;

    fn failure(error: impl Into<Failure>) -> (u8, String) {
        let failure = error.into();
        (failure.code(), failure.sentence())
    }

    #[test]
    fn the_outcome_of_a_run_decides_its_exit_code() {
        assert_eq!(failure(RunError::Interrupted), (INTERRUPTED, "stopped".to_owned()));
        let waited = DownloadError::Stopped { holder: "process 7 (pgio demo)".to_owned() };
        let expected =
            "stopped while waiting for process 7 (pgio demo), which downloads the same PostgreSQL";
        assert_eq!(failure(private::Error::from(waited)), (INTERRUPTED, expected.to_owned()));
        let failing = RunError::Failing("no room".to_owned());
        let expected =
            "three trials failed in a row: no room; remove the cause and continue with --resume";
        assert_eq!(failure(failing), (TRIAL, expected.to_owned()));
        assert_eq!(failure(RunError::NoneValid(NoneValid::default())).0, TRIAL);
        assert_eq!(failure(RunError::Open(OpenError::UnknownDeviceHost)).0, REFUSED);
        let smaller = ResumeError::Smaller { key: "blocks", was: 6, is: 4 };
        assert_eq!(failure(RunError::Resume(smaller)).0, USAGE);
        let changed = RunError::Resume(ResumeError::Changed("another server".to_owned()));
        assert_eq!(failure(changed), (REFUSED, "cannot continue: another server".to_owned()));
        assert_eq!(failure(RunError::State(StateError::NoHome)).0, REFUSED);
    }

    #[test]
    fn invalid_connection_parameters_exit_as_usage_errors() {
        let env = pgio_connect::Env { user: "dba".to_owned(), ..pgio_connect::Env::default() };
        for text in ["host='", "sslmode=sometimes", "service=none", "gssencmode=require"] {
            let error = || pgio_connect::resolve(text, &env).unwrap_err();
            assert_eq!(failure(error()).0, USAGE, "{text}");
            assert_eq!(failure(LiveError::Connect(error())).0, USAGE, "{text}");
        }
        let unreachable = || ConnectError::TimedOut { at: "h:5432".to_owned(), seconds: 10 };
        assert_eq!(failure(EngineError::Connect(unreachable())).0, CONNECT);
    }

    #[test]
    fn the_cause_is_in_the_sentence_once() {
        let config = TreatmentError::Config("delay = `long` is no duration".to_owned());
        let job = JobError::Treatment { file: "x.toml".to_owned(), source: Box::new(config) };
        assert_eq!(failure(job), (USAGE, "x.toml: delay = `long` is no duration".to_owned()));
    }

    #[test]
    fn an_undo_that_leaves_changes_in_place_fails() {
        let left = |others_undone| failure(UndoError::ChangesRemain { others_undone });
        let rest = "changes could not be undone (see above) and stay in the journal; fix the cause and rerun `pgio undo`";
        assert_eq!(left(false), (UNFINISHED, format!("the {rest}")));
        assert_eq!(left(true), (UNFINISHED, format!("some {rest}")));
        let cluster = failure(UndoError::Cluster { directory: "/tmp/pgio-1".into() });
        let expected = "the abandoned private PostgreSQL in /tmp/pgio-1 cannot be removed now; rerun `pgio undo`";
        assert_eq!(cluster, (UNFINISHED, expected.to_owned()));
        // A journal that cannot be written is a matter of files, except where its steps are undone already.
        let unwritable = || {
            let (path, source) = ("journal/7".into(), std::io::ErrorKind::StorageFull.into());
            JournalError::Io { doing: "write", path, source }
        };
        assert_eq!(failure(UndoError::Journal(unwritable())).0, FILES);
        let (code, sentence) = failure(UndoError::Unwritten(unwritable().into()));
        assert_eq!(code, UNFINISHED);
        let expected = "everything was restored, but the journal could not be updated; make room on its file system and rerun `pgio undo`: cannot write the journal journal/7: no storage space";
        assert_eq!(sentence, expected);
    }

    #[test]
    fn a_run_that_leaves_changes_in_place_fails() {
        let left = || JournalError::Unfinished("journal/7".into());
        let left_by =
            |source| RunError::ChangesRemain { journal: left(), source: Box::new(source) };
        let (code, sentence) = failure(left_by(LiveError::Engine(EngineError::Stopped)));
        assert_eq!(code, UNFINISHED);
        let stopped = failure(EngineError::Stopped).1;
        assert_eq!(sentence, format!("{stopped}; {}", left()));
        // A journal that the error names already is not repeated.
        let treatment = TreatmentError::Journal(left());
        let condition = "on".to_owned();
        let live = LiveError::Treatment { condition, source: Box::new(treatment) };
        let (code, sentence) = failure(left_by(live));
        assert_eq!(code, UNFINISHED);
        assert_eq!(sentence.matches("journal/7").count(), 1, "{sentence}");
    }
}
