//! A driver or the coordinator is lost at random moments, each on a host of its own.

use std::thread;
use std::time::Duration;

use pgio::rng::SplitMix64;
use rustix::process::{Pid, Signal, kill_process};

use super::network::{NODES, Network};
use super::{are_working, commits, lost_and_whole};
use pgio_tests::fixture::connect;
use pgio_tests::workdir::{Running, Workdir, pgio_sessions, wait_until};

const DRIVERS: usize = 2;
/// Latest moment; a run without a loss takes some four seconds.
const LATEST_MS: u64 = 4500;
/// How long a host is off the network: longer than silence is tolerated.
const OFF: Duration = Duration::from_secs(6);
/// How long a host that is back has no route to the server: less than a driver waits for one.
const NO_ROUTE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    Killed,
    Stopped,
    Unlinked,
    Coordinator,
}

const LOSSES: [Loss; 4] = [Loss::Killed, Loss::Stopped, Loss::Unlinked, Loss::Coordinator];

/// Starts the driver of each rank on its host.
fn engine(network: &Network) -> String {
    let hosts: String = (0..DRIVERS)
        .map(|rank| format!("{rank}) on={} ;; ", network.namespace(&NODES[rank].to_string())))
        .collect();
    format!(
        "run:{DRIVERS}:for rank in $(echo $PGIO_DRIVE_RANKS | tr , ' '); do case $rank in {hosts} esac; \
         PGIO_DRIVE_RANKS=$rank nsenter $on {{drive}} & done; wait"
    )
}

impl Loss {
    /// Returns how the run ended.
    fn happen(self, network: &Network, pgio: Running, node: u8) -> String {
        let signal = |signal| {
            for pid in network.processes(node) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
            }
        };
        match self {
            Loss::Killed => signal(Signal::KILL),
            Loss::Stopped => signal(Signal::STOP),
            Loss::Unlinked => {
                network.set_link(node, "down");
                thread::sleep(OFF);
                // Its next driver reaches the coordinator before the server.
                network.set_route_to_server(node, "add");
                network.set_link(node, "up");
                thread::sleep(NO_ROUTE);
                network.set_route_to_server(node, "del");
            }
            Loss::Coordinator => {
                pgio.kill();
                return "killed".to_owned();
            }
        }
        let result = pgio.wait();
        match result.code {
            Some(0) => "exit code 0".to_owned(),
            // One that ended before it connected is waited for in vain.
            Some(4) if result.err.contains("1 of 2 drivers have connected") => "refused".to_owned(),
            _ => panic!("{result}"),
        }
    }
}

#[derive(Debug)]
struct Found {
    /// Trials that lost a driver, and all others.
    lost: usize,
    whole: usize,
    ended: String,
}

/// Runs an experiment with windows of this length in which a driver or the coordinator is lost after `wait`.
fn lose(
    network: &Network,
    seconds: u64,
    (loss, node): (Loss, u8),
    wait: &dyn Fn(&mut Running),
) -> Found {
    let conninfo = network.conninfo();
    let dir = Workdir::new();
    let text = commits(&Network::dsn(), &format!("duration = \"{seconds}s\"\nrepeats = 6"), 4)
        .replace("synchronous_commit = \"off\"", "wal_writer_delay = \"100ms\"")
        // The server has fsync off: this measures nothing.
        .replace("\"steal\"", "\"steal\", \"durability\"");
    dir.write("experiment.toml", &text);
    let args = ["compare", "experiment.toml", "--out", "out", "--drivers", &engine(network)];
    let mut pgio = dir.start(network.within("c", &[], &dir.command(&args)));
    wait(&mut pgio);
    let ended = loss.happen(network, pgio, node);
    let (lost, whole) = if dir.out().join("trials.jsonl").exists() {
        lost_and_whole(&dir, DRIVERS)
    } else {
        (0, 0)
    };
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
    wait_until("no driver is left", || NODES.iter().all(|n| network.processes(*n).is_empty()));
    let undo = || dir.start(network.within("c", &[], &dir.command(&["undo"]))).wait();
    undo().expect(0, &[]);
    assert_eq!(undo().expect(0, &[]).out, dir.nothing_to_undo());
    let sql = "SELECT to_regclass('pgio_commit') IS NULL AND setting = '200' FROM pg_settings \
               WHERE name = 'wal_writer_delay'";
    assert!(connect(&conninfo).query_one(sql, &[]).unwrap().get::<_, bool>(0));
    Found { lost, whole, ended }
}

#[test]
fn a_host_off_the_network_costs_a_trial_and_nothing_is_left() {
    let Some(network) = Network::up() else { return };
    let inside =
        |pgio: &mut Running| pgio.wait_until("at work", || are_working(&network.conninfo(), 4));
    let found = lose(&network, 2, (Loss::Unlinked, NODES[1]), &inside);
    assert_eq!((found.lost, found.ended.as_str()), (1, "exit code 0"));
    assert!(found.whole >= 2, "{}", found.whole);
}

#[test]
#[ignore = "takes ten minutes; lab/drivers.log is its output"]
fn fifty_random_moments() {
    let Some(network) = Network::up() else { return };
    let mut random = SplitMix64::new(50);
    for moment in 0..50 {
        let loss = LOSSES[moment % LOSSES.len()];
        let node = NODES[(random.next_u64() % DRIVERS as u64) as usize];
        let after = Duration::from_millis(random.next_u64() % LATEST_MS);
        let Found { lost, whole, ended } =
            lose(&network, 1, (loss, node), &|_: &mut Running| thread::sleep(after));
        println!(
            "{:3}  {:11}  after {:4} ms: {lost} trials lost a driver, {whole} whole, {ended}",
            moment + 1,
            format!("{loss:?}"),
            after.as_millis()
        );
    }
}
