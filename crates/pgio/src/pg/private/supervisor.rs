//! The process between a private cluster's owner and its servers: `pgio supervise`.
//!
//! It creates the cluster and executes the owner's commands. When its stdin closes, or on SIGTERM,
//! SIGINT or SIGHUP, it stops the servers and removes their directory. A Ctrl-C
//! reaches only the owner. [`Order`] and [`Event`] are the messages;
//! the argument is a [`Task`] as JSON.
//!
//! Only the main thread starts servers; the other threads only listen.

use std::error::Error as _;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{env, fmt, fs, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::directory::{ClusterDirectory, WAL};
use super::server::{self, Programs};
use super::task::{Layout, Member, PRIMARY, Task};
use super::{Error, at, layout};
use crate::host::exec::{Ids, in_thread};

/// Runs until the owner has ended. The first line of stdin is the task. Returns the exit status: 0, 1 if the
/// cluster could not be created or removed, 2 for an invalid task.
pub fn supervise() -> u8 {
    let task = match read_task(&mut io::stdin().lock()) {
        Ok(task) => task,
        Err(message) => {
            send_answer(&Err(format!("supervise: {message}")));
            return 2;
        }
    };
    let (created, owner) = match Owner::listen() {
        Ok(owner) => (Servers::create(&task, &owner), owner),
        Err(error) => return report_failure(&at(Path::new("signals"))(error)),
    };
    let mut servers = match created {
        Ok(servers) => servers,
        Err(error) => return report_failure(&error),
    };
    let layout = serde_json::to_string(&servers.layout);
    send_answer(&layout.map_err(|error| error.to_string()));
    while let Some(line) = owner.next_line() {
        let result =
            line.parse().and_then(|command| servers.execute(command).map_err(|e| one_line(&e)));
        send_answer(&result.map(|()| line));
    }
    servers.remove().map_or_else(|error| report_failure(&error), |()| 0)
}

fn read_task(input: &mut impl BufRead) -> Result<Task, String> {
    let mut text = String::new();
    input.read_line(&mut text).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn report_failure(error: &Error) -> u8 {
    send_answer(&Err(one_line(error)));
    1
}

/// The error and its causes on one line, as the protocol requires.
fn one_line(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn send_answer(answer: &Answer) {
    let mut stdout = io::stdout().lock();
    // If the owner has ended, the write fails and stdin closes as well.
    let _ = stdout.write_all(write_answer(answer).as_bytes()).and_then(|()| stdout.flush());
}

/// The other end of our stdin.
struct Owner {
    lines: Receiver<Option<String>>,
    has_ended: Arc<AtomicBool>,
}

impl Owner {
    fn listen() -> io::Result<Self> {
        let (sender, lines) = channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let (by_signal, flag) = (sender.clone(), has_ended.clone());
        in_thread("signals", move || {
            signals.forever().next();
            send_end(&by_signal, &flag);
        })?;
        let flag = has_ended.clone();
        in_thread("commands", move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                // The receiver is dropped only when the main thread ends.
                let _ = sender.send(Some(line));
            }
            send_end(&sender, &flag);
        })?;
        Ok(Self { lines, has_ended })
    }

    /// `None` after the owner has ended.
    fn next_line(&self) -> Option<String> {
        self.lines.recv().ok().flatten()
    }

    /// Fails if the owner has ended; call it between the steps of a long operation.
    fn check(&self) -> Result<(), Error> {
        if self.has_ended.load(Ordering::Relaxed) { Err(Error::Abandoned) } else { Ok(()) }
    }
}

fn send_end(lines: &Sender<Option<String>>, has_ended: &AtomicBool) {
    has_ended.store(true, Ordering::Relaxed);
    let _ = lines.send(None);
}

/// The running servers and their directories. Dropping it stops the servers and removes the
/// directories.
struct Servers {
    layout: Layout,
    /// By path; the main one first.
    directories: Vec<(PathBuf, ClusterDirectory)>,
    bindir: PathBuf,
    user: Option<Ids>,
    /// In the order of the members; `None` while a server is stopped.
    running: Vec<Option<Child>>,
}

impl Servers {
    fn create(task: &Task, owner: &Owner) -> Result<Self, Error> {
        // Do not keep the owner's working directory busy.
        env::set_current_dir("/").map_err(at(Path::new("/")))?;
        let user = layout::server_user()?;
        layout::check_access(&task.bindir, user)?;
        let mut servers = Self::directories(task, user)?;
        let wal = task.wal_dir.as_ref().map(|base| servers.below(task, base));
        if let Some(root) = &wal {
            servers.directory(root).make(WAL).map_err(at(root))?;
        }
        let wal = wal.map(|root| server::wal_directory(&root));
        let main = servers.directory(&servers.layout.root);
        servers.programs().initdb(main, wal.as_deref(), &task.initdb)?;
        owner.check()?;
        for (member, spec) in servers.layout.standbys().iter().zip(&task.standbys) {
            let directory = servers.directory(&member.root);
            servers.programs().copy_for_standby(directory, member, wal.is_some())?;
            if spec.archive {
                let name = server::archive_name(&member.name);
                directory.make(&name).map_err(at(&server::archive_directory(member)))?;
            }
            let settings = server::standby_settings(&servers.layout, member, spec, &task.settings);
            server::configure(directory, member, &settings)?;
            owner.check()?;
        }
        let settings = server::primary_settings(&servers.layout, &task.standbys, &task.settings);
        server::configure(main, servers.layout.primary(), &settings)?;
        owner.check()?;
        // Start all at once: a standby retries its connection every 50 ms.
        for at in 0..servers.layout.members.len() {
            servers.start(at)?;
        }
        servers.wait_ready()?;
        owner.check()?;
        Ok(servers)
    }

    /// Creates the empty directories, main one first, each base's once.
    fn directories(task: &Task, user: Option<Ids>) -> Result<Self, Error> {
        let mut directories = Vec::new();
        for directory in task.directories() {
            let main = directories.first().map(|(root, _): &(PathBuf, _)| root.clone());
            match layout::create(&directory, main.as_deref(), user) {
                Ok(created) => directories.push(created),
                Err(error) => {
                    remove_all(&directories)?;
                    return Err(error);
                }
            }
        }
        let roots: Vec<PathBuf> = directories.iter().map(|(root, _)| root.clone()).collect();
        let root_of = |base: Option<&PathBuf>| {
            let at = base.and_then(|base| task.bases().iter().position(|b| *b == base.as_path()));
            &roots[at.unwrap_or(0)]
        };
        let mut members = vec![Member::new(PRIMARY, 0, &roots[0])];
        for (at, spec) in (1..).zip(&task.standbys) {
            members.push(Member::new(&spec.name, at, root_of(spec.directory.as_ref())));
        }
        let more = roots[1..].to_vec();
        let layout = Layout { root: roots[0].clone(), more, members };
        let running = layout.members.iter().map(|_| None).collect();
        Ok(Self { layout, directories, bindir: task.bindir.clone(), user, running })
    }

    /// The cluster's directory below a base of the task.
    fn below(&self, task: &Task, base: &Path) -> PathBuf {
        let at = task.bases().iter().position(|b| *b == base).unwrap_or(0);
        self.directories[at].0.clone()
    }

    fn directory(&self, root: &Path) -> &ClusterDirectory {
        let found = self.directories.iter().find(|(path, _)| path == root);
        &found.expect("every member is in a directory of the cluster").1
    }

    fn programs(&self) -> Programs<'_> {
        Programs { bindir: &self.bindir, user: self.user, layout: &self.layout }
    }

    /// Does nothing to a server that is running.
    fn start(&mut self, at: usize) -> Result<(), Error> {
        if matches!(self.running[at].as_mut().map(Child::try_wait), Some(Ok(None))) {
            return Ok(());
        }
        let logs = self.directory(&self.layout.root);
        let child = self.programs().start(logs, &self.layout.members[at])?;
        self.running[at] = Some(child);
        Ok(())
    }

    fn stop(&mut self, at: usize) -> Result<(), Error> {
        if let Some(running) = &mut self.running[at] {
            server::stop(&self.layout.members[at], running)?;
            self.running[at] = None;
        }
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<(), Error> {
        let mut running = std::mem::take(&mut self.running);
        let logs = self.directory(&self.layout.root);
        let ready = self.layout.members.iter().zip(&mut running).try_for_each(|(member, child)| {
            let Some(child) = child else { return Ok(()) };
            server::wait_ready((logs, self.directory(&member.root)), member, child)
        });
        self.running = running;
        ready
    }

    /// Commands are idempotent and may be repeated after a failure.
    fn execute(&mut self, command: Command) -> Result<(), Error> {
        let standbys = 1..self.running.len();
        match command {
            Command::RestartPrimary => {
                self.stop(0)?;
                self.start(0)?;
            }
            Command::StopPrimary => return self.stop(0),
            Command::StartPrimary => self.start(0)?,
            _ if standbys.is_empty() => return Err(Error::NoStandby),
            Command::StopStandby => {
                for at in standbys {
                    self.stop(at)?;
                }
                return Ok(());
            }
            Command::StartStandby => {
                for at in standbys {
                    self.start(at)?;
                }
            }
        }
        self.wait_ready()
    }

    fn end_servers(&mut self) {
        server::end_all(self.running.iter_mut().filter_map(Option::take).collect());
    }

    fn remove(mut self) -> Result<(), Error> {
        self.end_servers();
        remove_all(&self.directories)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.end_servers();
        // The next start removes what cannot be removed now.
        let _ = remove_all(&self.directories);
    }
}

/// Removes each directory, even if another cannot be removed, the main one last.
fn remove_all(directories: &[(PathBuf, ClusterDirectory)]) -> Result<(), Error> {
    let remove = |(root, open): &(PathBuf, ClusterDirectory)| remove_directory(open, root).err();
    let errors: Vec<Error> = directories.iter().rev().filter_map(remove).collect();
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Retries, because children of a killed server may still create files for a moment.
pub(super) fn remove_directory(directory: &ClusterDirectory, root: &Path) -> Result<(), Error> {
    let mut tries = 20;
    loop {
        tries -= 1;
        // The path may lead to another directory by now; that one is removed only if it is empty.
        match directory.clear().and_then(|()| fs::remove_dir(root)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tries == 0 => return Err(at(root)(error)),
            Err(_) => thread::sleep(Duration::from_millis(100)),
            Ok(()) => return Ok(()),
        }
    }
}

// The protocol between owner and supervisor over two pipes, one line per message. The owner sends commands:
// `restart`, `stop` and `start` of a server. The supervisor answers each with one line, `ok TEXT` or `error TEXT`,
// with TEXT as a JSON string because server logs contain line breaks. Before the first command it sends either `ok`
// with the cluster's directory, or `error` and exits.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    RestartPrimary,
    StopPrimary,
    StartPrimary,
    StopStandby,
    StartStandby,
}

const COMMANDS: &[(Command, &str)] = &[
    (Command::RestartPrimary, "restart primary"),
    (Command::StopPrimary, "stop primary"),
    (Command::StartPrimary, "start primary"),
    (Command::StopStandby, "stop standby"),
    (Command::StartStandby, "start standby"),
];

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = COMMANDS.iter().find(|(command, _)| command == self);
        f.write_str(line.expect("the table contains every command").1)
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let known = COMMANDS.iter().find(|(_, text)| *text == line.trim());
        known.map(|(command, _)| *command).ok_or_else(|| format!("unknown command `{line}`"))
    }
}

/// An answer of the supervisor.
pub(super) type Answer = Result<String, String>;

pub(super) fn write_answer(answer: &Answer) -> String {
    let (word, text) = match answer {
        Ok(text) => ("ok", text),
        Err(text) => ("error", text),
    };
    format!("{word} {}\n", serde_json::Value::from(text.as_str()))
}

/// `None` if the line is not a valid answer.
pub(super) fn read_answer(line: &str) -> Option<Answer> {
    let (word, text) = line.trim_end().split_once(' ')?;
    let text: String = serde_json::from_str(text).ok()?;
    match word {
        "ok" => Some(Ok(text)),
        "error" => Some(Err(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_task_is_reported_and_commands_stay() {
        let error = |text: &str| read_task(&mut text.as_bytes()).unwrap_err();
        assert!(error("").contains("EOF"));
        assert!(error("{}\n").contains("missing field"));
        let text = format!("{}\nstop\n", serde_json::to_string(&Task::default()).unwrap());
        let mut input = text.as_bytes();
        assert!(read_task(&mut input).is_ok());
        assert_eq!(input, b"stop\n");
    }

    /// Nothing may be left if the last directory cannot be created.
    #[test]
    fn a_missing_base_leaves_no_directory_elsewhere() {
        let base = tempfile::tempdir().unwrap();
        let task = Task {
            base_dir: base.path().to_owned(),
            name: layout::new_name(),
            wal_dir: Some(base.path().join("missing")),
            ..Task::default()
        };
        assert!(Servers::directories(&task, None).is_err());
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
        let wal = base.path().join("missing");
        fs::create_dir(&wal).unwrap();
        let servers = Servers::directories(&task, None).unwrap();
        assert_eq!(servers.below(&task, &wal).parent(), fs::canonicalize(&wal).ok().as_deref());
        drop(servers);
        assert_eq!(fs::read_dir(&wal).unwrap().count(), 0);
    }

    #[test]
    fn commands_and_answers_survive_the_pipe() {
        for (command, text) in COMMANDS {
            assert_eq!(format!("{command}\n").parse(), Ok(*command), "{text}");
        }
        assert!("promote standby".parse::<Command>().is_err());
        for answer in [Ok("/var/tmp/pgio-x".into()), Err("a\n\"b\"\\".into())] {
            let line = write_answer(&answer);
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(read_answer(&line), Some(answer));
        }
        assert_eq!(read_answer("hello"), None);
    }
}
