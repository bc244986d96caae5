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
}

impl Identity {
    /// Prints what [`Identity::parse`] reads.
    pub(super) const SCRIPT: &str =
        "cat /proc/sys/kernel/random/boot_id 2>/dev/null; readlink /proc/self/ns/pid";

    pub(super) fn parse(text: &str) -> Identity {
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        Identity { boot: lines.next().unwrap_or_default(), pids: lines.next().unwrap_or_default() }
    }

    fn of_this_process() -> Identity {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Identity { boot: boot.trim().to_owned(), pids: pids.to_string_lossy().into_owned() }
    }
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
        self.link.is_none() || self.identity == Identity::of_this_process()
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
            // A Ctrl-C is ours to act on: it must not end a mount or a start half way.
            return run_to_end(command, true).map_err(|error| match error {
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

    #[test]
    fn what_takes_too_long_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("late");
        let script = format!("(sleep 0.4; echo late >{}) & wait", file.display());
        let slow = CommandLine::new("sh").args(["-c", script.as_str()]);
        let limit = std::time::Duration::from_millis(50);
        assert!(matches!(
            Host::local().output(&slow.timeout(limit)),
            Err(ExecError::TimedOut { .. })
        ));
        std::thread::sleep(std::time::Duration::from_millis(800));
        assert!(!file.exists());
    }

    #[test]
    fn a_missing_program_is_missing_on_a_host() {
        let error = Host::local().output(&CommandLine::new("pgio-no-such")).unwrap_err();
        let expected = "program `pgio-no-such` is not on host local: install it there";
        assert_eq!(error.to_string(), expected);
    }
}
