//! Blocks that one trial leaves in shared buffers must not serve the next: trials of equal conditions miss
//! equally often, and a burn-in trial takes the cold start upon itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use pgio::pg::private::PrivateCluster;
use rustix::process::Signal;
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, spec_with};
use pgio_tests::workdir::{Workdir, active_sessions, condition_of};

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
    for engine in ["server", "client"] {
        let _ = fs::remove_dir_all(dir.out());
        dir.compare(&equal(&cluster.primary_conninfo(), "", engine)).expect(0, &[]);
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

#[test]
fn a_burn_in_trial_is_stored_and_shown_and_never_counted() {
    let (cluster, dir) = cluster();
    let text = equal(&cluster.primary_conninfo(), "", "server");
    dir.write("plan.toml", &text);
    dir.pgio(&["compare", "plan.toml", "--plan"]).expect(
        0,
        &[
            "burn-in first, unknown duration: a, never counted (burn_in = false",
            "9 trials and the burn-in",
        ],
    );
    dir.compare(&text).expect(0, &["10/10, "]);
    // Were it counted, it would be the worst of all and not valid.
    let path = dir.out().join("trials.jsonl");
    let lines = fs::read_to_string(&path).unwrap();
    let (first, rest) = lines.split_once('\n').unwrap();
    let mut burn_in: Value = serde_json::from_str(first).unwrap();
    burn_in["metrics"]["block_visits_per_second"]["value"] = 1.into();
    burn_in["checks"][0] = serde_json::json!({
        "id": "foreign-load", "verdict": "invalid", "message": "only a burn-in", "remedy": "none"
    });
    fs::write(&path, format!("{burn_in}\n{rest}")).unwrap();
    let analysis = dir.analysis();
    for condition in analysis["conditions"].as_array().unwrap() {
        let numbers = ["trials", "valid", "invalid", "failed"].map(|key| condition[key].as_u64());
        assert_eq!(numbers, [Some(3), Some(3), Some(0), Some(0)], "{condition}");
    }
    assert!(!analysis.to_string().contains("only a burn-in"), "{analysis}");
    for format in ["text", "markdown", "csv", "html"] {
        let result = dir.pgio(&["report", "out", "--format", format]).expect(0, &[]);
        assert!(!result.out.contains("only a burn-in"), "{format}: {}", result.out);
        assert_eq!(result.out.contains("burn-in"), format == "html", "{format}: {}", result.out);
    }
    dir.pgio(&["report", "out", "out"]).expect(0, &[]);

    fs::remove_dir_all(dir.out()).unwrap();
    dir.compare(&equal(&cluster.primary_conninfo(), "burn_in = false", "server")).expect(0, &[]);
    assert!(dir.trials().iter().all(|t| block_of(t) > 0));
}

#[test]
fn an_interrupted_burn_in_is_repeated_and_the_seeds_stay_the_same() {
    let (cluster, dir) = cluster();
    let text = |keys: &str| equal(&cluster.primary_conninfo(), keys, "server");
    let dsn = cluster.primary_conninfo();
    let one_block = |text: String| text.replace("blocks = 3", "blocks = 1");
    let long = one_block(text("").replace("work_loop = 180", "run_time = \"2s\""));
    let mut running = dir.start_compare(&long);
    running.wait_until("the burn-in is measured", || active_sessions(&dsn) > 0);
    running.signal(Signal::INT);
    running.wait().expect(130, &["--resume"]);
    let interrupted = dir.trials();
    assert_eq!(interrupted.len(), 1);
    assert_eq!(interrupted[0]["outcome"]["state"], "interrupted");
    assert_eq!(block_of(&interrupted[0]), 0);

    let mut running = dir.start(dir.command(&["compare", "experiment.toml", "--resume", "out"]));
    running.wait_until("the burn-in and a trial are stored", || dir.trials().len() >= 3);
    running.signal(Signal::INT);
    running.wait().expect(130, &["--resume"]);
    dir.pgio(&["compare", "experiment.toml", "--resume", "out"]).expect(0, &["Results: out"]);
    let trials = dir.trials();
    let burn_ins: Vec<_> = trials.iter().filter(|t| block_of(t) == 0).collect();
    let attempts: Vec<_> = burn_ins.iter().map(|t| t["place"]["attempt"].as_u64()).collect();
    assert_eq!(attempts, [Some(0), Some(1)], "a complete one is not repeated");
    let conditions = dir.analysis()["conditions"].clone();
    assert!(conditions.as_array().unwrap().iter().all(|c| c["valid"] == 1), "{conditions:#}");

    // One condition more, and the trials of the others draw what they drew.
    let seeds = |trials: &[Value]| -> BTreeMap<String, u64> {
        let of = |t: &Value| (t["place"].to_string(), t["seed"].as_u64().unwrap());
        trials
            .iter()
            .map(|t| {
                let mut t = t.clone();
                t["place"]["position"] = Value::Null;
                of(&t)
            })
            .collect()
    };
    fs::remove_dir_all(dir.out()).unwrap();
    let b = "[[condition]]\nname = \"b\"\n";
    let four = one_block(text("")).replace(b, &format!("[[condition]]\nname = \"d\"\n{b}"));
    dir.compare(&four).expect(0, &[]);
    let more = dir.trials();
    assert_ne!(condition_of(more.last().unwrap()), "d", "a seed drawn in turn would be another");
    let further = seeds(&more);
    for (place, seed) in seeds(&trials).iter().filter(|(place, _)| place.contains("\"attempt\":0"))
    {
        assert_eq!(further.get(place), Some(seed), "{place}");
    }
}
