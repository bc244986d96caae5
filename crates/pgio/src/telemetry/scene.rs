//! What there is to observe for one target: found out once, since it takes time and changes seldom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;

use super::storage::{self, Place};
use super::{Watched, environment, session};
use crate::host::exec::{CommandLine, Exec};
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::connect::ConnectParams;
use crate::pg::directories::{GRANT, directories};
use crate::pg::quote;
use crate::pg::server::Server;
use crate::results::Warning;
use crate::results::telemetry::{Probes, Storage};

#[derive(Debug)]
pub struct Scene {
    pub(super) cadence: Duration,
    pub(super) watched: Watched,
    pub(super) hosts: Hosts,
    /// Where the server was seen to run.
    pub(super) server_host: Option<String>,
    pub(super) storage: Vec<Storage>,
    pub(super) probes: Option<Probes>,
    pub(super) warnings: Vec<Warning>,
}

/// What a survey starts from.
#[derive(Debug)]
pub struct Survey<'a> {
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub cadence: Duration,
    pub hosts: &'a Hosts,
    /// The server's, by the experiment file; absent: it may be here.
    pub host: Option<&'a str>,
}

impl Scene {
    pub fn survey(survey: &Survey<'_>, admin: &mut Client) -> Scene {
        let Survey { params, server, cadence, hosts, host } = *survey;
        let mut scene = Scene {
            cadence,
            watched: Watched {
                params: session::choose(params),
                version_num: server.info.version_num,
                database: server.info.database.clone(),
            },
            hosts: hosts.clone(),
            server_host: None,
            storage: Vec::new(),
            probes: None,
            warnings: Vec::new(),
        };
        scene.hosts.entry(LOCAL.to_owned()).or_insert_with(|| Arc::new(Host::local()));
        match scene.find_server(host.unwrap_or(LOCAL), admin) {
            Ok(found) => {
                scene.find_storage(&found, admin);
                scene.server_host = Some(found.name().to_owned());
            }
            Err(why) => scene.warnings.push(Warning::new(
                "the devices under the server were not observed",
                why,
                "set host in [target] to the server's name in [hosts]",
            )),
        }
        scene
    }

    /// To be called when the server was started again, or its files may lie elsewhere now.
    pub fn look_again(&mut self, admin: &mut Client) {
        let host = self.server_host.as_ref().and_then(|name| self.hosts.get(name)).cloned();
        if let Some(host) = host {
            // What is lacking was said the first time.
            let warnings = std::mem::take(&mut self.warnings);
            self.find_storage(&host, admin);
            self.warnings = warnings;
        }
    }

    /// The server's host as it is now, with DRBD on the others: what must not change while a trial runs.
    pub fn environment(&self) -> Option<BTreeMap<String, String>> {
        let server = self.server_host()?;
        let mut found = environment::read(server, &self.storage)?;
        for peer in self.hosts.values().filter(|host| !host.is_same_machine(server)) {
            found.extend(environment::of_peer(peer, &found));
        }
        Some(found)
    }

    /// Where the server was seen to run.
    pub fn server_host(&self) -> Option<&Host> {
        self.hosts.get(self.server_host.as_ref()?).map(Arc::as_ref)
    }

    /// What the server's directories lie on, as far as it could be found out.
    pub fn storage(&self) -> &[Storage] {
        &self.storage
    }

    /// What could not be, and why.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The host, if the session's process is PostgreSQL's there. Process numbers repeat from one
    /// machine to the next, so the program is asked for too.
    fn find_server(&self, name: &str, admin: &mut Client) -> Result<Arc<Host>, String> {
        let host = self.hosts.get(name).ok_or_else(|| format!("host {name} is not known"))?;
        let pid: i32 = admin
            .query_one("SELECT pg_backend_pid()", &[])
            .map_err(|e| crate::pg::words::said(&e))?
            .get(0);
        let comm = CommandLine::new("cat").arg(format!("/proc/{pid}/comm"));
        match host.run(&comm) {
            Ok(program) if ["postgres", "postmaster"].contains(&program.trim()) => {
                Ok(Arc::clone(host))
            }
            _ => Err(format!("host {name} has no process {pid} of PostgreSQL's")),
        }
    }

    fn find_storage(&mut self, host: &Host, admin: &mut Client) {
        let found = directories(admin).unwrap_or_default().into_iter();
        let places: Vec<Place> = found.map(|d| Place { role: d.role, directory: d.path }).collect();
        if places.is_empty() {
            self.warnings.push(Warning::new(
                "the devices under the server were not observed",
                "the role may not see data_directory",
                format!("GRANT {GRANT} TO {}", quote::identifier(&self.watched.params.user)),
            ));
            return;
        }
        match storage::locate(host, &places) {
            Ok((storage, warnings)) => {
                self.storage = storage;
                self.warnings.extend(warnings);
            }
            Err(error) => self.warnings.push(Warning::new(
                "the devices under the server were not observed",
                crate::pg::words::sentence(&error),
                "see whether commands can be run on the host",
            )),
        }
    }
}
