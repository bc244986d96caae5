//! The process between a private cluster's owner and its servers: `pgio supervise`.
//!
//! It makes the cluster, obeys the owner's commands, and at the end of its stdin, or at
//! SIGTERM, SIGINT or SIGHUP, stops the servers and removes their directory. The owner
//! starts it in a process group of its own, so that Ctrl-C reaches the owner alone.
//! What is said over the pipes is in `protocol`. The arguments:
//!
//! ```text
//! pgio supervise --bindir DIR --base-dir DIR [--standby]
//!                [--primary-setting NAME=VALUE]... [--standby-setting NAME=VALUE]...
//! ```
//!
//! Everything that starts a server runs on the main thread; the others only listen.

use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::layout::{self, Layout, Role};
use super::place::Place;
use super::protocol::{Answer, Command, write_answer};
use super::server::{self, Programs, Setting};
use super::{Error, at};
use crate::host::exec::Ids;

/// What to make; the arguments of `pgio supervise`.
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
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--standby" => task.standby = true,
                "--bindir" => task.bindir = value()?.into(),
                "--base-dir" => task.base_dir = value()?.into(),
                "--primary-setting" => task.primary_settings.push(setting(&value()?)?),
                "--standby-setting" => task.standby_settings.push(setting(&value()?)?),
                _ => return Err(format!("unknown argument {flag}")),
            }
        }
        let given = !task.bindir.as_os_str().is_empty() && !task.base_dir.as_os_str().is_empty();
        if given { Ok(task) } else { Err("--bindir and --base-dir are needed".into()) }
    }
}

fn setting(text: &OsString) -> Result<Setting, String> {
    let text = text.to_str().ok_or_else(|| format!("{} is not UTF-8", text.display()))?;
    let (name, value) = text.split_once('=').ok_or_else(|| format!("no `=` in {text}"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs until the owner is gone. `args` are those after `supervise`. Returns the exit
/// status: 0, or 1 when the cluster could not be made or removed, or 2 for wrong arguments.
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> u8 {
    let task = match Task::from_args(args) {
        Ok(task) => task,
        Err(message) => {
            say(&Err(format!("supervise: {message}")));
            return 2;
        }
    };
    let (made, owner) = match Owner::listen() {
        Ok(owner) => (Servers::make(&task, &owner), owner),
        Err(error) => return failed(&at(Path::new("signals"))(error)),
    };
    let mut servers = match made {
        Ok(servers) => servers,
        Err(error) => return failed(&error),
    };
    say(&Ok(servers.layout.root.display().to_string()));
    while let Some(line) = owner.next_line() {
        let done = line.parse().and_then(|command| servers.obey(command).map_err(|e| told(&e)));
        say(&done.map(|()| line));
    }
    servers.remove().map_or_else(|error| failed(&error), |()| 0)
}

fn failed(error: &Error) -> u8 {
    say(&Err(told(error)));
    1
}

/// The error and its causes on one line: it crosses a pipe.
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn say(answer: &Answer) {
    let mut stdout = io::stdout().lock();
    // Without an owner nobody listens, and the end of stdin says so too.
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
                // The main thread is at its end when nobody receives.
                let _ = sender.send(Some(line));
            }
            end(&sender, &flag);
        });
        Ok(Self { lines, gone })
    }

    /// `None` when the owner is gone.
    fn next_line(&self) -> Option<String> {
        self.lines.recv().ok().flatten()
    }

    /// For between the steps of a long undertaking.
    fn check(&self) -> Result<(), Error> {
        if self.gone.load(Ordering::Relaxed) { Err(Error::Abandoned) } else { Ok(()) }
    }
}

fn end(lines: &Sender<Option<String>>, gone: &AtomicBool) {
    gone.store(true, Ordering::Relaxed);
    let _ = lines.send(None);
}

/// The running servers and their directory; both go when this is dropped.
struct Servers {
    layout: Layout,
    place: Place,
    bindir: PathBuf,
    user: Option<Ids>,
    has_standby: bool,
    primary: Option<Child>,
    standby: Option<Child>,
}

impl Servers {
    fn make(task: &Task, owner: &Owner) -> Result<Self, Error> {
        // Not to keep the owner's directory busy.
        env::set_current_dir("/").map_err(at(Path::new("/")))?;
        let user = layout::server_user()?;
        layout::check_way(&task.bindir, user)?;
        let (layout, place) = layout::create(&task.base_dir, user)?;
        let mut servers = Self {
            layout,
            place,
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
            server::configure((layout, &servers.place), Role::Standby, true, &settings)?;
        }
        server::configure(
            (layout, &servers.place),
            Role::Primary,
            task.standby,
            &task.primary_settings,
        )?;
        owner.check()?;
        // Both at once: the standby asks every 50 ms whether its primary is there.
        servers.primary = Some(servers.start(Role::Primary)?);
        if task.standby {
            servers.standby = Some(servers.start(Role::Standby)?);
        }
        servers.wait_ready()?;
        owner.check()?;
        Ok(servers)
    }

    fn programs(&self) -> Programs<'_> {
        Programs { bindir: &self.bindir, user: self.user, place: &self.place }
    }

    fn start(&self, role: Role) -> Result<Child, Error> {
        self.programs().start(&self.layout, role)
    }

    fn wait_ready(&mut self) -> Result<(), Error> {
        let both = [(Role::Primary, &mut self.primary), (Role::Standby, &mut self.standby)];
        for (role, child) in both {
            if let Some(child) = child {
                server::wait_ready(&self.place, role, child)?;
            }
        }
        Ok(())
    }

    /// Every command may be given again when it failed, or when it is done already.
    fn obey(&mut self, command: Command) -> Result<(), Error> {
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
        remove_directory(&self.place, &self.layout.root)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.end_servers();
        // What cannot be removed now is swept at the next start.
        let _ = remove_directory(&self.place, &self.layout.root);
    }
}

fn stop(role: Role, child: &mut Option<Child>) -> Result<(), Error> {
    if let Some(running) = child {
        server::stop(role, running)?;
        *child = None;
    }
    Ok(())
}

/// A server that had to be killed may leave children for a moment, and these files.
pub(super) fn remove_directory(place: &Place, root: &Path) -> Result<(), Error> {
    let mut tries = 20;
    loop {
        tries -= 1;
        // At the path there may be something else by now, which goes only if it is empty.
        match place.clear().and_then(|()| fs::remove_dir(root)) {
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
    fn a_task_survives_the_command_line() {
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
    fn wrong_arguments_are_named() {
        let wrong = |args: &[&str]| Task::from_args(args.iter().map(OsString::from)).unwrap_err();
        assert_eq!(wrong(&[]), "--bindir and --base-dir are needed");
        assert_eq!(wrong(&["--bindir"]), "--bindir needs a value");
        assert_eq!(wrong(&["--primary-setting", "x"]), "no `=` in x");
        assert_eq!(wrong(&["--now"]), "unknown argument --now");
    }
}
