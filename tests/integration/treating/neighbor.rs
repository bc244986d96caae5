//! Three servers on one limited disk, alone and together: the shipped example, shortened.

use std::fs;

use serde_json::Value;

use super::{check, disk, in_namespace_or_rerun};
use pgio_tests::workdir::{Workdir, condition_of, failed_checks, tolerate};

/// The limit of the example.
const LIMIT: f64 = 500.0;

#[test]
fn throttled_neighbors_share_the_limit_of_the_disk() {
    if !in_namespace_or_rerun("neighbor::throttled_neighbors_share_the_limit_of_the_disk", true) {
        return;
    }
    let disk = disk(2 << 30);
    let node = fs::canonicalize(format!("/sys/dev/block/{}", disk.number())).unwrap();
    let name = node.file_name().unwrap().to_str().unwrap().to_owned();
    let mut text = include_str!("../../../examples/noisy-neighbor.toml").to_owned();
    for (shipped, here) in [
        ("\"/dev/loop7\"", format!("\"/dev/{name}\"")),
        ("\"/mnt/pgio-neighbor\"", format!("{:?}", disk.path())),
        ("blocks = 8", format!("blocks = 1\n{}", tolerate(&["participants-apart"]))),
        ("warmup = \"3s\"", "warmup = \"500ms\"".to_owned()),
        ("duration = \"10s\"", "duration = \"3s\"".to_owned()),
        ("aa = true", "aa = false".to_owned()),
    ] {
        assert!(text.contains(shipped), "{shipped}");
        text = text.replace(shipped, &here);
    }
    let dir = Workdir::new();
    dir.compare(&text).expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["Each server"]);
    let device = |trial: &Value, what: &str| {
        trial["telemetry"]["hosts"]["local"]["devices"][&name][what].as_f64().unwrap()
    };
    let trials = dir.trials();
    for trial in &trials {
        assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial}");
        // The disk did what it is allowed to, whatever number of servers asked: the check compares the device's
        // own counters with the limit, and would warn below four fifths of it.
        let throttle = check(trial, "throttle");
        assert_eq!(throttle["verdict"], "ok", "{throttle}");
        let writes = device(trial, "writes_per_second");
        assert!(writes <= 1.2 * LIMIT, "{writes}");
    }
    let together = trials.iter().find(|trial| condition_of(trial) == "together").unwrap();
    let targets = together["targets"].as_object().unwrap();
    assert_eq!(targets.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    // Windows of servers end a little apart; the sum's is the longest.
    let number = |value: &Value| value.as_f64().unwrap();
    let shares =
        targets.values().map(|target| number(&target["share"]) * number(&target["seconds"]));
    let sum = shares.sum::<f64>() / number(&together["window"]["seconds"]);
    assert!((sum - 1.0).abs() < 1e-6, "{sum}: {together}");
    let limits = fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    let prefix = format!("{} ", disk.number());
    assert!(!limits.unwrap_or_default().lines().any(|line| line.starts_with(&prefix)));
}
