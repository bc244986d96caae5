//! Exit codes, and the conversion of an error into one sentence and its code.

use std::process::ExitCode;

use pgio_mail::MailError;

use super::output;
use crate::archive::ArchiveError;
use crate::config::{ConfigError, ResolveError};
use crate::dataset::DatasetError;
use crate::experiment::admin::ConflictError;
use crate::experiment::application::JobError;
use crate::experiment::application::error::{OpenError, ResumeError, RunError, SingleError};
use crate::experiment::ballast::BallastError;
use crate::experiment::live::LiveError;
use crate::experiment::slob::SlobError;
use crate::experiment::state::StateError;
use crate::experiment::undo::UndoError;
use crate::host::exec::ExecError;
use crate::host::own_dir::OwnDirError;
use crate::pg::control::ControlError;
use crate::pg::private::{self, DownloadError};
use crate::pg::server::ServerError;
use crate::pg::words;
use crate::telemetry::sysstat;
use crate::treatment::TreatmentError;
use crate::treatment::journal::JournalError;
use crate::workload::EngineError;
use crate::workload::command::CommandError;
use crate::workload::device::DeviceError;
use crate::workload::driver::ServeError;
use crate::workload::drivers::{DriverError, Fault};
use pgio_connect::ConnectError;
use pgio_link::LinkError;
use pgio_report::sides::SideError;
use pgio_results::store::StoreError;

/// Every code with its meaning, for `--help`, the manual and docs/KEYS.md.
pub const CODES: &[(u8, &str)] = &[
    (OK, "success"),
    (FAILED, "any other failure"),
    (USAGE, "the command line or a file is wrong; nothing was done"),
    (CONNECT, "the server cannot be reached or refuses the login"),
    (
        REFUSED,
        "the server or the data set does not meet the requirements, or another run is at work there; nothing was changed",
    ),
    (
        TRIAL,
        "run: the trial failed or is invalid; compare: a condition has no valid trial, or the run gave up; the message or trials.jsonl has the reason",
    ),
    (
        UNFINISHED,
        "an interrupted run, or an undo, left changes in place: run `pgio undo` first; or another run is changing the server: wait for it",
    ),
    (FILES, "files cannot be read or written"),
    (
        WORSE,
        "--gate: a condition is worse than the baseline by more than the margin, or failed in more trials; --fail-if: a rule is broken",
    ),
    (
        UNDECIDED,
        "--gate, --fail-if: the results cannot tell whether a condition is worse by more than the margin",
    ),
    (INTERRUPTED, "stopped by Ctrl-C or a signal; all changes undone"),
];

pub const OK: u8 = 0;
/// Any failure without a code of its own.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const CONNECT: u8 = 3;
pub const REFUSED: u8 = 4;
pub const TRIAL: u8 = 5;
pub const UNFINISHED: u8 = 6;
pub const FILES: u8 = 7;
pub const WORSE: u8 = 8;
pub const UNDECIDED: u8 = 9;
pub const INTERRUPTED: u8 = 130;

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

/// Maps errors of the library to exit codes.
trait HasExitCode: std::error::Error + Send + Sync + 'static {
    fn code(&self) -> u8;
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

macro_rules! coded {
    ($($error:ty => $code:expr),* $(,)?) => {
        $(impl HasExitCode for $error {
            fn code(&self) -> u8 {
                let code: fn(&$error) -> u8 = $code;
                code(self)
            }
        })*
    };
}

coded! {
    ConfigError => |_| USAGE,
    ResolveError => |_| USAGE,
    ConnectError => |e| match e {
        ConnectError::ConnectString(_)
        | ConnectError::BadValue { .. }
        | ConnectError::Unsupported { .. }
        | ConnectError::ServiceNotFound { .. }
        | ConnectError::ServiceFile { .. }
        | ConnectError::NoUser => USAGE,
        ConnectError::ServiceFileUnreadable { .. } => FILES,
        // The enum is non-exhaustive: what is added to it happens on a connection.
        _ => CONNECT,
    },
    ServerError => |_| REFUSED,
    DatasetError => |e| match e {
        DatasetError::Stopped { .. } => INTERRUPTED,
        DatasetError::Connect(_) => CONNECT,
        DatasetError::Incomplete { .. } => FAILED,
        DatasetError::NoSchema | DatasetError::NotOurs { .. } | DatasetError::NotOwner { .. }
        | DatasetError::Untrusted(_) | DatasetError::NoCreate { .. } | DatasetError::NoTablespace(_)
        | DatasetError::TablespacePrivilege { .. } | DatasetError::BlockSize(_) | DatasetError::ReadOnly
        | DatasetError::Busy | DatasetError::NoSpace { .. } | DatasetError::UnknownSpace { .. }
        | DatasetError::Removed(_) | DatasetError::NotRemoved { .. } | DatasetError::DiskFull { .. }
        | DatasetError::InUse { .. } | DatasetError::Canceled { .. } | DatasetError::Privilege { .. }
        | DatasetError::DependedOn { .. } | DatasetError::Layout { .. } | DatasetError::MissingRows { .. }
        | DatasetError::NoDataset | DatasetError::Missing { .. } | DatasetError::Mixed { .. }
        | DatasetError::TooSmall { .. } | DatasetError::Differs { .. } | DatasetError::Altered { .. }
        | DatasetError::NoScanTable | DatasetError::Damaged { .. } | DatasetError::NoIndex { .. }
        | DatasetError::Version { .. } | DatasetError::NotRecreatable { .. }
        | DatasetError::Postgres { .. } => REFUSED,
    },
    EngineError => |e| match e {
        EngineError::Stopped => INTERRUPTED,
        EngineError::Connect(source) => source.code(),
        EngineError::Device(source) => source.code(),
        EngineError::Command(source) => source.code(),
        EngineError::Drivers(source) => source.code(),
        EngineError::TooFewConnections { .. } | EngineError::TooFewDescriptors { .. }
        | EngineError::Privilege { .. } | EngineError::Pooled | EngineError::Plan { .. } | EngineError::NoScanTable
        | EngineError::Published(_) | EngineError::Clock(_) | EngineError::NotOurs(_)
        | EngineError::Untrusted(_) => REFUSED,
        EngineError::Postgres { .. } | EngineError::Wire { .. } | EngineError::Slice(_) | EngineError::NotInForce(_)
        | EngineError::ClockSetBack | EngineError::Thread { .. } | EngineError::Panicked | EngineError::Overdue(_)
        | EngineError::Unsuited(_) | EngineError::Server(_) | EngineError::Mail(_) => TRIAL,
    },
    ServeError => |e| match e {
        ServeError::Link(LinkError::Unreachable { .. }) | ServeError::Lost(_) => CONNECT,
        ServeError::Link(_) => REFUSED,
        ServeError::Stopped => INTERRUPTED,
    },
    DriverError => |e| match e {
        DriverError::Failed { fault: Fault::Connect, .. } | DriverError::OtherServer { .. } => CONNECT,
        DriverError::Failed { fault: Fault::Work, .. } | DriverError::Lost { .. } => TRIAL,
        DriverError::Failed { fault: Fault::Requirements, .. } | DriverError::MoreThanSessions { .. }
        | DriverError::Missing { .. } | DriverError::NoProgram { .. } | DriverError::Refused(_)
        | DriverError::Ended(_) | DriverError::UnexpectedOrder | DriverError::Exec(_)
        | DriverError::Link(_) => REFUSED,
    },
    CommandError => |e| match e {
        CommandError::Missing { .. } | CommandError::NotOurs(_) | CommandError::NotInForce { .. }
        | CommandError::Refused(_) => REFUSED,
        CommandError::Host(_) => CONNECT,
        CommandError::Connect(source) => source.code(),
        CommandError::Stopped => INTERRUPTED,
        CommandError::Failed { .. } | CommandError::TimedOut { .. } | CommandError::Metric { .. }
        | CommandError::Unproven { .. } | CommandError::Elsewhere(_) | CommandError::Postgres { .. } => TRIAL,
    },
    MailError => |_| TRIAL,
    DeviceError => |e| match e {
        DeviceError::Place(_) => USAGE,
        DeviceError::NoFio { .. } | DeviceError::Refused { .. } => REFUSED,
        DeviceError::Stopped => INTERRUPTED,
        DeviceError::Host(_) => CONNECT,
        DeviceError::Failed { .. } | DeviceError::Answer { .. } => FAILED,
    },
    TreatmentError => |e| match e {
        TreatmentError::Config(_) => USAGE,
        TreatmentError::Connect(source) => source.code(),
        // Changes that stay in place have an error of their own.
        TreatmentError::Journal(source) => source.code(),
        TreatmentError::ChangedSince { .. } | TreatmentError::Several(_) => UNFINISHED,
        TreatmentError::Stopped => INTERRUPTED,
        TreatmentError::Refused(_) | TreatmentError::OtherServer(_) | TreatmentError::Postgres { .. }
        | TreatmentError::NotInForce { .. } | TreatmentError::Restart(_) | TreatmentError::Dataset(_)
        | TreatmentError::Host(_) | TreatmentError::Rights(_) => REFUSED,
    },
    OwnDirError => |e| match e {
        OwnDirError::Io { .. } | OwnDirError::Create { .. } => FILES,
        OwnDirError::Owner { .. } | OwnDirError::Writable { .. } | OwnDirError::Kind { .. } => REFUSED,
    },
    JournalError => |e| match e {
        JournalError::Io { .. } | JournalError::Lock { .. } => FILES,
        JournalError::Directory(source) => source.code(),
        JournalError::Unfinished(_) | JournalError::Busy { .. } | JournalError::Broken { .. } => UNFINISHED,
    },
    LiveError => |e| match e {
        LiveError::Treatment { source, .. } | LiveError::OtherServer(source) => source.code(),
        LiveError::Store(_) => FILES,
        LiveError::Connect(source) => source.code(),
        LiveError::ConnectionLost(_) => CONNECT,
        LiveError::OtherRuns(runs) if runs.iter().any(|run| run.changes_server) => UNFINISHED,
        LiveError::OtherRuns(_) => REFUSED,
        LiveError::StoredSlice => FILES,
        LiveError::Server(_) | LiveError::OtherVersion { .. } | LiveError::Cycles { .. } | LiveError::Joint { .. }
        | LiveError::Weave(_) | LiveError::ShortSlices(_) => REFUSED,
        LiveError::Engine(source) => source.code(),
         LiveError::Settings { source, .. } | LiveError::Room { source, .. } => source.code(),
        LiveError::Dataset(source) => source.code(),
        LiveError::Postgres(_) => TRIAL,
    },
    SlobError => |e| match e {
        SlobError::Dataset(source) => source.code(),
        SlobError::Resolve(source) => source.code(),
        SlobError::Engine(source) => source.code(),
    },
    StateError => |e| match e {
        StateError::NoHome => REFUSED,
        StateError::Directory(source) => source.code(),
        StateError::InUse { .. } | StateError::Find { .. } | StateError::Lock { .. } => FILES,
    },
    ConflictError => |e| match e {
        ConflictError::State(source) => source.code(),
        ConflictError::Journal(source) => source.code(),
    },
    UndoError => |e| match e {
        UndoError::State(source) => source.code(),
        UndoError::Journal(source) => source.code(),
        UndoError::Connect(source) => source.code(),
        UndoError::NoSuchRun { .. } | UndoError::Ambiguous(..) => USAGE,
        UndoError::StillRunning(_) | UndoError::Unwritten(_) | UndoError::Unresolved(_)
        | UndoError::ChangesRemain { .. } | UndoError::Cluster { .. } => UNFINISHED,
    },
    BallastError => |e| match e {
        BallastError::State(source) => source.code(),
        BallastError::Journal(source) => source.code(),
        BallastError::Treatment(source) | BallastError::AfterRelease(source) => source.code(),
        BallastError::Undo(source) => source.code(),
    },
    JobError => |e| match e {
        JobError::Config(source) => source.code(),
        JobError::OwnMetric { .. } | JobError::NoMetric { .. } | JobError::NotMeasured { .. }
        | JobError::SameSetting { .. } => USAGE,
        JobError::Treatment { source, .. } => source.code(),
    },
    OpenError => |e| match e {
        OpenError::UnknownHost { .. } | OpenError::NoMailHost(_) => USAGE,
        OpenError::UnknownDeviceHost | OpenError::UnknownControlHost | OpenError::NoDevice { .. }
        | OpenError::Writes { .. } => REFUSED,
        OpenError::Background { source, .. } => source.code(),
        OpenError::Program(_) => FAILED,
        OpenError::Treatment(source) => source.code(),
        OpenError::Live(source) => source.code(),
        OpenError::Conflict(source) => source.code(),
        OpenError::Host(source) => source.code(),
        OpenError::Private(source) => source.code(),
        OpenError::State(source) => source.code(),
        OpenError::Connect(source) => source.code(),
        OpenError::Control(source) => source.code(),
        OpenError::Resolve(source) => source.code(),
        OpenError::Dataset(source) => source.code(),
        OpenError::Slob(source) => source.code(),
        OpenError::Engine(source) => source.code(),
        OpenError::Device(source) => source.code(),
        OpenError::Command(source) => source.code(),
        OpenError::Mail(source) => source.code(),
    },
    SingleError => |e| match e {
        SingleError::Connect(source) => source.code(),
        SingleError::Conflict(source) => source.code(),
        SingleError::Live(source) => source.code(),
        SingleError::Slob(source) => source.code(),
    },
    ResumeError => |e| match e {
        ResumeError::Store(source) => source.code(),
        ResumeError::Job(source) => source.code(),
        ResumeError::Read { .. } | ResumeError::OtherVersion { .. } => FILES,
        ResumeError::NotStored { .. }
        | ResumeError::OneOfSeveral { .. }
        | ResumeError::NoSuchWorkload { .. }
        | ResumeError::OtherExperiment { .. }
        | ResumeError::NotInsertable { .. }
        | ResumeError::Smaller { .. } => USAGE,
        ResumeError::Changed(_) => REFUSED,
    },
    ArchiveError => |e| match e {
        ArchiveError::Connect(source) => source.code(),
        ArchiveError::Postgres { .. } => FAILED,
        ArchiveError::Newer { .. } | ArchiveError::Missing { .. } | ArchiveError::NotOurs { .. }
        | ArchiveError::OtherOwner { .. } | ArchiveError::Untrusted(_) | ArchiveError::NoCreate { .. }
        | ArchiveError::NoUsage { .. } | ArchiveError::NoPrivilege { .. } | ArchiveError::Upgrade { .. }
        | ArchiveError::OtherExperiment { .. } | ArchiveError::Record { .. } => REFUSED,
    },
    StoreError => |_| FILES,
    SideError => |_| USAGE,
    ExecError => |_| CONNECT,
    ControlError => |_| REFUSED,
    sysstat::FileError => |_| FILES,
    private::Error => |e| match e {
        private::Error::NoBase { .. } | private::Error::NotWritable { .. } | private::Error::Closed { .. }
        | private::Error::OtherData { .. } | private::Error::UnknownOption { .. } => REFUSED,
        private::Error::Io { .. } => FILES,
        private::Error::Download(source) => source.code(),
        private::Error::Stopped => INTERRUPTED,
        private::Error::Bindir { .. } | private::Error::BindirVersion { .. } | private::Error::NoServerUser
        | private::Error::SocketPath { .. } | private::Error::SocketComma { .. } | private::Error::NotUtf8 { .. }
        | private::Error::Exec(_) | private::Error::NotStarted { .. } | private::Error::NotStopped { .. }
        | private::Error::NoStandby | private::Error::Supervisor(_) | private::Error::SupervisorGone
        | private::Error::Protocol(_) | private::Error::Session(_) | private::Error::Postgres(_)
        | private::Error::NotReplicating { .. } | private::Error::Abandoned => FAILED,
    },
    DownloadError => |e| match e {
        DownloadError::Stopped { .. } => INTERRUPTED,
        DownloadError::Io { .. } | DownloadError::Locked { .. } => FILES,
        DownloadError::NotABuild { .. } => REFUSED,
        DownloadError::Untrusted(source) => source.code(),
        DownloadError::Unavailable { .. } | DownloadError::NoLoader { .. } | DownloadError::NoCache => FAILED,
        #[cfg(feature = "download")]
        DownloadError::Transfer { .. } | DownloadError::Unpack { .. } | DownloadError::WrongHash { .. }
        | DownloadError::NoHash { .. } => FAILED,
        #[cfg(not(feature = "download"))]
        DownloadError::BuiltWithoutDownloads { .. } => FAILED,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::run::NoneValid;

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
    fn a_ballast_that_cannot_replace_another_names_the_release() {
        let refused = || TreatmentError::Refused("too little is free".to_owned());
        assert_eq!(failure(BallastError::Treatment(refused())).0, REFUSED);
        let expected = "the previous ballast was released: too little is free";
        assert_eq!(failure(BallastError::AfterRelease(refused())), (REFUSED, expected.to_owned()));
        let left = BallastError::Undo(UndoError::ChangesRemain { others_undone: false });
        assert_eq!(failure(left).0, UNFINISHED);
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
