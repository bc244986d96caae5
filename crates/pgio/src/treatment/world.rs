//! What treatments act on: the server of a target, the hosts of the experiment, the way to stop and
//! start PostgreSQL.
//!
//! The same for a running experiment, which has connections already, and for `pgio undo`, which
//! connects only when a step needs it: a server that an interrupted run left stopped must not keep a
//! mount from being put back. Next: the treatments, one file each.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::postgres::Client;

use super::{Moved, Replica, TreatmentError};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts};
use crate::pg::connect::{self, ConnectParams};
use crate::pg::control::Controller;
use crate::pg::private::PrivateCluster;
use crate::pg::{interrupt, server, words};

/// For a server that was started to answer.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Stops and starts the server of a target; each returns when that is done, at once where it is
/// so already.
pub trait Control {
    fn stop(&mut self) -> Result<(), String>;
    /// When it answers again.
    fn start(&mut self) -> Result<(), String>;
    /// Of a private cluster with a standby.
    fn pair(&self) -> Option<Pair> {
        None
    }
}

/// A private primary and its standby, for what is put between them.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Only the servers' user and root may enter; gone with the cluster.
    pub directory: PathBuf,
    /// Where the primary listens.
    pub primary_socket: PathBuf,
    /// A connection string for the standby.
    pub standby: String,
}

impl Control for Arc<PrivateCluster> {
    fn stop(&mut self) -> Result<(), String> {
        self.stop_primary().map_err(|e| words::sentence(&e))
    }

    fn start(&mut self) -> Result<(), String> {
        self.start_primary().map_err(|e| words::sentence(&e))
    }

    fn pair(&self) -> Option<Pair> {
        Some(Pair {
            directory: self.directory().to_owned(),
            primary_socket: self.primary_socket(),
            standby: self.standby_conninfo()?,
        })
    }
}

impl Control for Controller {
    fn stop(&mut self) -> Result<(), String> {
        Controller::stop(self).map_err(|e| words::sentence(&e))
    }

    fn start(&mut self) -> Result<(), String> {
        Controller::start(self).map_err(|e| words::sentence(&e))
    }
}

/// The coordinating session.
pub enum Door<'a> {
    Open(&'a mut Client),
    /// Connected when first asked for.
    OnDemand(Box<Option<Client>>),
}

/// What treatments act on.
pub struct World<'a> {
    pub params: &'a ConnectParams,
    pub door: Door<'a>,
    /// Those that are reached; in an undo the ones that the steps name.
    pub hosts: &'a Hosts,
    /// In `hosts`: where the server runs, as far as that is known.
    pub server_host: Option<&'a str>,
    /// Present where the server may be stopped: it is ours, or its target says how.
    pub control: Option<&'a mut dyn Control>,
    /// The server is a private cluster: gone at the end, whatever is done to it.
    pub private: bool,
    /// While a condition is checked: what its treatments so far will have moved.
    pub moved: Vec<Moved>,
    /// Likewise: where they know the other half of the data to be.
    pub replicas: Vec<Replica>,
    /// Heard by whatever waits for long.
    pub stop: Stop,
}

/// The part of it that is there before any server.
#[derive(Debug, Clone, Copy)]
pub struct Machines<'a> {
    pub hosts: &'a Hosts,
    /// In `hosts`: where the server runs or will run.
    pub server: Option<&'a str>,
}

impl Machines<'_> {
    /// The host of that name; without a name the server's own.
    pub fn host(&self, name: Option<&str>) -> Result<Arc<Host>, TreatmentError> {
        let name = name.or(self.server).ok_or_else(|| {
            TreatmentError::Refused(
                "where the server runs is not known, and no other machine is touched in its place: set host in [target], or in the treatment".to_owned(),
            )
        })?;
        self.hosts.get(name).cloned().ok_or_else(|| {
            TreatmentError::Refused(format!(
                "host `{name}` is not known: write [hosts.{name}] with ssh = \"user@host\""
            ))
        })
    }
}

/// For a server that is asked for something small while something is put back: one that is silent for
/// longer does not answer, and what it holds stays in the journal. Whoever asked pgio to stop waits less.
fn patience(stop: &Stop) -> Duration {
    match (stop.urgent(), stop.requested()) {
        (true, _) => Duration::from_secs(1),
        (false, true) => Duration::from_secs(5),
        (false, false) => Duration::from_secs(15),
    }
}

/// What puts something back must neither fail by a role's limits nor wait for a standby that is gone.
fn open(params: &ConnectParams) -> Result<Client, TreatmentError> {
    let mut client = connect::connect(params).map_err(TreatmentError::Connect)?;
    server::lift_limits(&mut client)
        .and_then(|()| client.batch_execute("SET synchronous_commit = local"))
        .map_err(|source| TreatmentError::Postgres {
            doing: "prepare a session".to_owned(),
            source,
        })?;
    Ok(client)
}

impl fmt::Debug for Door<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({})", self.params.describe())
    }
}

impl World<'_> {
    /// The session; a new one in place of one that a restart ended.
    pub fn admin(&mut self) -> Result<&mut Client, TreatmentError> {
        let limit = patience(&self.stop);
        let open = || interrupt::within(limit, || open(self.params));
        let restoring = self.stop.is_restoring();
        let is_there = |client: &mut Client| {
            let there = !client.is_closed() && (!restoring || client.is_valid(limit).is_ok());
            if !there {
                // Or dropping it would wait for the answer that does not come.
                interrupt::cut_all();
            }
            there
        };
        match &mut self.door {
            Door::Open(client) => {
                if !is_there(client) {
                    **client = open()?;
                }
                Ok(client)
            }
            Door::OnDemand(client) => {
                if !client.as_mut().as_mut().is_some_and(is_there) {
                    **client = Some(open()?);
                }
                Ok(client.as_mut().as_mut().expect("opened above"))
            }
        }
    }

    /// In place of a session that a restart ended, which it may not have noticed yet.
    pub fn reconnect(&mut self) -> Result<(), TreatmentError> {
        let deadline = Instant::now() + PATIENCE;
        let client = loop {
            match interrupt::within(patience(&self.stop), || open(self.params)) {
                Ok(client) => break client,
                // Systemd's word that a server is up may come before it takes connections.
                Err(_) if Instant::now() < deadline && !self.stop.urgent() => thread::sleep(POLL),
                Err(error) => return Err(error),
            }
        };
        match &mut self.door {
            Door::Open(admin) => **admin = client,
            Door::OnDemand(admin) => **admin = Some(client),
        }
        Ok(())
    }

    /// Something small that puts something back: a server that has not done it in time does not answer.
    pub fn briefly<T>(
        &mut self,
        restore: impl FnOnce(&mut Self) -> Result<T, TreatmentError>,
    ) -> Result<T, TreatmentError> {
        let limit = patience(&self.stop) * 2;
        interrupt::within(limit, || restore(self))
    }

    /// Whether a trial may follow, which nothing left running may disturb; not so in `pgio undo`.
    pub fn goes_on(&self) -> bool {
        matches!(self.door, Door::Open(_))
    }

    pub fn machines(&self) -> Machines<'_> {
        Machines { hosts: self.hosts, server: self.server_host }
    }

    /// The host of that name; without a name the server's own.
    pub fn host(&self, name: Option<&str>) -> Result<Arc<Host>, TreatmentError> {
        self.machines().host(name)
    }

    /// To be stopped or started for `what`; refused where nothing says how.
    pub fn control(&mut self, what: &str) -> Result<&mut (dyn Control + '_), TreatmentError> {
        match &mut self.control {
            Some(control) => Ok(&mut **control),
            None => Err(TreatmentError::Refused(format!(
                "{what} needs PostgreSQL stopped and started, which pgio does only to a cluster of its own or where [target] says control = \"pg_ctl\" or \"systemctl UNIT\""
            ))),
        }
    }

    /// Something must be in the journal by then whose undo starts it.
    pub fn stop(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.control(what)?.stop().map_err(TreatmentError::Restart)
    }

    /// Returns when the server answers again, through a new session.
    pub fn start(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.control(what)?.start().map_err(TreatmentError::Restart)?;
        self.reconnect()
    }

    /// Returns when the server answers again, through a new session.
    pub fn restart(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.stop(what)?;
        self.start(what)
    }

    /// For an undo that needs the server: a run that was killed within a restart left it down.
    pub fn wake(&mut self) -> Result<(), TreatmentError> {
        match self.admin().map(drop) {
            Err(_) if self.control.is_some() => self.start("to put a setting back"),
            other => other,
        }
    }
}
