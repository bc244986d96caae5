//! A host of the experiment: this machine, or a remote one over ssh, with the same interface.
//!
//! [`Exec`] runs single commands, [`super::shell::Shell`] runs persistent scripts. The only difference
//! is in [`Host::wrap`], which prepends ssh for a remote host. This module does not interpret what it
//! finds on a host. Next: [`super::ssh`], [`super::storage`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::HostError;
use super::exec::{CommandLine, Exec, ExecError, Output, run_to_end};
use super::identity::Identity;
use super::marks::Marks;
use super::shell::{self, Shell};
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
        let program = command.program().to_string_lossy().into_owned();
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
            let localized =
                (!command.has_own_session()).then(|| command.clone().env("LC_ALL", "C"));
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
        let limit = std::time::Duration::from_millis(50);
        assert!(matches!(
            Host::local().output(&slow.timeout(limit)),
            Err(ExecError::TimedOut { .. })
        ));
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(!file.exists());
    }

    #[test]
    fn errors_name_the_host_of_a_missing_program() {
        let error = Host::local().output(&CommandLine::new("pgio-no-such")).unwrap_err();
        let expected = "program `pgio-no-such` is not installed on host local; install it there";
        assert_eq!(error.to_string(), expected);
    }
}
