//! DRBD on one host: what it says, and the commands that change it. Both kernel modules take the
//! same path from here on.

use std::sync::Arc;
use std::time::Duration;

use crate::host::Host;
use crate::host::drbd::show::{self, Config, Options};
use crate::host::drbd::{DrbdError, Generation, State, events, generation, status};
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::{Capability, Prefix, Rights};
use crate::treatment::TreatmentError;

const LIMIT: Duration = Duration::from_secs(60);

/// What goes into the journal to tell a machine that was started again.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

pub(super) struct Node {
    pub(super) name: String,
    pub(super) exec: Arc<dyn Exec>,
    pub(super) boot: String,
    generation: Generation,
    root: Prefix,
}

/// A resource at one moment.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) states: Vec<State>,
    pub(super) config: Config,
}

impl Seen {
    pub(super) fn net_options(&self) -> Options {
        self.config.connections.first().map(|c| c.options.clone()).unwrap_or_default()
    }
}

impl Node {
    pub(super) fn open(host: Arc<Host>) -> Result<Node, TreatmentError> {
        let name = host.name().to_owned();
        Node::over(name, host)
    }

    pub(super) fn over(name: String, exec: Arc<dyn Exec>) -> Result<Node, TreatmentError> {
        let look = CommandLine::new("cat").args([BOOT, "/proc/drbd"]).timeout(LIMIT);
        let output = exec.output(&look)?;
        if !output.status.success() {
            return Err(TreatmentError::Refused(format!(
                "host {name} has no DRBD: `modprobe drbd` there, and bring the resource up"
            )));
        }
        let (boot, version) = output.stdout.split_once('\n').unwrap_or_default();
        let generation = generation(version).map_err(|e| on(&name, &e))?;
        let root = Rights::find(exec.as_ref())?
            .as_root(
                exec.as_ref(),
                &name,
                "to read and change DRBD",
                Some(Capability::NetAdmin),
                &["drbdsetup", "drbdadm"],
            )
            .map_err(|e| TreatmentError::Refused(e.to_string()))?;
        Ok(Node { boot: boot.to_owned(), name, exec, generation, root })
    }

    pub(super) fn see(&self, resource: &str) -> Result<Seen, TreatmentError> {
        let show = ["drbdsetup", "show", "--show-defaults"];
        let configs = match self.generation {
            Generation::V84 => show::parse(&self.run(show)?),
            Generation::V9 => show::parse_json(&self.run([show.as_slice(), &["--json"]].concat())?),
        };
        let configs = configs.map_err(|e| on(&self.name, &e))?;
        let others: Vec<String> = configs.iter().map(|c| c.resource.clone()).collect();
        let config = configs.into_iter().find(|c| c.resource == resource);
        let states = self.states(resource)?;
        match config.filter(|_| !states.is_empty()) {
            Some(config) => Ok(Seen { states, config }),
            None => Err(TreatmentError::Refused(format!(
                "there is no DRBD resource `{resource}` up on host {}; there {}",
                self.name,
                match others.as_slice() {
                    [] => "is none: `drbdadm up` it".to_owned(),
                    others => format!("are {}", others.join(", ")),
                }
            ))),
        }
    }

    /// None where the resource is not up.
    pub(super) fn states(&self, resource: &str) -> Result<Vec<State>, TreatmentError> {
        let states = match self.generation {
            Generation::V84 => {
                events::parse(&self.run(["drbdsetup", "events2", "--now", "--statistics"])?)
            }
            Generation::V9 => {
                status::parse(&self.run(["drbdsetup", "status", "--json", "--statistics"])?)
            }
        };
        let mut states = states.map_err(|e| on(&self.name, &e))?;
        states.retain(|state| state.resource.as_deref() == Some(resource));
        Ok(states)
    }

    pub(super) fn connect(&self, resource: &str) -> Result<(), TreatmentError> {
        self.run(["drbdadm", "connect", resource]).map(drop)
    }

    pub(super) fn disconnect(&self, resource: &str) -> Result<(), TreatmentError> {
        self.run(["drbdadm", "disconnect", resource]).map(drop)
    }

    /// Changes these options and no other. drbdadm of module 9 would bring those of its files
    /// along, and drbdsetup of 8.4 wants both addresses.
    pub(super) fn set_net(
        &self,
        resource: &str,
        config: &Config,
        options: &Options,
    ) -> Result<(), TreatmentError> {
        let set = options.iter().map(|(name, value)| format!("--{name}={value}"));
        let set: Vec<String> = set.collect();
        let mut line = vec![match self.generation {
            Generation::V84 => "drbdadm",
            Generation::V9 => "drbdsetup",
        }];
        line.push("net-options");
        match self.generation {
            Generation::V84 => {
                line.extend(set.iter().map(String::as_str));
                line.push(resource);
                self.run(line)?;
            }
            Generation::V9 => {
                for connection in &config.connections {
                    let peer = connection.node_id.unwrap_or_default().to_string();
                    let mut line = line.clone();
                    line.extend([resource, &peer]);
                    line.extend(set.iter().map(String::as_str));
                    self.run(line)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn set_disk(
        &self,
        minor: u32,
        name: &str,
        value: &str,
    ) -> Result<(), TreatmentError> {
        let (minor, option) = (minor.to_string(), format!("--{name}={value}"));
        self.run(["drbdsetup", "disk-options", &minor, &option]).map(drop)
    }

    fn run<A: AsRef<str>>(
        &self,
        words: impl IntoIterator<Item = A>,
    ) -> Result<String, TreatmentError> {
        Ok(self.exec.run(&self.root.line(words).timeout(LIMIT))?)
    }
}

fn on(host: &str, error: &DrbdError) -> TreatmentError {
    TreatmentError::Refused(format!("on host {host}: {}", crate::pg::words::sentence(error)))
}
