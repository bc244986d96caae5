//! Drivers as pods of a real Kubernetes, which `lab/kubernetes/run` starts; PostgreSQL is outside of it.

use std::path::PathBuf;
use std::process::Command;

use super::engines::addresses;
use super::network::{COORDINATOR, Network, run};
use super::{are_working, check, commits, lost_and_whole};
use pgio_tests::fixture::connect;
use pgio_tests::workdir::{Workdir, pgio_sessions, wait_until};

const DRIVERS: usize = 3;
/// The log of the Jobs' states.
const JOBS: &str = "jobs";
const OURS: &str = "app.kubernetes.io/name=pgio-drive";

/// The cluster, with a server in another namespace.
struct Cluster {
    network: Network,
    /// The directory with kubectl.
    programs: String,
    /// The program that is in the image, too.
    pgio: PathBuf,
}

impl Cluster {
    fn of_the_lab() -> Cluster {
        let variable =
            |name| std::env::var(name).unwrap_or_else(|_| panic!("{name}: see lab/kubernetes/run"));
        Cluster {
            network: Network::attached("pgio-kube"),
            programs: variable("PGIO_TEST_KUBE_BIN"),
            pgio: variable("PGIO_TEST_KUBE_PROGRAM").into(),
        }
    }

    fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        let program = format!("{}/kubectl", self.programs);
        run("nsenter", &[&[&*self.network.namespace("c"), &program], args].concat())
    }

    /// Logs the state of our Jobs each time it changes, until the cluster is dropped.
    fn watch(&mut self) {
        let state = "{.status.active} {.status.succeeded} {.status.conditions[*].type}{\"\\n\"}";
        let (kubectl, output) = (format!("{}/kubectl", self.programs), format!("jsonpath={state}"));
        let get = [&*kubectl, "get", "jobs", "-l", OURS, "--watch", "-o", &output];
        self.network.start("c", JOBS, &[], &get);
    }

    fn pgio(&self, dir: &Workdir, args: &[&str]) -> Command {
        let plain = dir.command(args);
        let mut command = Command::new(&self.pgio);
        command.args(args).current_dir(dir.path());
        for (name, value) in plain.get_envs() {
            value.map(|value| command.env(name, value));
        }
        let path = format!("{}:{}", self.programs, std::env::var("PATH").unwrap());
        self.network.within("c", &["env", &format!("PATH={path}")], &command)
    }
}

#[test]
#[ignore = "needs the cluster of lab/kubernetes/run"]
fn three_pods_share_the_sessions_and_one_that_is_deleted_costs_one_trial() {
    let mut cluster = Cluster::of_the_lab();
    let conninfo = cluster.network.conninfo();
    let sql = "ALTER ROLE postgres PASSWORD 'of the secret'";
    connect(&conninfo).batch_execute(sql).unwrap();
    let secret = ["create", "secret", "generic", "pgio-postgres"];
    let password = ["--from-literal=PGPASSWORD=of the secret"];
    cluster.kubectl(&[&secret[..], &password].concat()).unwrap();

    let dir = Workdir::new();
    // Without a warm-up, sessions at work are inside a window.
    let keys = "duration = \"4s\"\nblocks = 2\nrepeats = 4";
    let text = commits(&Network::dsn(), keys, 7);
    let text = text.replacen("blocks = 1\n", "", 1);
    // This test turns fsync off: it measures nothing.
    let text = text.replace("\"steal\"", "\"steal\", \"durability\"");
    let drivers = format!("\n[drivers]\ncpu = \"500m\"\nlisten = \"{COORDINATOR}:7432\"\n");
    dir.write("experiment.toml", &(text + &drivers));
    cluster.watch();
    let args = ["compare", "experiment.toml", "--out", "out", "--drivers", "kubernetes:3"];
    let mut pgio =
        dir.start(cluster.pgio(&dir, &[&args[..], &["--image", "localhost/pgio:1"]].concat()));
    pgio.wait_until("at work", || are_working(&conninfo, 7));
    let pods = cluster.kubectl(&["get", "pods", "-l", OURS, "-o", "name"]).unwrap();
    assert_eq!(pods.lines().count(), DRIVERS, "{pods}");
    cluster.kubectl(&["delete", pods.lines().nth(1).unwrap(), "--wait=false"]).unwrap();
    let result = pgio.wait().expect(0, &["driver-lost"]);
    println!("{}", result.out);

    let (lost, whole) = lost_and_whole(&dir, DRIVERS);
    assert_eq!(lost, 1);
    assert!(whole >= 4, "{whole}");
    for trial in dir.trials() {
        match check(&trial, "driver-lost") {
            Some(lost) => println!("invalid: {}", lost["message"]),
            None => {
                let pods = addresses(&trial);
                assert!(pods.iter().all(|pod| pod.starts_with("10.88.0.")), "{pods:?}");
                println!(
                    "{} from {}",
                    check(&trial, "driver-sum").unwrap()["message"],
                    pods.join(", ")
                );
            }
        }
    }
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
    wait_until("no object is left", || {
        cluster.kubectl(&["get", "pods,jobs,secrets", "-l", OURS, "-o", "name"]).unwrap().is_empty()
    });
    let states = std::fs::read_to_string(cluster.network.dir.path().join(JOBS)).unwrap();
    println!("the Job's active, succeeded and condition:\n{states}");
    assert!(
        states.lines().any(|state| state.contains("3 ") && state.contains("Complete")),
        "{states}"
    );
    cluster.kubectl(&["delete", "secret", "pgio-postgres"]).unwrap();
}
