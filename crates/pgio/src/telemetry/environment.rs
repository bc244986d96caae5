//! Current settings of the server's host: kernel, CPU governors, write-back of dirty pages, mount
//! options, I/O schedulers and read-ahead, and what observers add. Read before and after each window, therefore one short
//! script. Next: [`super::observer`].

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use pgio_results::Warning;
use pgio_results::change::fact;
use pgio_results::telemetry::{Device, Storage};

use super::observer::{Facts, Observer, Of};
use crate::feature;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::storage::{self, Location};

static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let own = concat!(include_str!("receivers.sh"), include_str!("environment.sh"));
    let section = |o: &Observer| format!("printf '%s' '{}'\n{}", o.header(), o.environment);
    feature::observers().fold(own.to_owned(), |all, observer| all + &section(observer))
});
const LIMIT: Duration = Duration::from_secs(5);

/// Whether the settings of standbys are read, too, which takes some time of their host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standbys {
    Read,
    Skip,
}

/// The standbys whose settings are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection<'a> {
    None,
    /// The standbys of the server with this system identifier. Other clusters on the host are not part of
    /// the measured system.
    Of(&'a str),
    /// All on the host, if the role may not read the system identifier.
    All,
}

/// `None` if the host does not answer.
pub(super) fn read(
    host: &Host,
    storage: &[Storage],
    standbys: Selection<'_>,
) -> Option<BTreeMap<String, String>> {
    let mut devices: Vec<&str> =
        storage.iter().flat_map(|s| &s.devices).map(|device| device.name.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    host.run(&script(standbys).args(devices)).ok().map(|text| parse(&text, storage))
}

fn script(standbys: Selection<'_>) -> CommandLine {
    let standbys = match standbys {
        Selection::None => "none",
        Selection::Of(identifier) => identifier,
        Selection::All => "all",
    };
    CommandLine::new("sh").args(["-c", SCRIPT.as_str(), "sh", standbys]).timeout(LIMIT)
}

/// What another host holds of the measured system: standbys, and what observers look for there because of `found`,
/// which comes from the server's host. Each name is prefixed with the host's.
pub(super) fn peer_facts(host: &Host, found: &Facts, standbys: Selection<'_>) -> Facts {
    let asked = feature::observers().any(|observer| (observer.asks_peers)(found));
    if standbys == Selection::None && !asked {
        return BTreeMap::new();
    }
    let text = host.run(&script(standbys)).unwrap_or_default();
    parse_peer(&text, host.name(), found)
}

fn parse_peer(text: &str, host: &str, found: &Facts) -> Facts {
    let (text, sections) = split(text);
    let mut facts = parse_own(text, &[]);
    facts.retain(|name, _| fact::is_of_standby(name));
    let observers = sections.into_iter().filter(|(observer, _)| (observer.asks_peers)(found));
    facts.extend(observers.flat_map(|(observer, text)| (observer.facts)(text, Of::Peer(found))));
    facts.into_iter().map(|(name, value)| (fact::on_host(host, &name), value)).collect()
}

/// Splits the script's output into its own part and the sections of observers, which follow.
fn split(text: &str) -> (&str, Vec<(&'static Observer, &str)>) {
    let observers: Vec<&Observer> = feature::observers().collect();
    let (mut own, mut sections) = (text, Vec::new());
    for observer in observers.into_iter().rev() {
        if let Some((before, section)) = own.rsplit_once(&observer.header()) {
            sections.push((observer, section));
            own = before;
        }
    }
    (own, sections)
}

fn parse(text: &str, storage: &[Storage]) -> Facts {
    let (text, sections) = split(text);
    let mut found = parse_own(text, storage);
    let sections = sections.into_iter();
    found.extend(sections.flat_map(|(observer, text)| (observer.facts)(text, Of::Server(storage))));
    found
}

fn parse_own(text: &str, storage: &[Storage]) -> Facts {
    let (facts, mounts) = text.split_once("mounts\n").unwrap_or((text, ""));
    let mounts = storage::parse_mounts(mounts);
    let mut found = BTreeMap::new();
    let (mut schedulers, mut read_ahead) = (BTreeMap::new(), BTreeMap::new());
    for line in facts.lines() {
        match line.split_once(' ') {
            Some(("scheduler", rest)) => {
                schedulers.extend(rest.split_once(' ').map(|(device, v)| (device, selected(v))));
            }
            Some(("standby", rest)) => {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                if let [setting, value, directory] = words[..] {
                    found.insert(fact::standby(directory, setting), value.to_owned());
                }
            }
            Some(("read_ahead", rest)) => read_ahead.extend(rest.split_once(' ')),
            Some((name, value)) => {
                found.insert(fact::host(name), selected(value).to_owned());
            }
            None => {}
        }
    }
    for area in storage.iter().filter(|area| area.is_located()) {
        let mount = mounts.iter().rfind(|m| !m.hidden && m.mount_point == area.mount_point);
        let mounted = mount.map_or_else(
            || "not mounted".to_owned(),
            |m| format!("{} {} on {}", m.file_system, m.options, m.mount_point),
        );
        found.insert(fact::mount(&area.role), mounted);
        let by_device = |values: &BTreeMap<&str, &str>| -> Vec<String> {
            let names = area.devices.iter().map(|device| device.name.as_str());
            names.filter_map(|name| Some(format!("{name} {}", values.get(name)?))).collect()
        };
        for (fact, values) in [
            (fact::scheduler(&area.role), by_device(&schedulers)),
            (fact::read_ahead(&area.role), by_device(&read_ahead)),
        ] {
            if !values.is_empty() {
                found.insert(fact, values.join(", "));
            }
        }
    }
    found
}

/// The active value of a list such as `always [madvise] never`.
fn selected(value: &str) -> &str {
    let inner = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(value, |(word, _)| word)
}

// File systems and devices below a server's directories, in their stored form, with a warning for those that are
// unknown. A directory of unknown place has no devices; without it, the rest would look like all. `host::storage`
// finds them once per experiment; `host` samples the rates of these devices.

/// A directory of the server and its role: `data`, `wal`, `tablespace NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDirectory {
    pub role: String,
    pub directory: String,
}

pub fn locate(
    host: &Host,
    directories: &[ServerDirectory],
) -> Result<(Vec<Storage>, Vec<Warning>), ExecError> {
    let paths: Vec<&str> = directories.iter().map(|d| d.directory.as_str()).collect();
    let located = storage::locate(host, &paths)?;
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for (directory, location) in directories.iter().zip(located) {
        match location {
            None => {
                warnings.push(unreadable(host.name(), directory));
                found.push(unlocated(host.name(), directory));
            }
            Some(location) => {
                warnings.extend(without_device(directory, &location));
                found.push(to_stored(host.name(), directory, location));
            }
        }
    }
    Ok((found, warnings))
}

fn to_stored(host: &str, directory: &ServerDirectory, location: Location) -> Storage {
    let device = |d: storage::Device| Device {
        name: d.name,
        kind: d.kind.to_owned(),
        queue: d.queue,
        member: d.member,
    };
    Storage {
        role: directory.role.clone(),
        host: host.to_owned(),
        directory: location.directory.to_string_lossy().into_owned(),
        mount_point: location.mount.mount_point,
        file_system: location.mount.file_system,
        mount_options: location.mount.options,
        devices: location.devices.into_iter().map(device).collect(),
    }
}

fn unlocated(host: &str, directory: &ServerDirectory) -> Storage {
    Storage {
        role: directory.role.clone(),
        host: host.to_owned(),
        directory: directory.directory.clone(),
        ..Storage::default()
    }
}

fn unreadable(host: &str, directory: &ServerDirectory) -> Warning {
    Warning::new(
        format!("the device of {} is unknown", directory.role),
        format!("directory {} cannot be read on host {host}", directory.directory),
        "check [target] host, and connect to it as the server's OS user or as root",
    )
}

fn without_device(area: &ServerDirectory, location: &Location) -> Option<Warning> {
    let Location { directory, mount, devices } = location;
    devices.is_empty().then(|| {
        Warning::new(
            format!("{} is not on a block device known to the kernel", area.role),
            format!(
                "{} is on {}, mounted on {}",
                directory.display(),
                mount.file_system,
                mount.mount_point
            ),
            "compare the server's own counters; device rates are not available",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::Local;
    use pgio_results::telemetry::Device;
    use rustix::process::{Pid, Signal, geteuid, kill_process_group};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};
    use std::{fs, thread};
    use tempfile::TempDir;

    fn data(mount_point: &str, device: &str) -> Storage {
        Storage {
            role: "data".to_owned(),
            mount_point: mount_point.to_owned(),
            devices: vec![Device { name: device.to_owned(), ..Device::default() }],
            ..Storage::default()
        }
    }

    #[test]
    fn the_active_value_and_the_topmost_mount_are_reported() {
        let text = "kernel 6.1.0\ngovernor performance on 60, powersave on 4\nvm.dirty_ratio 20\n\
            transparent_hugepage always [madvise] never\nscheduler vdb [none] mq-deadline\n\
            read_ahead vdb 128\nread_ahead vdc 4096\nmounts\n\
            25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 25 254:16 / /data rw,relatime - ext4 /dev/vdb rw\n\
            31 30 254:32 / /data rw,sync - xfs /dev/vdc rw\n";
        let unlocated = Storage { role: "wal".to_owned(), ..Storage::default() };
        let found = parse(text, &[data("/data", "vdb"), unlocated]);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            found,
            [
                ("data.mount", "xfs rw,sync on /data"),
                ("data.read_ahead", "vdb 128"),
                ("data.scheduler", "vdb none"),
                ("host.governor", "performance on 60, powersave on 4"),
                ("host.kernel", "6.1.0"),
                ("host.transparent_hugepage", "madvise"),
                ("host.vm.dirty_ratio", "20"),
            ]
        );
    }

    #[test]
    fn the_environment_of_a_peer_has_only_the_settings_of_its_standby() {
        let text = "kernel 6.1.0\nvm.dirty_ratio 20\nstandby fsync off /srv/a standby\nmounts\n";
        let own = parse(text, &[]);
        assert_eq!(own["standby./srv/a standby.fsync"], "off");
        let peer = parse_peer(text, "db2", &BTreeMap::new());
        let expected = ("db2.standby./srv/a standby.fsync".to_owned(), "off".to_owned());
        assert_eq!(peer, BTreeMap::from([expected]));
    }

    #[test]
    fn the_environment_of_this_machine_is_read() {
        let found = read(&Host::local(), &[data("/", "no-such-device")], Selection::All).unwrap();
        assert!(!found["host.kernel"].is_empty());
        let ratio = fs::read_to_string("/proc/sys/vm/dirty_background_ratio").unwrap();
        assert_eq!(found["host.vm.dirty_background_ratio"], ratio.trim());
        assert!(found["data.mount"].ends_with("on /"), "{found:?}");
        assert!(!found.contains_key("data.scheduler"));
    }

    // Whose program is run for the settings of a standby, and with what: anybody can name a process like a
    // walreceiver. As root the processes belong to another user, like PostgreSQL's.

    const RECEIVER: &str = "postgres: walreceiver";
    /// `nobody`.
    const USER: u32 = 65_534;
    /// The script that runs instead of `postgres -C fsync`: `ran` gets session, process and variables.
    const FSYNC: &str = "read -r _ _ _ _ _ session _ </proc/$$/stat\n\
                         { echo \"$session $$\"; env; } >ran\necho on\n";

    /// A process with a child named like a walreceiver. Its program is a copy of a shell.
    struct FakeStandby {
        dir: TempDir,
        child: Child,
    }

    impl FakeStandby {
        /// `prepare` gets the directory of the program.
        fn start(program: &str, user: Option<u32>, prepare: impl FnOnce(&Path)) -> FakeStandby {
            let dir = tempfile::tempdir().unwrap();
            let (bin, data) = (dir.path().join("bin"), dir.path().join("data"));
            for path in [&bin, &data] {
                fs::create_dir(path).unwrap();
            }
            for path in [dir.path(), &bin, &data] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            // Not by this process: children of other tests would inherit the file while it is open for writing.
            let install = CommandLine::new("install").args(["-m", "755", "/bin/sh"]);
            Local.run(&install.arg(bin.join(program))).unwrap();
            symlink("/bin/sleep", data.join(RECEIVER)).unwrap();
            fs::write(data.join("start"), format!("PATH=$PWD\n'{RECEIVER}' 600 &\nwait\n"))
                .unwrap();
            fs::write(data.join("fsync"), FSYNC).unwrap();
            let mut command = Command::new(bin.join(program));
            command.arg("start").current_dir(&data).process_group(0);
            if let Some(user) = user {
                chown(&data, Some(user), None).unwrap();
                command.uid(user).gid(user);
            }
            prepare(&bin);
            let standby = FakeStandby { child: command.spawn().unwrap(), dir };
            standby.wait_for_receiver();
            standby
        }

        fn data(&self) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join("data")
        }

        fn wait_for_receiver(&self) {
            let deadline = Instant::now() + Duration::from_secs(30);
            let is_receiver = |process: PathBuf| {
                fs::read(process.join("cmdline"))
                    .is_ok_and(|line| line.starts_with(RECEIVER.as_bytes()))
                    && fs::read_link(process.join("cwd")).is_ok_and(|at| at == self.data())
            };
            while !fs::read_dir("/proc").unwrap().flatten().any(|entry| is_receiver(entry.path())) {
                assert!(Instant::now() < deadline, "the receiver was never seen");
                thread::sleep(Duration::from_millis(5));
            }
        }

        /// Reads the environment with a secret among pgio's variables; returns the setting, and what ran.
        fn read(&self) -> (Option<String>, Option<String>) {
            let text = Local.run(&script(Selection::All).env("PGPASSWORD", "geheim")).unwrap();
            let fact = fact::standby(&self.data().display().to_string(), "fsync");
            (parse(&text, &[]).remove(&fact), fs::read_to_string(self.data().join("ran")).ok())
        }
    }

    impl Drop for FakeStandby {
        fn drop(&mut self) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// The user of a server: another one, as PostgreSQL refuses root.
    fn server_user() -> Option<u32> {
        geteuid().is_root().then_some(USER)
    }

    #[test]
    fn the_program_of_a_standby_gets_no_variables_and_a_session_of_its_own() {
        let standby = FakeStandby::start("postgres", server_user(), |_| {});
        let (setting, ran) = standby.read();
        assert_eq!(setting.as_deref(), Some("on"));
        let ran = ran.unwrap();
        let (session, variables) = ran.split_once('\n').unwrap();
        let (session, process) = session.split_once(' ').unwrap();
        assert_eq!(session, process, "it leads its session");
        let mut names: Vec<&str> =
            variables.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        // The shell adds PWD, and some shells others.
        names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH", "PGDATA"], "{variables}");
    }

    #[test]
    fn a_program_of_root_is_never_run() {
        if !geteuid().is_root() {
            pgio_tests::skipped("only root can start such a process");
            return;
        }
        assert_eq!(FakeStandby::start("postgres", None, |_| {}).read(), (None, None));
    }

    #[test]
    fn a_program_that_is_not_postgres_or_that_others_can_replace_is_not_run() {
        let user = server_user();
        let mode = |path: PathBuf, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let mut ran = Vec::new();
        let mut try_program = |why, program, prepare: &dyn Fn(&Path)| {
            if FakeStandby::start(program, user, prepare).read() != (None, None) {
                ran.push(why);
            }
        };
        try_program("another name", "postgres2", &|_| {});
        try_program("others may write to the directory", "postgres", &|bin| {
            mode(bin.into(), 0o757);
        });
        try_program("the group may write to it", "postgres", &|bin| {
            mode(bin.join("postgres"), 0o775);
        });
        if user.is_some() {
            let give_away = |bin: &Path| chown(bin, Some(USER - 1), None).unwrap();
            try_program("the directory is another user's", "postgres", &give_away);
        }
        assert_eq!(ran, [""; 0]);
    }

    #[test]
    fn a_missing_directory_is_unlocated_with_a_warning_and_the_rest_is_located() {
        let directory = |role: &str, directory: &str| ServerDirectory {
            role: role.to_owned(),
            directory: directory.to_owned(),
        };
        let directories = [directory("data", "/nonexistent/x"), directory("wal", "/proc/sys")];
        let (found, warnings) = locate(&Host::local(), &directories).unwrap();
        let [data, wal] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((wal.role.as_str(), wal.file_system.as_str()), ("wal", "proc"));
        assert!(wal.is_located() && !data.is_located(), "{data:?}");
        assert_eq!((data.role.as_str(), data.directory.as_str()), ("data", "/nonexistent/x"));
        assert!(data.devices.is_empty());
        let [unknown, deviceless] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!(
            unknown.to_string(),
            "the device of data is unknown: directory /nonexistent/x cannot be read on host local; \
             check [target] host, and connect to it as the server's OS user or as root"
        );
        assert!(deviceless.why.starts_with("/proc/sys is on proc"), "{deviceless}");
    }
}
