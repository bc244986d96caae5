//! Blocks that one trial leaves in shared buffers must not serve the next: trials of equal conditions miss
//! equally often, and a burn-in trial takes the cold start upon itself.

use std::collections::BTreeSet;
use std::fs;

use pgio::pg::private::PrivateCluster;
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, spec_with};
use pgio_tests::workdir::{Workdir, condition_of};

/// Four times the server's shared buffers.
fn cluster() -> (PrivateCluster, Workdir) {
    let settings = [("shared_buffers", "16MB"), ("autovacuum", "off")];
    let cluster = PrivateCluster::start(&spec_with(INSTALLED, &settings)).unwrap();
    let dir = Workdir::new();
    let dsn = cluster.primary_conninfo();
    let setup = ["setup", "--connect-string", &dsn, "--scale", "64M", "--num-schemas", "1"];
    dir.pgio(&[&setup[..], &["--create-base-table=FALSE", "--seed", "9"]].concat()).expect(0, &[]);
    (cluster, dir)
}

/// A trial visits fewer blocks than the buffers hold, so that one which repeats another's visits finds
/// all of them there.
fn equal(dsn: &str, keys: &str, engine: &str) -> String {
    let amount = match engine {
        "client" => "rate = 360\nrun_time = \"500ms\"",
        _ => "work_loop = 180",
    };
    let conditions: String =
        ["a", "b", "c"].iter().map(|name| format!("[[condition]]\nname = {name:?}\n")).collect();
    format!(
        "[experiment]\nname = \"equal\"\nblocks = 3\nwarmup = \"0s\"\naa = false\nrepeats = 0\nseed = 7\n\
         telemetry = \"0\"\n{keys}\n[target]\ndsn = {dsn:?}\n[workload]\nkind = \"slob\"\n\
         engine = {engine:?}\nnum_threads = 1\nnum_schemas = 1\nwork_unit = 8\nupdate_pct = 0\n\
         {amount}\n{conditions}"
    )
}

fn misses_per_visit(trial: &Value) -> f64 {
    let metric = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
    metric("riops") / metric("block_visits_per_second")
}

fn block_of(trial: &Value) -> u64 {
    trial["place"]["block"].as_u64().unwrap()
}

#[test]
fn trials_do_not_profit_from_the_cache_of_the_first() {
    let (cluster, dir) = cluster();
    dir.write("plan.toml", &equal(&cluster.primary_conninfo(), "", "server"));
    dir.pgio(&["compare", "plan.toml", "--plan"]).expect(
        0,
        &[
            "burn-in first, unknown duration: a, never counted (burn_in = false",
            "9 trials and the burn-in",
        ],
    );
    for engine in ["server", "client"] {
        let _ = fs::remove_dir_all(dir.out());
        let text = equal(&cluster.primary_conninfo(), "", engine);
        dir.compare(&text).expect(0, &["10/10, "]);
        let trials = dir.trials();
        for block in 1..=3 {
            let of_block: Vec<f64> =
                trials.iter().filter(|t| block_of(t) == block).map(misses_per_visit).collect();
            assert_eq!(of_block.len(), 3);
            for misses in &of_block {
                let ratio = misses / of_block[0];
                assert!((0.75..=1.25).contains(&ratio), "{engine}, block {block}: {of_block:?}");
            }
        }
        let findings = dir.analysis()["checks"].to_string();
        assert!(!findings.contains("cache-carry-over"), "{findings}");
        let seeds: BTreeSet<u64> = trials.iter().map(|t| t["seed"].as_u64().unwrap()).collect();
        assert_eq!((trials.len(), seeds.len()), (10, 10), "each trial draws its own stream");
        let burn_in = &trials[0];
        assert_eq!((block_of(burn_in), condition_of(burn_in)), (0, "a"));
    }
}
