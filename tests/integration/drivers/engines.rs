//! Engines that start drivers, for real: Slurm with a host's network for each node and for PostgreSQL,
//! and Open MPI. What is not installed is skipped and named.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::network::{COORDINATOR, NODES, Network, run};
use super::{APART, are_working, assert_recounted, check, commits, lost_and_whole, start};
use pgio_tests::fixture::{INSTALLED, fresh_database, is_installed, shared_primary};
use pgio_tests::workdir::{Workdir, pgio_sessions, wait_until};

/// A Slurm cluster of three nodes.
struct Cluster {
    network: Network,
}

impl Cluster {
    /// `None`, and says why, where it cannot run.
    fn up() -> Option<Cluster> {
        let programs = ["slurmctld", "slurmd", "srun", "salloc", "scancel"];
        if !programs.into_iter().all(is_installed) {
            return None;
        }
        let mut cluster = Cluster { network: Network::up()? };
        cluster.start_slurm();
        Some(cluster)
    }

    fn conf(&self) -> String {
        self.network.dir.path().join("slurm.conf").display().to_string()
    }

    fn start(&mut self, namespace: &str, log: &str, args: &[&str]) {
        let conf = self.conf();
        self.network.start(namespace, log, &[("SLURM_CONF", &conf)], args);
    }

    fn start_slurm(&mut self) {
        let dir = self.network.dir.path().display().to_string();
        let host = run("uname", &["-n"]).unwrap().trim().to_owned();
        let mut conf = format!(
            "ClusterName=pgio\nSlurmctldHost={host}({COORDINATOR})\nAuthType=auth/none\n\
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
            fs::create_dir(self.network.dir.path().join(format!("spool-n{node}"))).unwrap();
        }
        conf += "PartitionName=all Nodes=ALL Default=YES State=UP\n";
        fs::create_dir(self.network.dir.path().join("state")).unwrap();
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
        let namespace = self.network.namespace("c");
        run("nsenter", &[&[&*namespace, "env", &conf, "timeout", "10"], args].concat())
    }

    /// pgio inside an allocation of all nodes.
    fn pgio(&self, dir: &Workdir, args: &[&str]) -> Command {
        let allocation = ["salloc", "-N3", "--quiet"];
        let mut command = self.network.within("c", &allocation, &dir.command(args));
        command.env("SLURM_CONF", self.conf());
        command
    }
}

pub(super) fn addresses(trial: &Value) -> Vec<String> {
    let parts = trial["drivers"].as_array().unwrap().iter();
    parts.map(|part| part["addresses"][0].as_str().unwrap().to_owned()).collect()
}

#[test]
fn slurm_places_drivers_and_a_step_that_is_cancelled_costs_one_trial() {
    let Some(cluster) = Cluster::up() else { return };
    let conninfo = cluster.network.conninfo();
    let dir = Workdir::new();
    let text = commits(&Network::dsn(), "duration = \"3s\"\nrepeats = 4", 7);
    // This test turns fsync off: it measures nothing.
    dir.write("experiment.toml", &text.replace("\"steal\"", "\"steal\", \"durability\""));
    let args = ["compare", "experiment.toml", "--out", "out", "--drivers", "slurm:3"];
    let mut pgio = dir.start(cluster.pgio(&dir, &args));
    let mut step = None;
    pgio.wait_until("placing drivers", || {
        let steps = cluster.slurm(&["squeue", "-s", "-h", "-o", "%i"]).unwrap_or_default();
        step = steps.lines().find(|id| id.ends_with(".0")).map(str::to_owned);
        step.is_some()
    });
    // Cancelled inside a window: on a busy machine each of Slurm's commands takes a while.
    pgio.wait_until("at work", || are_working(&conninfo, 7));
    cluster.slurm(&["scancel", &step.unwrap()]).unwrap();
    pgio.wait().expect(0, &["driver-lost"]);
    let (lost, whole) = lost_and_whole(&dir, 3);
    assert_eq!(lost, 1);
    assert!(whole >= 2, "{whole}");
    for trial in dir.trials().iter().filter(|trial| check(trial, "driver-lost").is_none()) {
        assert_eq!(addresses(trial), ["10.99.0.11", "10.99.0.12", "10.99.0.13"]);
        assert_eq!(check(trial, APART).unwrap()["verdict"].as_str().map(|_| ()), Some(()));
    }
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
    let left = cluster.slurm(&["squeue", "-h"]).unwrap();
    assert_eq!(left, "");
}

#[test]
fn mpirun_starts_drivers() {
    if !is_installed("mpirun") {
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
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
}

/// Reads a document as the API's type and writes it again: a field that the type does not have is lost.
fn through<T: serde::Serialize + serde::de::DeserializeOwned>(document: &Value) -> Value {
    let typed: T = serde_json::from_value(document.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

#[test]
fn the_manifest_of_kubernetes_has_only_fields_of_the_api() {
    use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
    let dir = Workdir::new();
    dir.write(
        "e.toml",
        "[target]\nprivate = true\n[workload]\nkind = \"commit\"\n[[condition]]\nname = \"a\"\n",
    );
    let args = ["compare", "e.toml", "--drivers", "kubernetes:3", "--image", "registry/pgio:2"];
    let text = dir.pgio(&[&args[..], &["--dry-run"]].concat()).expect(0, &[]).out;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let [secret, job] = documents.as_slice() else { panic!("{text}") };
    assert_eq!(through::<Secret>(secret), *secret);
    assert_eq!(through::<Job>(job), *job);
    let mut misspelled = job.clone();
    misspelled["spec"]["completionmode"] = "Indexed".into();
    assert_ne!(through::<Job>(&misspelled), misspelled, "the test can fail");
}
