//! The context of treatments: the server of a target, the hosts of the experiment, the way to stop and
//! start PostgreSQL.
//!
//! The same for a running experiment, which is connected already, and for `pgio undo`, which
//! connects only when a step needs it: a server that an interrupted run left stopped must not keep a
//! mount from being restored. Next: the treatments, one file each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use pgio_connect::Client;

use super::error::TreatmentError;
use super::resource::ChangedServer;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts};
use crate::pg::control::{Controller, Line};
use crate::pg::private::PrivateCluster;
use crate::pg::{replication, server, session, values, words};
use pgio_connect::{self, ConnectParams, interrupt};

/// How long a started server may take to accept connections.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long its standbys may take to connect again.
const STANDBY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reload may take to reach a session.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// Stops and starts the server of a target. Both return when that is done, at once if it is
/// already so.
pub trait Control {
    fn stop(&mut self) -> Result<(), String>;
    /// Starts the server; returns when it accepts connections.
    fn start(&mut self) -> Result<(), String>;
    /// The line of a setting in postgresql.auto.conf, for a server that does not start with it.
    fn line_while_down(&mut self, _name: &str) -> Result<Line, String> {
        Ok(Line::Unknown)
    }
    /// Replaces that line; without a value removes it.
    fn set_line_while_down(&mut self, name: &str, _value: Option<&str>) -> Result<(), String> {
        Err(format!("{name} cannot be changed while this server is down"))
    }
    /// Why the server can be neither stopped nor started now, although its target says how.
    fn unreachable_reason(&self) -> Option<String> {
        None
    }
    /// The servers of a private cluster with one standby.
    fn pair(&self) -> Option<Pair> {
        None
    }
}

/// A private primary and its standby, for a relay between them.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The directory of the cluster; only the servers' user and root may enter it.
    pub directory: PathBuf,
    /// The socket of the primary.
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
        // With several, it would be unclear between which two servers a relay lies.
        if self.standbys().count() != 1 {
            return None;
        }
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

    fn line_while_down(&mut self, name: &str) -> Result<Line, String> {
        Controller::line_while_down(self, name).map_err(|e| words::sentence(&e))
    }

    fn set_line_while_down(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        Controller::set_line_while_down(self, name, value).map_err(|e| words::sentence(&e))
    }

    fn unreachable_reason(&self) -> Option<String> {
        self.restart_obstacle().map(|e| words::sentence(&e))
    }
}

/// The control of a server whose host cannot be reached, for this reason.
#[derive(Debug)]
pub struct UnreachableControl(pub String);

impl Control for UnreachableControl {
    fn stop(&mut self) -> Result<(), String> {
        Err(self.0.clone())
    }

    fn start(&mut self) -> Result<(), String> {
        Err(self.0.clone())
    }

    fn unreachable_reason(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

/// The admin session of a run or of an undo.
pub enum AdminSession<'a> {
    Open(&'a mut Client),
    /// Connected on first use.
    OnDemand(Box<OnDemand>),
    /// In an undo: the journal's connection string cannot be resolved here, for this reason.
    Unresolved(String),
}

/// The session of an undo.
#[derive(Default)]
pub struct OnDemand {
    client: Option<Client>,
}

/// The server and the hosts that treatments act on.
pub struct Context<'a> {
    pub params: &'a ConnectParams,
    pub session: AdminSession<'a>,
    /// Whether an open session ended and was replaced by one that announces no run.
    pub is_renewed: bool,
    /// The server that every new session must be of.
    pub changed: ChangedServer,
    /// The hosts that are connected; in an undo those that the steps name.
    pub hosts: &'a Hosts,
    /// The server's host by its name in `hosts`, if known.
    pub server_host: Option<&'a str>,
    /// Present if the server may be stopped: it is private, or its target configures how.
    pub control: Option<&'a mut dyn Control>,
    /// Whether the server is a private cluster, which is removed at the end.
    pub private: bool,
    /// Filled while a condition is checked.
    pub layout: Layout,
    /// Present while the server is down because pgio stopped it: the standbys that were connected then.
    pub streaming: Option<Vec<String>>,
    /// Checked by everything that waits for long.
    pub stop: Stop,
}

/// What later treatments must know of the condition's treatments that are checked so far.
#[derive(Debug, Default)]
pub struct Layout {
    /// Settings of the server and their values as requested.
    pub settings: Vec<(String, String)>,
    pub moved: Vec<Moved>,
    pub replicas: Vec<Replica>,
    /// Whether the data set is read into memory.
    pub is_warmed: bool,
}

/// Files of the server that lie on another device while a treatment is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// On the server's host, without symbolic links; everything below it moves with it.
    pub directory: String,
    /// A path in /dev.
    pub device: String,
    /// A new tablespace, as opposed to a directory that existed before.
    pub is_tablespace: bool,
}

/// A copy of the server's data that another host keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    pub host: String,
    /// Description, such as `DRBD r0`.
    pub description: String,
    /// Paths in /dev.
    pub devices: Vec<String>,
}

/// The hosts alone: the part of a context that exists before any server runs.
#[derive(Debug, Clone, Copy)]
pub struct Machines<'a> {
    pub hosts: &'a Hosts,
    /// The name in `hosts` of the host where the server runs or will run.
    pub server: Option<&'a str>,
}

impl Machines<'_> {
    /// The host of that name; without a name the server's own.
    pub fn host(&self, name: Option<&str>) -> Result<Arc<Host>, TreatmentError> {
        let name = name.or(self.server).ok_or_else(|| {
            TreatmentError::Refused(
                "the server's host is unknown: set host in [target], or in the treatment"
                    .to_owned(),
            )
        })?;
        self.hosts.get(name).cloned().ok_or_else(|| {
            TreatmentError::Refused(format!(
                "unknown host `{name}`: write [hosts.{name}] with ssh = \"user@host\""
            ))
        })
    }
}

/// How long an undo waits for a short answer of the server; after that its steps stay in the journal.
/// Shorter once a stop was requested.
fn timeout(stop: &Stop) -> Duration {
    match (stop.urgent(), stop.requested()) {
        (true, _) => Duration::from_secs(1),
        (false, true) => Duration::from_secs(5),
        (false, false) => Duration::from_secs(15),
    }
}

fn open_again(
    params: &ConnectParams,
    changed: &ChangedServer,
    stop: &Stop,
) -> Result<Client, TreatmentError> {
    server::open_after_recovery(
        || timeout(stop),
        TreatmentError::is_recovery,
        || interrupt::within(timeout(stop), || open(params, changed)),
    )
}

/// An undo must neither fail by the limits of a role nor wait for a lost standby.
fn open(params: &ConnectParams, changed: &ChangedServer) -> Result<Client, TreatmentError> {
    let mut client = session::open(params).map_err(TreatmentError::Connect)?;
    client
        .batch_execute("SET synchronous_commit = local")
        .map_err(TreatmentError::postgres("prepare a session"))?;
    changed.check(&mut client, params)?;
    Ok(client)
}

fn unresolved(why: &str) -> TreatmentError {
    TreatmentError::Refused(format!(
        "the journal's connection string cannot be used here ({why}): correct that, or name another one with `pgio undo --connect`"
    ))
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDemand")
    }
}

impl fmt::Debug for AdminSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminSession")
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.params.describe())
    }
}

impl Context<'_> {
    /// The session; a new one if a restart ended the former.
    pub fn admin(&mut self) -> Result<&mut Client, TreatmentError> {
        let limit = timeout(&self.stop);
        let (params, changed) = (self.params, &self.changed);
        let restoring = self.stop.is_restoring();
        let is_alive = |client: &mut Client| {
            let alive = !client.is_closed() && (!restoring || client.is_valid(limit));
            if !alive {
                // Dropping the session would wait for an answer that never comes.
                interrupt::cut_all();
            }
            alive
        };
        match &mut self.session {
            AdminSession::Open(client) => {
                if !is_alive(client) {
                    **client = open_again(params, changed, &self.stop)?;
                    self.is_renewed = true;
                }
                Ok(client)
            }
            AdminSession::OnDemand(session) => {
                if !session.client.as_mut().is_some_and(is_alive) {
                    let client = open_again(params, changed, &self.stop)?;
                    return Ok(session.client.insert(client));
                }
                Ok(session.client.as_mut().expect("`is_alive` found it"))
            }
            AdminSession::Unresolved(why) => Err(unresolved(why)),
        }
    }

    /// The process of the session, on the server's host.
    pub fn backend_pid(&mut self) -> Result<i32, TreatmentError> {
        let row = self.admin()?.query_one("SELECT pg_backend_pid()", &[]);
        row.and_then(|row| row.try_get(0))
            .map_err(TreatmentError::postgres("query the session's process ID"))
    }

    /// Replaces a session that a restart ended, which the client may not have noticed yet.
    pub fn reconnect(&mut self) -> Result<(), TreatmentError> {
        if let AdminSession::Unresolved(why) = &self.session {
            return Err(unresolved(why));
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let opened =
                interrupt::within(timeout(&self.stop), || open(self.params, &self.changed));
            match opened {
                Ok(client) => {
                    match &mut self.session {
                        AdminSession::Open(admin) => **admin = client,
                        AdminSession::OnDemand(session) => session.client = Some(client),
                        AdminSession::Unresolved(why) => return Err(unresolved(why)),
                    }
                    return Ok(());
                }
                Err(error @ (TreatmentError::Refused(_) | TreatmentError::OtherServer(_))) => {
                    return Err(error);
                }
                // systemd may report a server as started before it accepts connections.
                Err(_) if Instant::now() < deadline && !self.stop.urgent() => thread::sleep(POLL),
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a short part of an undo; cuts the connection of a server that takes too long.
    pub fn within_limit<T>(
        &mut self,
        restore: impl FnOnce(&mut Self) -> Result<T, TreatmentError>,
    ) -> Result<T, TreatmentError> {
        let limit = timeout(&self.stop) * 2;
        interrupt::within(limit, || restore(self))
    }

    /// Whether a trial may follow, as opposed to `pgio undo`. Nothing may be left running then.
    pub fn precedes_trial(&self) -> bool {
        matches!(self.session, AdminSession::Open(_))
    }

    pub fn machines(&self) -> Machines<'_> {
        Machines { hosts: self.hosts, server: self.server_host }
    }

    /// The host of that name; without a name the server's own.
    pub fn host(&self, name: Option<&str>) -> Result<Arc<Host>, TreatmentError> {
        self.machines().host(name)
    }

    /// Returns the way to stop and start the server, or refuses `what`, which needs it, if nothing configures it.
    pub fn control(&mut self, what: &str) -> Result<&mut (dyn Control + '_), TreatmentError> {
        match &mut self.control {
            Some(control) => Ok(&mut **control),
            None => Err(TreatmentError::Refused(format!(
                "{what} requires stopping and starting PostgreSQL, which pgio does only to a private cluster or if [target] sets control = \"pg_ctl\" or \"systemctl UNIT\""
            ))),
        }
    }

    /// Why the server cannot be restarted; none if it can.
    pub fn restart_obstacle(&self) -> Option<String> {
        match &self.control {
            Some(control) => control.unreachable_reason(),
            None => Some("the journal does not say how".to_owned()),
        }
    }

    /// Before a condition restarts or reloads the server: refuses to put in force what someone else prepared in
    /// its configuration files. An undo asks only before it restarts a server that runs, since it has to restore the
    /// server.
    pub fn refuse_pending(&mut self, restarts: bool) -> Result<(), TreatmentError> {
        if self.private {
            return Ok(());
        }
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        loop {
            let admin = self.admin()?;
            let found =
                if restarts { values::for_restart(admin) } else { values::for_reload(admin) };
            let names = found.map_err(TreatmentError::postgres("query pending settings"))?;
            if names.is_empty() {
                return Ok(());
            }
            // The reload of an undo may not have reached this session.
            if Instant::now() > deadline {
                let how = if restarts { "restart" } else { "reload" };
                return Err(TreatmentError::Refused(format!(
                    "a {how} would also put in force what someone prepared in the server's configuration files ({}): reload or restart the server, or revert that, first",
                    names.join(", ")
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// The step that starts it again must be in the journal already.
    pub fn stop_server(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.streaming = Some(self.streaming());
        self.control(what)?.stop().map_err(TreatmentError::Restart)
    }

    /// Returns when the server answers, through a new session, and its standbys are connected again.
    pub fn start_server(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.control(what)?.start().map_err(TreatmentError::Restart)?;
        let wanted = self.streaming.take().unwrap_or_default();
        self.reconnect()?;
        self.await_standbys(&wanted);
        Ok(())
    }

    /// A standby tries again every `wal_retrieve_retry_interval`, by default 5 s. One that stays away is
    /// no error here: what needs it checks for it.
    fn await_standbys(&mut self, wanted: &[String]) {
        let deadline = Instant::now() + STANDBY_TIMEOUT;
        while !wanted.is_empty() && Instant::now() < deadline && !self.stop.requested() {
            let connected = self.streaming();
            if wanted.iter().all(|name| connected.contains(name)) {
                return;
            }
            thread::sleep(POLL);
        }
    }

    fn streaming(&mut self) -> Vec<String> {
        self.admin().map(replication::streaming).unwrap_or_default()
    }

    /// Returns when the server answers, through a new session.
    pub fn restart_server(&mut self, what: &str) -> Result<(), TreatmentError> {
        self.stop_server(what)?;
        self.start_server(what)
    }

    /// Starts the server for an undo: a run that was killed or failed during a restart left it down.
    pub fn ensure_running(&mut self) -> Result<(), TreatmentError> {
        match self.admin().map(drop) {
            // Another server answers, such as a promoted standby: do not start the former primary beside it.
            Err(refused @ (TreatmentError::Refused(_) | TreatmentError::OtherServer(_)))
                if !self.changed.accepts_any_timeline =>
            {
                Err(refused)
            }
            Err(_) if self.control.is_some() => self.start_stopped_server(),
            other => other,
        }
    }

    /// Starts a server that is down, unless a standby may have replaced it. What pgio stopped it starts again,
    /// whatever follows it.
    pub fn start_stopped_server(&mut self) -> Result<(), TreatmentError> {
        match self.changed.start_refusal().filter(|_| self.streaming.is_none()) {
            Some(why) => Err(TreatmentError::Refused(why)),
            None => self.start_server("to start a server that was left stopped"),
        }
    }
}
