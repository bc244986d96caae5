//! A host's network for each of several drivers, for a coordinator and for a PostgreSQL server.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use pgio_tests::fixture::is_installed;
use pgio_tests::workdir::wait_until;

pub(super) const NODES: [u8; 3] = [11, 12, 13];
pub(super) const COORDINATOR: &str = "10.99.0.1";
pub(super) const SERVER: &str = "10.99.0.14";
/// Pods of Kubernetes, which need a password.
const PODS: &str = "10.88.0.0/24";
const BIN: &str = "/usr/lib/postgresql/15/bin";

/// Runs a command to its end; returns its output, or an error with what it said.
pub(super) fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Namespaces by name: `c` for the coordinator, a number for each node, 14 for the server.
pub(super) struct Network {
    pub(super) dir: TempDir,
    prefix: String,
    /// The namespaces are somebody else's.
    is_attached: bool,
    processes: Vec<Child>,
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in self.processes.iter_mut().rev() {
            let _ = run("kill", &["-INT", &child.id().to_string()]);
        }
        for child in &mut self.processes {
            let _ = child.wait();
        }
        let own: &[&str] = if self.is_attached { &[] } else { &["c", "11", "12", "13", "14"] };
        for name in own {
            let _ = run("ip", &["netns", "del", &self.name(name)]);
        }
    }
}

impl Network {
    /// Namespaces of this prefix that are there already, with a running server.
    pub(super) fn attached(prefix: &str) -> Network {
        let mut network = Network::new(prefix.to_owned(), true);
        network.start_server();
        network
    }

    fn new(prefix: String, is_attached: bool) -> Network {
        let dir = tempfile::Builder::new().prefix("pgio-hosts").tempdir_in("/var/tmp").unwrap();
        Network { dir, prefix, is_attached, processes: Vec::new() }
    }

    /// With a running server; `None`, and says why, where it cannot run.
    pub(super) fn up() -> Option<Network> {
        if !rustix::process::geteuid().is_root() {
            pgio_tests::skipped("network namespaces need root");
            return None;
        }
        if !["nsenter", "ip", "setpriv"].into_iter().all(is_installed) || !Path::new(BIN).exists() {
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("pgio{}-{number}", std::process::id());
        let mut network = Network::new(prefix, false);
        if let Err(why) = network.link() {
            pgio_tests::skipped(&format!("no network namespaces here: {why}"));
            return None;
        }
        network.start_server();
        Some(network)
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        format!("--net=/run/netns/{}", self.name(name))
    }

    fn link(&self) -> Result<(), String> {
        let ip = |args: &[&str]| run("ip", args).map(drop);
        let hub = self.name("c");
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &hub, "addr", "add", &format!("{COORDINATOR}/24"), "dev", "br0"])?;
        ip(&["-n", &hub, "link", "set", "br0", "up"])?;
        for node in [11, 12, 13, 14] {
            let (own, port) = (self.name(&node.to_string()), format!("p{node}"));
            ip(&["netns", "add", &own])?;
            ip(&["-n", &own, "link", "set", "lo", "up"])?;
            ip(&[
                "-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns",
                &own,
            ])?;
            ip(&["-n", &hub, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", &own, "addr", "add", &format!("10.99.0.{node}/24"), "dev", "eth0"])?;
            ip(&["-n", &own, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    /// Takes a node off the network, or puts it back.
    pub(super) fn set_link(&self, node: u8, state: &str) {
        let (hub, port) = (self.name("c"), format!("p{node}"));
        run("ip", &["-n", &hub, "link", "set", &port, state]).unwrap();
    }

    /// Takes the route to the server from a node (`add`: one that leads nowhere), or gives it back (`del`).
    pub(super) fn set_route_to_server(&self, node: u8, change: &str) {
        let name = self.name(&node.to_string());
        run("ip", &["-n", &name, "route", change, "unreachable", SERVER]).unwrap();
    }

    /// The processes on a node.
    pub(super) fn processes(&self, node: u8) -> Vec<i32> {
        let pids = run("ip", &["netns", "pids", &self.name(&node.to_string())]).unwrap();
        pids.lines().map(|pid| pid.trim().parse().unwrap()).collect()
    }

    /// Starts a process in one of the namespaces; `ip netns exec` would hide the control groups.
    pub(super) fn start(
        &mut self,
        namespace: &str,
        log: &str,
        variables: &[(&str, &str)],
        args: &[&str],
    ) {
        let log = fs::File::create(self.dir.path().join(log)).unwrap();
        let child = Command::new("nsenter")
            .arg(self.namespace(namespace))
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.push(child.unwrap());
    }

    fn start_server(&mut self) {
        let home = self.dir.path().join("pg");
        let data = home.join("data").display().to_string();
        run("chmod", &["755", &self.dir.path().display().to_string()]).unwrap();
        run("install", &["-d", "-o", "postgres", &home.display().to_string()]).unwrap();
        let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
        let initdb = format!("{BIN}/initdb");
        run(user[0], &[&user[1..], &[&initdb, "-D", &data, "-A", "trust", "-N"]].concat()).unwrap();
        let hba = format!("{data}/pg_hba.conf");
        let rules = fs::read_to_string(&hba).unwrap() + "host all all 10.99.0.0/24 trust\n";
        let rules = rules + &format!("host all all {PODS} scram-sha-256\n");
        fs::write(&hba, rules).unwrap();
        let (postgres, socket) = (format!("{BIN}/postgres"), home.display().to_string());
        let server = [&postgres, "-D", &data, "-h", SERVER, "-k", &socket, "-c", "fsync=off"];
        self.start("14", "postgres.log", &[], &[&user[..], &server].concat());
        let conninfo = self.conninfo();
        wait_until("the server answers", || pgio_connect::Client::connect(&conninfo).is_ok());
    }

    /// By a socket, which needs no network.
    pub(super) fn conninfo(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.dir.path().join("pg").display())
    }

    /// By the network.
    pub(super) fn dsn() -> String {
        format!("host={SERVER} user=postgres dbname=postgres")
    }

    /// The command, run in a namespace by another one (`before`) or by itself.
    pub(super) fn within(&self, namespace: &str, before: &[&str], command: &Command) -> Command {
        let mut within = Command::new("nsenter");
        within.arg(self.namespace(namespace)).args(before);
        within.arg(command.get_program()).args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            within.current_dir(dir);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        within
    }
}
