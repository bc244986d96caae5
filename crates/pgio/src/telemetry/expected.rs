//! Locates what determines the expected cost of a commit: both WAL directories and the connection
//! between the servers.

use std::path::Path;
use std::time::Duration;

use postgres::Client;

use super::probes::{self, Wal, Walsender};
use super::sources::TelemetrySources;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use pgio_results::telemetry::Probes;

const WALSENDER: &str = include_str!("sql/walsender.sql");
const STANDBY_DATA: &str = concat!(include_str!("receivers.sh"), include_str!("standby_data.sh"));
const LIMIT: Duration = Duration::from_secs(10);

/// What the caller knows about the standby.
#[derive(Debug, Clone, Copy)]
pub struct Standby<'a> {
    /// A host name of the experiment.
    pub host: &'a str,
    /// Its data directory, if pgio created the standby.
    pub data: Option<&'a Path>,
}

impl TelemetrySources {
    /// Takes about one second per file system with WAL. Run it while the servers are idle.
    pub fn measure_expected(&mut self, standby: Option<Standby<'_>>, admin: &mut Client) {
        let primary = self.server_host.as_ref().and_then(|name| self.hosts.get(name));
        let wal = self.storage.iter().find(|s| s.role == "wal" && s.is_located());
        let primary = primary
            .zip(wal)
            .map(|(host, wal)| Wal { host: host.as_ref(), directory: &wal.directory });
        let mut notes = Vec::new();
        let host = standby.and_then(|s| self.hosts.get(s.host));
        let data = standby.zip(host).and_then(|(standby, host)| {
            let known = standby.data.map(|d| Ok(d.to_string_lossy().into_owned()));
            let identifier = self.system_identifier.as_deref();
            let found = known.unwrap_or_else(|| find_data(host, identifier));
            found.map_err(|why| notes.push(why)).ok()
        });
        let directory = data.map(|data| format!("{data}/pg_wal"));
        let standby = host
            .zip(directory.as_deref())
            .map(|(host, directory)| Wal { host: host.as_ref(), directory });
        let mut probes: Probes = probes::probe(primary, standby, walsender(admin));
        probes.notes.extend(notes);
        self.probes = Some(probes);
    }
}

/// Data directory of the server's only standby on this host.
fn find_data(host: &Host, identifier: Option<&str>) -> Result<String, String> {
    let name = host.name();
    let which = identifier.unwrap_or("all");
    let script = CommandLine::new("sh").args(["-c", STANDBY_DATA, "sh", which]).timeout(LIMIT);
    let text = host.run(&script).map_err(|_| format!("host {name} did not answer"))?;
    let mut found = text.lines();
    match (found.next(), found.next()) {
        (Some(data), None) => Ok(data.to_owned()),
        (None, _) => Err(format!(
            "no standby found on host {name}; connect as root if its processes are hidden"
        )),
        (Some(_), Some(_)) => Err(format!(
            "host {name} runs several standbys, and pgio cannot determine which one to probe"
        )),
    }
}

fn walsender(admin: &mut Client) -> Option<Walsender> {
    let row = admin.query_opt(WALSENDER, &[]).ok()??;
    // -1 means a Unix socket; null means hidden from this role.
    let port: i32 = row.try_get::<_, Option<i32>>(1).ok()??;
    let address: Option<String> = row.try_get(0).ok()?;
    Some(Walsender {
        client_address: address.and_then(|a| a.parse().ok()),
        client_port: u16::try_from(port).unwrap_or(0),
    })
}
