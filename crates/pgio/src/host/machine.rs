//! A host of the experiment: this machine, or one reached by ssh. Both take the same path.
//!
//! Commands go through [`Exec`], scripts that live on through [`super::shell::Shell`]; the one
//! difference is [`Host::here`], which for a remote host puts ssh in front. What is found on a
//! host is none of this module's business. Next: [`super::ssh`], [`super::storage`].

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use super::error::HostError;
use super::exec::{CommandLine, Exec, ExecError, Output, run_to_end};
use super::ssh::Link;
use crate::config::experiment::HostSpec;

/// The name of this machine where the experiment gives it none.
pub const LOCAL: &str = "local";

/// Machines by the experiment's names, this one included.
pub type Hosts = BTreeMap<String, Arc<Host>>;

#[derive(Debug)]
pub struct Host {
    name: String,
    /// None: this machine.
    link: Option<Link>,
    identity: Identity,
}

/// Tells machines apart, whatever they are called. Empty where the kernel does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// One per boot of a kernel.
    boot: String,
    /// The process numbers' name space: what a pid means.
    pids: String,
    /// The network's, which containers on one kernel mostly have of their own.
    network: String,
    /// As it calls itself.
    name: String,
}

impl Identity {
    /// Prints what [`Identity::parse`] reads.
    pub(super) const SCRIPT: &str = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo
        readlink /proc/self/ns/pid || echo
        readlink /proc/self/ns/net || echo
        cat /proc/sys/kernel/hostname 2>/dev/null || echo";

    pub(super) fn parse(text: &str) -> Identity {
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        let mut next = || lines.next().unwrap_or_default();
        Identity { boot: next(), pids: next(), network: next(), name: next() }
    }

    fn of_this_process() -> Identity {
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

    /// Containers on one kernel differ in some of it; what is not told decides nothing.
    fn is_surely(&self, other: &Identity) -> bool {
        !self.boot.is_empty() && !self.network.is_empty() && self == other
    }
}

/// All hosts of a file, and this machine; refused where two of the names are one machine.
pub fn connect_all(specs: &BTreeMap<String, HostSpec>) -> Result<Hosts, ExecError> {
    let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(Host::local()))]);
    for (name, spec) in specs {
        hosts.insert(name.clone(), Arc::new(Host::connect(name, spec)?));
    }
    refuse_twins(specs, &hosts)?;
    Ok(hosts)
}

/// Of those that are reached; this machine may have a name of its own beside `local`.
pub fn refuse_twins(specs: &BTreeMap<String, HostSpec>, hosts: &Hosts) -> Result<(), HostError> {
    let named: Vec<&Arc<Host>> = specs.keys().filter_map(|name| hosts.get(name)).collect();
    for (at, other) in named.iter().enumerate() {
        if let Some(one) = named[..at].iter().find(|h| h.identity.is_surely(&other.identity)) {
            return Err(HostError::Twins { one: one.name.clone(), other: other.name.clone() });
        }
    }
    Ok(())
}

impl Host {
    pub fn local() -> Host {
        Host::here_as(LOCAL)
    }

    fn here_as(name: &str) -> Host {
        Host { name: name.to_owned(), link: None, identity: Identity::of_this_process() }
    }

    /// Connects where the specification says ssh. Nothing is ever asked of the user.
    pub fn connect(name: &str, spec: &HostSpec) -> Result<Host, ExecError> {
        let Some(destination) = &spec.ssh else { return Ok(Host::here_as(name)) };
        let (link, identity) = Link::open(name, destination, spec.ssh_config.as_deref())?;
        Ok(Host { name: name.to_owned(), link: Some(link), identity })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells one boot of its kernel from the next; empty where the kernel does not say.
    pub fn boot(&self) -> &str {
        &self.identity.boot
    }

    /// As the machine calls itself; the experiment's name for it where it does not say.
    pub fn node(&self) -> &str {
        if self.identity.name.is_empty() { &self.name } else { &self.identity.name }
    }

    /// Reached without a connection that could break.
    pub fn is_here(&self) -> bool {
        self.link.is_none()
    }

    /// Whether two names, perhaps of two ways there, mean one machine.
    pub fn is_same_machine(&self, other: &Host) -> bool {
        !self.identity.boot.is_empty() && self.identity.boot == other.identity.boot
    }

    /// Whether a process number of this program's means the same process there.
    pub fn shares_pids_with_this_process(&self) -> bool {
        self.link.is_none() || self.identity.shares_pids(&Identity::of_this_process())
    }

    /// What to run on this machine so that `command` runs on the host.
    pub(super) fn here(&self, command: &CommandLine) -> Result<CommandLine, ExecError> {
        match &self.link {
            None => Ok(command.clone()),
            Some(link) => link.wrap(command),
        }
    }

    fn missing(&self, command: &CommandLine) -> ExecError {
        let program = command.program().to_string_lossy().into_owned();
        HostError::Missing { host: self.name.clone(), program }.into()
    }
}

impl Exec for Host {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        let Some(link) = &self.link else {
            // What programs say is read, as over ssh; a user's own command speaks as it does.
            let told = (!command.is_apart()).then(|| command.clone().env("LC_ALL", "C"));
            // A Ctrl-C is ours to act on: it must not end a mount or a start half way.
            return run_to_end(told.as_ref().unwrap_or(command), true).map_err(
                |error| match error {
                    ExecError::Start { source, .. }
                        if source.kind() == std::io::ErrorKind::NotFound =>
                    {
                        self.missing(command)
                    }
                    other => other,
                },
            );
        };
        let output = link.output(command)?;
        match output.status.code() {
            // ssh's own failure, or the program's: only then is it worth asking.
            Some(255) => link.check(&output.stderr).map(|()| output).map_err(ExecError::from),
            Some(127) if output.stderr.contains("not found") => Err(self.missing(command)),
            _ => Ok(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_itself_under_any_name() {
        let here = Host::local();
        let named = Host::connect("db", &HostSpec::default()).unwrap();
        assert_eq!((here.name(), named.name()), ("local", "db"));
        assert!(here.is_same_machine(&named) && named.shares_pids_with_this_process());
        let script = CommandLine::new("sh").args(["-c", Identity::SCRIPT]);
        assert_eq!(Identity::parse(&here.run(&script).unwrap()), here.identity);
        assert_ne!(here.identity.boot, "");
    }

    /// A machine by another name, as it tells of itself.
    fn told(name: &str, text: &str) -> (String, Arc<Host>) {
        let host = Host { identity: Identity::parse(text), ..Host::here_as(name) };
        (name.to_owned(), Arc::new(host))
    }

    #[test]
    fn two_names_of_one_machine_are_told_and_two_containers_are_not() {
        let refused = |one: &str, other: &str| {
            let hosts = Hosts::from([told("db1", one), told("db2", other)]);
            let specs = hosts.keys().map(|name| (name.clone(), HostSpec::default())).collect();
            refuse_twins(&specs, &hosts).map_err(|error| error.to_string())
        };
        let one = "boot\npid:[1]\nnet:[1]\ndb\n";
        let error = refused(one, one).unwrap_err();
        assert!(error.starts_with("hosts db1 and db2 are one machine"), "{error}");
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
        // Beside the name that it has anyway.
        let specs = BTreeMap::from([("db".to_owned(), HostSpec::default())]);
        assert_eq!(connect_all(&specs).unwrap().len(), 2);
    }

    #[test]
    fn what_takes_too_long_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("late");
        let script = format!("(sleep 2; echo late >{}) & wait", file.display());
        let slow = CommandLine::new("sh").args(["-c", script.as_str()]);
        let limit = std::time::Duration::from_millis(50);
        assert!(matches!(
            Host::local().output(&slow.timeout(limit)),
            Err(ExecError::TimedOut { .. })
        ));
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(!file.exists());
    }

    #[test]
    fn a_missing_program_is_missing_on_a_host() {
        let error = Host::local().output(&CommandLine::new("pgio-no-such")).unwrap_err();
        let expected = "program `pgio-no-such` is not on host local: install it there";
        assert_eq!(error.to_string(), expected);
    }
}
