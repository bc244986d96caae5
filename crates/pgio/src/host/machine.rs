//! A host of the experiment: this machine, or a remote one over ssh, with the same interface.
//!
//! [`Exec`] runs single commands, [`super::shell::Shell`] runs persistent scripts. The only difference
//! is in [`Host::wrap`], which prepends ssh for a remote host. This module does not interpret what it
//! finds on a host. Next: [`super::ssh`], [`super::storage`].

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exec::{CommandLine, Exec, ExecError, Output, run_to_end};
use super::shell::{self, Marks, Shell};
use super::ssh::Link;
use crate::config::experiment::HostSpec;

/// The default name of this machine.
pub const LOCAL: &str = "local";

/// A host in a sentence: `this machine`, or its name.
pub fn called(name: &str) -> String {
    if name == LOCAL { "this machine".to_owned() } else { format!("`{name}`") }
}

/// Hosts by their names in the experiment, this machine included.
pub type Hosts = BTreeMap<String, Arc<Host>>;

#[derive(Debug)]
pub struct Host {
    name: String,
    /// Absent for this machine.
    link: Option<Link>,
    identity: Identity,
}

/// Connects to all hosts of a file and adds this machine; refuses two names for the same machine.
pub fn connect_all(specs: &BTreeMap<String, HostSpec>) -> Result<Hosts, ExecError> {
    let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(Host::local()))]);
    for (name, spec) in specs {
        hosts.insert(name.clone(), Arc::new(Host::connect(name, spec)?));
    }
    refuse_duplicates(specs, &hosts)?;
    Ok(hosts)
}

/// Refuses two names for the same machine among the connected hosts. This machine may have one name in
/// addition to `local`.
pub fn refuse_duplicates(
    specs: &BTreeMap<String, HostSpec>,
    hosts: &Hosts,
) -> Result<(), HostError> {
    let named: Vec<&Arc<Host>> = specs.keys().filter_map(|name| hosts.get(name)).collect();
    for (at, other) in named.iter().enumerate() {
        if let Some(one) = named[..at].iter().find(|h| h.identity.is_certainly(&other.identity)) {
            return Err(HostError::SameMachine {
                one: one.name.clone(),
                other: other.name.clone(),
            });
        }
    }
    Ok(())
}

impl Host {
    pub fn local() -> Host {
        Host::local_as(LOCAL)
    }

    fn local_as(name: &str) -> Host {
        Host { name: name.to_owned(), link: None, identity: Identity::current() }
    }

    /// Connects if the specification contains ssh. Never prompts the user.
    pub fn connect(name: &str, spec: &HostSpec) -> Result<Host, ExecError> {
        let Some(destination) = &spec.ssh else { return Ok(Host::local_as(name)) };
        let (link, identity) = Link::open(name, destination, spec.ssh_config.as_deref())?;
        Ok(Host { name: name.to_owned(), link: Some(link), identity })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the boot id of the kernel; empty if unknown.
    pub fn boot_id(&self) -> &str {
        &self.identity.boot
    }

    /// Returns the machine's own host name, or its name in the experiment if unknown.
    pub fn node_name(&self) -> &str {
        if self.identity.name.is_empty() { &self.name } else { &self.identity.name }
    }

    /// Returns whether this is the local machine, which needs no connection.
    pub fn is_local(&self) -> bool {
        self.link.is_none()
    }

    /// Returns whether both hosts run on the same kernel.
    pub fn is_same_machine(&self, other: &Host) -> bool {
        !self.identity.boot.is_empty() && self.identity.boot == other.identity.boot
    }

    /// Returns whether a pid identifies the same process on both.
    pub fn shares_pids_with(&self, other: &Host) -> bool {
        self.name == other.name || self.identity.certainly_shares_pids(&other.identity)
    }

    /// Returns whether a pid identifies the same process there and in this program.
    pub fn shares_pids_with_this_process(&self) -> bool {
        self.link.is_none() || self.identity.shares_pids(&Identity::current())
    }

    /// Returns the local command that runs `command` on the host.
    pub(super) fn wrap(&self, command: &CommandLine) -> Result<CommandLine, ExecError> {
        match &self.link {
            None => Ok(command.clone()),
            Some(link) => link.wrap(command),
        }
    }

    /// Returns the first of these programs that the host lacks. An ordinary user's PATH often has no administrators'
    /// directories.
    pub fn lacks(&self, programs: &[&str]) -> Result<Option<String>, ExecError> {
        let search = "PATH=$PATH:/usr/sbin:/sbin; for p; do command -v \"$p\" >/dev/null || printf '%s\\n' \"$p\"; done";
        let search = CommandLine::new("sh").args(["-c", search, "sh"]).args(programs);
        Ok(self.output(&search)?.stdout.lines().next().map(str::to_owned))
    }

    fn missing(&self, command: &CommandLine) -> ExecError {
        let program = command.program.to_string_lossy().into_owned();
        HostError::Missing { host: self.name.clone(), program }.into()
    }
}

impl Shell {
    /// Starts a shell that runs `prelude` once and `body` for each question, which is in `$ask`. Neither
    /// may read stdin. Returns after the prelude has finished.
    pub fn start(host: &Host, prelude: &str, body: &str) -> Result<Shell, ExecError> {
        let marks = Marks::new();
        let script = shell::script(&marks, prelude, body);
        let line = host.wrap(&CommandLine::new("sh").arg("-c").arg(script))?;
        Shell::start_with(host.name(), (&line, marks), &|stderr| shell::lost(host.name(), stderr))
    }
}

impl Exec for Host {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        let Some(link) = &self.link else {
            // pgio parses the output of its own commands, so they need the C locale; a command of the user
            // keeps its locale.
            let localized = (!command.own_session).then(|| command.clone().env("LC_ALL", "C"));
            let output = run_to_end(localized.as_ref().unwrap_or(command), None);
            return output.map_err(|error| match error {
                ExecError::Start { source, .. }
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    self.missing(command)
                }
                other => other,
            });
        };
        let output = link.output(command)?;
        match output.status.code() {
            // Status 255 is a failure of ssh or of the program: check the connection.
            Some(255) => link.check(&output.stderr).map(|()| output).map_err(ExecError::from),
            Some(127) if output.stderr.contains("not found") => Err(self.missing(command)),
            _ => Ok(output),
        }
    }
}

/// Distinguishes machines independently of their names. Fields are empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The boot id, unique per boot of a kernel.
    pub(super) boot: String,
    /// The pid namespace.
    pids: String,
    /// The network namespace; containers on the same kernel usually have different ones.
    network: String,
    /// The host name that the kernel reports.
    pub(super) name: String,
}

/// A machine as it is known after a reboot and under any name of an experiment. Fields are empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The host name that the kernel reports.
    #[serde(default)]
    pub name: String,
    /// The machine id of systemd.
    #[serde(default)]
    id: String,
}

impl Machine {
    pub fn this() -> Machine {
        let file = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Machine { name: file("/proc/sys/kernel/hostname"), id: file("/etc/machine-id") }
    }

    /// Whether it is certainly not the other one. A name may change, so it counts only without an id.
    pub fn is_another(&self, other: &Machine) -> bool {
        let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        if self.id.is_empty() || other.id.is_empty() {
            differ(&self.name, &other.name)
        } else {
            self.id != other.id
        }
    }
}

impl Identity {
    /// Prints the input of [`Identity::parse`].
    pub(super) const SCRIPT: &str = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo
        readlink /proc/self/ns/pid || echo
        readlink /proc/self/ns/net || echo
        cat /proc/sys/kernel/hostname 2>/dev/null || echo";

    pub(super) fn parse(text: &str) -> Identity {
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        let mut next = || lines.next().unwrap_or_default();
        Identity { boot: next(), pids: next(), network: next(), name: next() }
    }

    pub(super) fn current() -> Identity {
        let file = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let link = |path| fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
        Identity {
            boot: file("/proc/sys/kernel/random/boot_id"),
            pids: link("/proc/self/ns/pid"),
            network: link("/proc/self/ns/net"),
            name: file("/proc/sys/kernel/hostname"),
        }
    }

    fn shares_pids(&self, other: &Identity) -> bool {
        self.boot == other.boot && self.pids == other.pids
    }

    /// The same, but unknown fields prove nothing.
    fn certainly_shares_pids(&self, other: &Identity) -> bool {
        !self.boot.is_empty() && !self.pids.is_empty() && self.shares_pids(other)
    }

    /// Returns whether both are the same machine for certain. Containers on the same kernel differ in some
    /// fields; unknown fields prove nothing.
    fn is_certainly(&self, other: &Identity) -> bool {
        !self.boot.is_empty() && !self.network.is_empty() && self == other
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("host {host} cannot be reached: {message}; check [hosts.{host}] and try `{by_hand}`")]
    Unreachable { host: String, message: String, by_hand: String },
    #[error(
        "the key of host {host} is not in known_hosts; run `{by_hand}` once and accept the key, or \
         add it to known_hosts"
    )]
    UnknownKey { host: String, by_hand: String },
    #[error(
        "the key of host {host} differs from the one in known_hosts, which may indicate an attack; \
         find out why before you update known_hosts"
    )]
    ChangedKey { host: String },
    #[error(
        "host {host} refuses a login without a password: {message}; set up a key or an \
         agent so that `{by_hand}` does not prompt"
    )]
    Denied { host: String, message: String, by_hand: String },
    #[error(
        "hosts {one} and {other} are the same machine, so a change of one would affect the \
         other; write ssh = \"user@host\" of another machine in [hosts.{one}] or \
         [hosts.{other}], or remove one of them"
    )]
    SameMachine { one: String, other: String },
    #[error("program `{program}` is not installed on host {host}; install it there")]
    Missing { host: String, program: String },
    #[error(
        "{}, found by PATH, or its directory can be changed by others, and pgio runs as root; install the program elsewhere, or run pgio as an ordinary user", path.display()
    )]
    UntrustedProgram { path: PathBuf },
    #[error("lost connection to host {host}: {message}; check the host and the network")]
    Lost { host: String, message: String },
    #[error("host {host} did not answer within {} s; check the host and the network", limit.as_secs_f64())]
    Silent { host: String, limit: Duration },
}

/// Classifies the failure of a connection that was not established.
pub(super) fn classify(host: &str, stderr: &str, by_hand: &str) -> HostError {
    let (host, by_hand) = (host.to_owned(), by_hand.to_owned());
    let contains = |words: &str| stderr.contains(words);
    if contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        HostError::ChangedKey { host }
    } else if contains("Host key verification failed") {
        HostError::UnknownKey { host, by_hand }
    } else if contains("Permission denied") || contains("Too many authentication failures") {
        HostError::Denied { host, message: last_line(stderr), by_hand }
    } else {
        HostError::Unreachable { host, message: last_line(stderr), by_hand }
    }
}

/// Returns the last line of an output, where programs print the reason of a failure.
pub(super) fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("no message").trim_start_matches("ssh: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_recognized_under_any_name() {
        let here = Host::local();
        let named = Host::connect("db", &HostSpec::default()).unwrap();
        assert_eq!((here.name(), named.name()), ("local", "db"));
        assert!(here.is_same_machine(&named) && named.shares_pids_with_this_process());
        assert!(here.shares_pids_with(&named) && named.shares_pids_with(&here));
        let script = CommandLine::new("sh").args(["-c", Identity::SCRIPT]);
        assert_eq!(Identity::parse(&here.run(&script).unwrap()), here.identity);
        assert_ne!(here.identity.boot, "");
    }

    /// A host with this name and identity.
    fn host_with_identity(name: &str, text: &str) -> (String, Arc<Host>) {
        let host = Host { identity: Identity::parse(text), ..Host::local_as(name) };
        (name.to_owned(), Arc::new(host))
    }

    #[test]
    fn two_names_of_one_machine_are_refused_but_two_containers_are_not() {
        let refused = |one: &str, other: &str| {
            let hosts =
                Hosts::from([host_with_identity("db1", one), host_with_identity("db2", other)]);
            let specs = hosts.keys().map(|name| (name.clone(), HostSpec::default())).collect();
            refuse_duplicates(&specs, &hosts).map_err(|error| error.to_string())
        };
        let one = "boot\npid:[1]\nnet:[1]\ndb\n";
        let error = refused(one, one).unwrap_err();
        assert!(error.starts_with("hosts db1 and db2 are the same machine"), "{error}");
        for other in [
            "another\npid:[1]\nnet:[1]\ndb\n",
            "boot\npid:[2]\nnet:[1]\ndb\n",
            "boot\npid:[1]\nnet:[2]\ndb\n",
            "boot\npid:[1]\nnet:[1]\ndb-2\n",
        ] {
            assert_eq!(refused(one, other), Ok(()), "{other}");
        }
        for unknown in ["", "\npid:[1]\nnet:[1]\ndb\n", "boot\npid:[1]\n\ndb\n"] {
            assert_eq!(refused(unknown, unknown), Ok(()), "{unknown}");
        }
        // A name in addition to `local`.
        let specs = BTreeMap::from([("db".to_owned(), HostSpec::default())]);
        assert_eq!(connect_all(&specs).unwrap().len(), 2);
    }

    #[test]
    fn containers_on_one_kernel_have_pids_of_their_own() {
        let share = |one: &str, other: &str| {
            let (one, other) = (host_with_identity("db1", one), host_with_identity("db2", other));
            (one.1.is_same_machine(&other.1), one.1.shares_pids_with(&other.1))
        };
        let one = "boot\npid:[1]\nnet:[1]\ndb\n";
        assert_eq!(share(one, "boot\npid:[1]\nnet:[2]\ndb-2\n"), (true, true));
        assert_eq!(share(one, "boot\npid:[2]\nnet:[1]\ndb\n"), (true, false));
        assert_eq!(share("boot\n\n\n\n", "boot\n\n\n\n"), (true, false), "unknown");
        assert_eq!(share("", ""), (false, false));
    }

    #[test]
    fn timeouts_kill_the_whole_process_group() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("late");
        let script = format!("(sleep 2; echo late >{}) & wait", file.display());
        let slow = CommandLine::new("sh").args(["-c", script.as_str()]);
        let limit = Duration::from_millis(50);
        assert!(matches!(
            Host::local().output(&slow.timeout(limit)),
            Err(ExecError::TimedOut { .. })
        ));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!file.exists());
    }

    #[test]
    fn errors_name_the_host_of_a_missing_program() {
        let error = Host::local().output(&CommandLine::new("pgio-no-such")).unwrap_err();
        let expected = "program `pgio-no-such` is not installed on host local; install it there";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_machine_is_known_by_its_id_and_without_one_by_its_name() {
        let machine = |name: &str, id: &str| Machine { name: name.to_owned(), id: id.to_owned() };
        let this = machine("db1", "a");
        assert!(this.is_another(&machine("db1", "b")));
        assert!(!this.is_another(&machine("db2", "a")), "renamed");
        assert!(this.is_another(&machine("db2", "")) && !this.is_another(&machine("db1", "")));
        assert!(!this.is_another(&Machine::default()), "unknown");
        assert!(!Machine::this().is_another(&Machine::this()));
    }

    #[test]
    fn failures_are_classified_by_the_message_of_ssh() {
        let classified = |stderr| classify("db", stderr, "ssh me@db");
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n\
                       Host key verification failed.\n";
        assert_eq!(classified(changed), HostError::ChangedKey { host: "db".to_owned() });
        assert!(matches!(
            classified("Host key verification failed.\n"),
            HostError::UnknownKey { .. }
        ));
        let denied = classified("me@db: Permission denied (publickey).\r\n");
        assert_eq!(
            denied.to_string(),
            "host db refuses a login without a password: me@db: Permission denied \
             (publickey).; set up a key or an agent so that `ssh me@db` does not prompt"
        );
        assert_eq!(
            classified("ssh: connect to host db port 22: Connection refused\n").to_string(),
            "host db cannot be reached: connect to host db port 22: Connection refused; check \
             [hosts.db] and try `ssh me@db`"
        );
        assert!(classified("").to_string().contains("no message"));
    }
}
