//! Engines that start drivers, for real: Slurm with a host's network for each node and for PostgreSQL,
//! and Open MPI. What is not installed is skipped and named.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{APART, are_working, assert_recounted, check, commits, lost_and_whole, start};
use crate::fixture::{INSTALLED, fresh_database, is_there, shared_primary};
use crate::workdir::{Workdir, sessions_of_ours, wait_until};

const NODES: [u8; 3] = [11, 12, 13];
const CONTROLLER: &str = "10.99.0.1";
const SERVER: &str = "10.99.0.14";
const BIN: &str = "/usr/lib/postgresql/15/bin";

/// Runs a command to its end; returns its output, or an error with what it said.
fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A Slurm cluster of three nodes, and a PostgreSQL server, each with an address of its own.
struct Cluster {
    dir: TempDir,
    prefix: String,
    processes: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.processes.iter_mut().rev() {
            let _ = run("kill", &["-INT", &child.id().to_string()]);
        }
        for child in &mut self.processes {
            let _ = child.wait();
        }
        for name in ["c", "11", "12", "13", "14"] {
            let _ = run("ip", &["netns", "del", &format!("{}-{name}", self.prefix)]);
        }
    }
}

impl Cluster {
    /// `None`, and says why, where it cannot run.
    fn up() -> Option<Cluster> {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let programs =
            ["slurmctld", "slurmd", "srun", "salloc", "scancel", "nsenter", "ip", "setpriv"];
        if !programs.into_iter().all(is_there) || !Path::new(BIN).exists() {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("pgio-slurm").tempdir_in("/var/tmp").unwrap();
        let prefix = format!("pgio{}", std::process::id());
        let mut cluster = Cluster { dir, prefix, processes: Vec::new() };
        if let Err(why) = cluster.network() {
            eprintln!("skipped: no network namespaces here: {why}");
            return None;
        }
        cluster.start_server();
        cluster.start_slurm();
        Some(cluster)
    }

    fn namespace(&self, name: &str) -> String {
        format!("--net=/run/netns/{}-{name}", self.prefix)
    }

    fn network(&self) -> Result<(), String> {
        let name = |name: &str| format!("{}-{name}", self.prefix);
        let ip = |args: &[&str]| run("ip", args).map(drop);
        let hub = name("c");
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &hub, "addr", "add", &format!("{CONTROLLER}/24"), "dev", "br0"])?;
        ip(&["-n", &hub, "link", "set", "br0", "up"])?;
        for node in [11, 12, 13, 14] {
            let (own, port) = (name(&node.to_string()), format!("p{node}"));
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

    /// Starts a process in one of the namespaces; `ip netns exec` would hide the control groups.
    fn start(&mut self, namespace: &str, log: &str, args: &[&str]) {
        let log = fs::File::create(self.dir.path().join(log)).unwrap();
        let child = Command::new("nsenter")
            .arg(self.namespace(namespace))
            .args(args)
            .env("SLURM_CONF", self.conf())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.push(child.unwrap());
    }

    fn conf(&self) -> String {
        self.dir.path().join("slurm.conf").display().to_string()
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
        fs::write(&hba, rules).unwrap();
        let (postgres, socket) = (format!("{BIN}/postgres"), home.display().to_string());
        let server = [&postgres, "-D", &data, "-h", SERVER, "-k", &socket, "-c", "fsync=off"];
        self.start("14", "postgres.log", &[&user[..], &server].concat());
    }

    fn start_slurm(&mut self) {
        let dir = self.dir.path().display().to_string();
        let host = run("uname", &["-n"]).unwrap().trim().to_owned();
        let mut conf = format!(
            "ClusterName=pgio\nSlurmctldHost={host}({CONTROLLER})\nAuthType=auth/none\n\
             CredType=cred/none\nSlurmUser=root\nSlurmdUser=root\nProctrackType=proctrack/pgid\n\
             TaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/linear\nSlurmdParameters=config_overrides\nKillWait=2\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool-%n\n\
             SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/%n.pid\n"
        );
        for node in NODES {
            conf += &format!(
                "NodeName=n{node} NodeHostname={host} NodeAddr=10.99.0.{node} Port=170{node} CPUs=2\n"
            );
            fs::create_dir(self.dir.path().join(format!("spool-n{node}"))).unwrap();
        }
        conf += "PartitionName=all Nodes=ALL Default=YES State=UP\n";
        fs::create_dir(self.dir.path().join("state")).unwrap();
        fs::write(self.conf(), conf).unwrap();
        self.start("c", "slurmctld.log", &["slurmctld", "-D"]);
        for node in NODES {
            let name = format!("n{node}");
            self.start(&node.to_string(), &format!("{name}.log"), &["slurmd", "-D", "-N", &name]);
        }
        wait_until("three nodes are idle", || {
            self.slurm(&["sinfo", "-h", "-o", "%T %D"]).is_ok_and(|out| out.trim() == "idle 3")
        });
    }

    /// Runs one of Slurm's commands where the controller is.
    fn slurm(&self, args: &[&str]) -> Result<String, String> {
        let conf = format!("SLURM_CONF={}", self.conf());
        let namespace = self.namespace("c");
        run("nsenter", &[&[&*namespace, "env", &conf, "timeout", "10"], args].concat())
    }

    /// By a socket, which needs no network.
    fn conninfo(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.dir.path().join("pg").display())
    }

    /// pgio inside an allocation of all nodes.
    fn pgio(&self, dir: &Workdir, args: &[&str]) -> Command {
        let pgio = dir.command(args);
        let mut command = Command::new("nsenter");
        command.arg(self.namespace("c")).args(["salloc", "-N3", "--quiet"]);
        command.arg(pgio.get_program()).args(pgio.get_args()).current_dir(dir.path());
        for (name, value) in pgio.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("SLURM_CONF", self.conf());
        command
    }
}

fn addresses(trial: &Value) -> Vec<String> {
    let parts = trial["drivers"].as_array().unwrap().iter();
    parts.map(|part| part["addresses"][0].as_str().unwrap().to_owned()).collect()
}

#[test]
fn slurm_places_drivers_and_a_step_that_is_cancelled_costs_one_trial() {
    let Some(cluster) = Cluster::up() else { return };
    let conninfo = cluster.conninfo();
    wait_until("the server answers", || {
        postgres::Client::connect(&conninfo, postgres::NoTls).is_ok()
    });
    let dir = Workdir::new();
    let by_network = format!("host={SERVER} user=postgres dbname=postgres");
    let text = commits(&by_network, "duration = \"1500ms\"\nrepeats = 4", 7);
    // This test turns fsync off: it measures nothing.
    dir.write("experiment.toml", &text.replace("\"steal\"", "\"steal\", \"durability\""));
    let args = ["compare", "experiment.toml", "--out", "out", "--drivers", "slurm:3"];
    let mut pgio = dir.start(cluster.pgio(&dir, &args));
    pgio.until("at work", || are_working(&conninfo, 7));
    let steps = cluster.slurm(&["squeue", "-s", "-h", "-o", "%i"]).unwrap();
    let step = steps.lines().find(|id| id.ends_with(".0")).unwrap();
    cluster.slurm(&["scancel", step]).unwrap();
    pgio.wait().expect(0, &["driver-lost"]);
    let (lost, whole) = lost_and_whole(&dir, 3);
    assert_eq!(lost, 1);
    assert!(whole >= 2, "{whole}");
    for trial in dir.trials().iter().filter(|trial| check(trial, "driver-lost").is_none()) {
        assert_eq!(addresses(trial), ["10.99.0.11", "10.99.0.12", "10.99.0.13"]);
        assert_eq!(check(trial, APART).unwrap()["verdict"].as_str().map(|_| ()), Some(()));
    }
    wait_until("no session is left", || sessions_of_ours(&conninfo) == 0);
    let left = cluster.slurm(&["squeue", "-h"]).unwrap();
    assert_eq!(left, "");
}

#[test]
fn mpirun_starts_drivers() {
    if !is_there("mpirun") {
        return;
    }
    let conninfo = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let text = commits(&conninfo, "duration = \"500ms\"", 3) + "\n[drivers]\ncount = 3\n";
    let root = rustix::process::geteuid().is_root();
    let as_root = if root { "--allow-run-as-root " } else { "" };
    let line = format!("run:mpirun {as_root}--oversubscribe -np {{n}} {{drive}}");
    start(&dir, &text, &line).wait().expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    trials.iter().for_each(|trial| assert_recounted(trial, 3));
    assert_eq!(sessions_of_ours(&conninfo), 0);
}
