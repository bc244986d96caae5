//! `[[background]]`.

use std::time::Duration;

use super::{error, read};
use crate::config::kinds::WorkloadKind;

const HEAD: &str = "[experiment]\nwarmup = '1s'\nduration = '4s'\n[targets.n1]\nprivate = true\n\
                    [targets.judged]\nprivate = true\n[workload]\nkind = 'commit'\n\
                    [[condition]]\nname = 'quiet'\ntarget = 'judged'\n\
                    [[condition]]\nname = 'noisy'\ntarget = 'judged'\n[[background]]\n";

#[test]
fn a_neighbor_takes_the_keys_of_its_workload() {
    let experiment = read(&format!(
        "{HEAD}target = 'n1'\nconditions = ['noisy']\nkind = 'slob'\nscale = '64M'\nnum_threads = 2\n\
         [[background]]\nname = 'quiet too'\ntarget = 'judged'\nconditions = ['quiet']\nkind = 'slob'\n"
    ));
    let [slob, second] = experiment.background.as_slice() else { panic!() };
    assert_eq!((slob.target.as_str(), slob.work.kind), ("n1", WorkloadKind::Slob));
    assert_eq!(slob.work.layer.run_time, Some(Duration::from_secs(7)), "the trial and a margin");
    assert_eq!(slob.work.layer.warmup, Some(Duration::ZERO));
    assert!(slob.runs_beside("noisy") && !slob.runs_beside("quiet"));
    assert!(second.runs_beside("quiet (A/A)"), "as its first copy");
    assert_eq!(experiment.workloads.len(), 1, "it is not judged");
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    const WHERE: &str = "target = 'n1'\nconditions = ['noisy']\n";
    for (lines, expected) in [
        ("conditions = ['noisy']\n", "16: background: requires target = \"NAME\""),
        (
            "target = 'n2'\nconditions = ['noisy']\n",
            "17: background.target: `n2` is not a target; the nearest valid one is `n1`",
        ),
        ("target = 'n1'\n", "16: background: requires conditions = [\"NAME\"]"),
        (
            "target = 'n1'\nconditions = ['nosy']\n",
            "18: background.conditions: `nosy` is not a condition; the nearest valid one is `noisy`",
        ),
        (
            &format!("{WHERE}kind = 'commit'\ntransactions = 5\n"),
            "20: background.transactions: does not apply: background work runs as long as the trial",
        ),
        (
            &format!("{WHERE}num_threads = [1, 2]\n"),
            "19: background.num_threads: must be a single value",
        ),
        (&format!("{WHERE}kind = 'device'\n"), "16: background.test: must name one test"),
        (&format!("{WHERE}speed = 1\n"), "19: background.speed: is an unknown key"),
        (
            &format!("{WHERE}[[background]]\n{WHERE}"),
            "19: background.name: `slob` is the name of two background workloads",
        ),
        (
            "target = 'judged'\nconditions = ['noisy']\nkind = 'commit'\n",
            "19: background.kind: `commit` would share its table with the judged workload on `judged`",
        ),
        (
            &format!(
                "{WHERE}kind = 'commit'\n[[background]]\n{WHERE}name = 'b'\nkind = 'commit'\n"
            ),
            "24: background.kind: `commit` would share its table with `commit` on `n1`",
        ),
        (
            &format!("{WHERE}run_time = '5s'\n"),
            "19: background.run_time: does not apply: background work runs as long as the trial",
        ),
    ] {
        let error = error(&format!("{HEAD}{lines}"));
        assert!(error.starts_with(&format!("x.toml:{expected}")), "{lines}: {error}");
    }
    let joint = HEAD
        .replace("name = 'noisy'\ntarget = 'judged'", "name = 'noisy'\ntarget = ['judged', 'n1']");
    let refused = error(&format!("{joint}{WHERE}kind = 'commit'\n"));
    assert!(refused.contains("with the judged workload on `n1`"), "{refused}");
    let apart = "conditions = ['quiet']\nkind = 'commit'\n";
    read(&format!(
        "{HEAD}{WHERE}kind = 'commit'\n[[background]]\ntarget = 'n1'\nname = 'b'\n{apart}"
    ));
    let woven = HEAD.replace("warmup", "weave = '20ms'\nwarmup");
    let error = error(&format!("{woven}{WHERE}"));
    assert!(error.contains("cannot run beside woven conditions"), "{error}");
}

#[test]
fn mail_beside_mail_has_directories_of_its_own() {
    let keys = "kind = 'mail'\nserver = 'm:24'\n";
    let judged = format!("{keys}maildir = '/srv/{{user}}'");
    let head = HEAD.replace("kind = 'commit'", &judged);
    let beside = |maildir: &str| {
        format!("{head}target = 'n1'\nconditions = ['noisy']\n{keys}maildir = '{maildir}'\n")
    };
    let refused = error(&beside("/srv/{user}"));
    let expected = "background.kind: `mail` would remove messages of the judged workload";
    assert!(refused.contains(expected), "{refused}");
    read(&(beside("/srv/{user}") + "recipients = 'v{1..9}@localhost'\n"));
    let apart = beside("/srv/{target}/{user}");
    read(&apart);
    let second = format!(
        "[[background]]\nname = 'b'\ntarget = 'judged'\nconditions = ['noisy']\n{keys}maildir = '/srv/n1/{{user}}'\n"
    );
    let refused = error(&(apart + &second));
    assert!(refused.contains("would remove messages of `mail`"), "{refused}");
}
