//! The process between a private cluster's owner and its servers: `pgio supervise`.
//!
//! It creates the cluster and executes the owner's commands. When its stdin closes, or on SIGTERM,
//! SIGINT or SIGHUP, it stops the servers and removes their directory. The owner starts it in a
//! separate process group, so that Ctrl-C reaches only the owner. `protocol` defines the messages.
//! The arguments:
//!
//! ```text
//! pgio supervise --bindir DIR --base-dir DIR [--standby]
//!                [--primary-setting NAME=VALUE]... [--standby-setting NAME=VALUE]...
//! ```
//!
//! Only the main thread starts servers; the other threads only listen.

use std::error::Error as _;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{env, fs, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::directory::{ClusterDirectory, Role};
use super::layout::{self, Layout};
use super::protocol::{Answer, Command, write_answer};
use super::server::{self, Programs, Setting};
use super::{Error, at};
use crate::host::exec::Ids;

/// The cluster to create; the arguments of `pgio supervise`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) bindir: PathBuf,
    pub(super) base_dir: PathBuf,
    pub(super) standby: bool,
    pub(super) primary_settings: Vec<Setting>,
    pub(super) standby_settings: Vec<Setting>,
}

impl Task {
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--bindir".into(), self.bindir.clone().into()];
        args.extend(["--base-dir".into(), self.base_dir.clone().into()]);
        if self.standby {
            args.push("--standby".into());
        }
        let settings = [
            ("--primary-setting", &self.primary_settings),
            ("--standby-setting", &self.standby_settings),
        ];
        for (flag, settings) in settings {
            for (name, value) in settings {
                args.extend([flag.into(), format!("{name}={value}").into()]);
            }
        }
        args
    }

    fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut task = Self::default();
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy().into_owned();
            let mut value = || args.next().ok_or_else(|| format!("{flag} requires a value"));
            match flag.as_str() {
                "--standby" => task.standby = true,
                "--bindir" => task.bindir = value()?.into(),
                "--base-dir" => task.base_dir = value()?.into(),
                "--primary-setting" => task.primary_settings.push(setting(&value()?)?),
                "--standby-setting" => task.standby_settings.push(setting(&value()?)?),
                _ => return Err(format!("unknown argument {flag}")),
            }
        }
        let complete = !task.bindir.as_os_str().is_empty() && !task.base_dir.as_os_str().is_empty();
        if complete { Ok(task) } else { Err("--bindir and --base-dir are required".into()) }
    }
}

fn setting(text: &OsString) -> Result<Setting, String> {
    let text = text.to_str().ok_or_else(|| format!("{} is not UTF-8", text.display()))?;
    let (name, value) = text.split_once('=').ok_or_else(|| format!("no `=` in {text}"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs until the owner has ended. `args` are the arguments after `supervise`. Returns the exit
/// status: 0, 1 if the cluster could not be created or removed, 2 for invalid arguments.
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> u8 {
    let task = match Task::from_args(args) {
        Ok(task) => task,
        Err(message) => {
            send_answer(&Err(format!("supervise: {message}")));
            return 2;
        }
    };
    let (created, owner) = match Owner::listen() {
        Ok(owner) => (Servers::create(&task, &owner), owner),
        Err(error) => return failed(&at(Path::new("signals"))(error)),
    };
    let mut servers = match created {
        Ok(servers) => servers,
        Err(error) => return failed(&error),
    };
    send_answer(&Ok(servers.layout.root.display().to_string()));
    while let Some(line) = owner.next_line() {
        let result =
            line.parse().and_then(|command| servers.execute(command).map_err(|e| one_line(&e)));
        send_answer(&result.map(|()| line));
    }
    servers.remove().map_or_else(|error| failed(&error), |()| 0)
}

fn failed(error: &Error) -> u8 {
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
    gone: Arc<AtomicBool>,
}

impl Owner {
    fn listen() -> io::Result<Self> {
        let (sender, lines) = channel();
        let gone = Arc::new(AtomicBool::new(false));
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let (by_signal, flag) = (sender.clone(), gone.clone());
        thread::spawn(move || {
            signals.forever().next();
            end(&by_signal, &flag);
        });
        let flag = gone.clone();
        thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                // The receiver is dropped only when the main thread ends.
                let _ = sender.send(Some(line));
            }
            end(&sender, &flag);
        });
        Ok(Self { lines, gone })
    }

    /// `None` after the owner has ended.
    fn next_line(&self) -> Option<String> {
        self.lines.recv().ok().flatten()
    }

    /// Fails if the owner has ended; call it between the steps of a long operation.
    fn check(&self) -> Result<(), Error> {
        if self.gone.load(Ordering::Relaxed) { Err(Error::Abandoned) } else { Ok(()) }
    }
}

fn end(lines: &Sender<Option<String>>, gone: &AtomicBool) {
    gone.store(true, Ordering::Relaxed);
    let _ = lines.send(None);
}

/// The running servers and their directory. Dropping it stops the servers and removes the
/// directory.
struct Servers {
    layout: Layout,
    directory: ClusterDirectory,
    bindir: PathBuf,
    user: Option<Ids>,
    has_standby: bool,
    primary: Option<Child>,
    standby: Option<Child>,
}

impl Servers {
    fn create(task: &Task, owner: &Owner) -> Result<Self, Error> {
        // Do not keep the owner's working directory busy.
        env::set_current_dir("/").map_err(at(Path::new("/")))?;
        let user = layout::server_user()?;
        layout::check_access(&task.bindir, user)?;
        let (layout, directory) = layout::create(&task.base_dir, user)?;
        let mut servers = Self {
            layout,
            directory,
            bindir: task.bindir.clone(),
            user,
            has_standby: task.standby,
            primary: None,
            standby: None,
        };
        let (layout, programs) = (&servers.layout, servers.programs());
        programs.initdb(layout)?;
        owner.check()?;
        if task.standby {
            programs.copy_for_standby(layout)?;
            let settings = server::for_standby(&task.primary_settings, &task.standby_settings);
            server::configure((layout, &servers.directory), Role::Standby, true, &settings)?;
        }
        server::configure(
            (layout, &servers.directory),
            Role::Primary,
            task.standby,
            &task.primary_settings,
        )?;
        owner.check()?;
        // Start both at once: the standby retries its connection every 50 ms.
        servers.primary = Some(servers.start(Role::Primary)?);
        if task.standby {
            servers.standby = Some(servers.start(Role::Standby)?);
        }
        servers.wait_ready()?;
        owner.check()?;
        Ok(servers)
    }

    fn programs(&self) -> Programs<'_> {
        Programs { bindir: &self.bindir, user: self.user, directory: &self.directory }
    }

    fn start(&self, role: Role) -> Result<Child, Error> {
        self.programs().start(&self.layout, role)
    }

    fn wait_ready(&mut self) -> Result<(), Error> {
        let both = [(Role::Primary, &mut self.primary), (Role::Standby, &mut self.standby)];
        for (role, child) in both {
            if let Some(child) = child {
                server::wait_ready(&self.directory, role, child)?;
            }
        }
        Ok(())
    }

    /// Commands are idempotent and may be repeated after a failure.
    fn execute(&mut self, command: Command) -> Result<(), Error> {
        match command {
            Command::RestartPrimary => {
                stop(Role::Primary, &mut self.primary)?;
                self.primary = Some(self.start(Role::Primary)?);
            }
            Command::StopPrimary => return stop(Role::Primary, &mut self.primary),
            Command::StartPrimary => {
                let ended = |c: &mut Child| !matches!(c.try_wait(), Ok(None));
                if self.primary.as_mut().is_none_or(ended) {
                    self.primary = Some(self.start(Role::Primary)?);
                }
            }
            _ if !self.has_standby => return Err(Error::NoStandby),
            Command::StopStandby => return stop(Role::Standby, &mut self.standby),
            Command::StartStandby => {
                let ended = |c: &mut Child| !matches!(c.try_wait(), Ok(None));
                if self.standby.as_mut().is_none_or(ended) {
                    self.standby = Some(self.start(Role::Standby)?);
                }
            }
        }
        self.wait_ready()
    }

    fn end_servers(&mut self) {
        server::end([self.primary.take(), self.standby.take()].into_iter().flatten().collect());
    }

    fn remove(mut self) -> Result<(), Error> {
        self.end_servers();
        remove_directory(&self.directory, &self.layout.root)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.end_servers();
        // The next start sweeps what cannot be removed now.
        let _ = remove_directory(&self.directory, &self.layout.root);
    }
}

fn stop(role: Role, child: &mut Option<Child>) -> Result<(), Error> {
    if let Some(running) = child {
        server::stop(role, running)?;
        *child = None;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_conversion_to_arguments() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let task = Task {
            bindir: "/usr/lib/postgresql/15/bin".into(),
            base_dir: "/var/tmp/a b".into(),
            standby: true,
            primary_settings: vec![pair("work_mem", "4MB"), pair("search_path", "a=b, c")],
            standby_settings: vec![pair("hot_standby_feedback", "on")],
        };
        assert_eq!(Task::from_args(task.to_args()), Ok(task));
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let error = |args: &[&str]| Task::from_args(args.iter().map(OsString::from)).unwrap_err();
        assert_eq!(error(&[]), "--bindir and --base-dir are required");
        assert_eq!(error(&["--bindir"]), "--bindir requires a value");
        assert_eq!(error(&["--primary-setting", "x"]), "no `=` in x");
        assert_eq!(error(&["--now"]), "unknown argument --now");
    }
}
