//! Errors: failed trials with their reasons, and refusals before anything is created.

use super::{experiment, failure, measured, output, prints};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::Workdir;

fn on(dsn: &str, workload: &str, texts: &[&str]) {
    let error = failure(dsn, workload);
    for text in texts {
        assert!(error.contains(text), "no `{text}` in: {error}");
    }
}

#[test]
fn a_failed_trial_shows_the_programs_output() {
    let dsn = &fresh_database(shared_primary(INSTALLED));
    let shell = |text: &str| prints(text);
    on(
        dsn,
        &shell("echo rate 1; echo one >&2; echo two >&2; exit 3"),
        &["`sh` (run) ended with exit status 3: one / two"],
    );
    on(
        dsn,
        &shell("echo rate 1; kill -SEGV $$"),
        &["exit status 139, killed by signal 11: rate 1"],
    );
    on(
        dsn,
        &shell("echo something else; echo result"),
        &[
            "metric `rate`: nothing matches `^rate (\\S+)`; see its complete output in output/",
            "correct regex; end of stdout: something else / result",
        ],
    );
    on(dsn, &shell("true"), &["nothing matches", "end of stdout: nothing"]);
    for (value, why) in [
        ("0", "0 has no ratio"),
        ("-1", "-1 has no ratio"),
        ("nan", "NaN is not a finite number"),
        ("inf", "inf is not a finite number"),
        ("fast", "matches `fast`, which is not a number"),
    ] {
        on(dsn, &shell(&format!("echo rate {value}")), &["metric `rate`: ", why]);
    }
    on(
        dsn,
        "run = ['sh', '-c', 'psql -X -c nonsense']\nmetric = [{ name = 'x', unit = 's', better = 'lower', json = '/x' }]",
        &["`sh` (run) ended with exit status 1: ERROR:  syntax error at or near \"nonsense\""],
    );
    on(
        dsn,
        "run = 'echo hello'\nmetric = [{ name = 'x', unit = 's', better = 'lower', json = '/x' }]",
        &[
            "metric `x`: the output contains no JSON; see its complete output",
            "end of stdout: hello",
        ],
    );
    on(
        dsn,
        "run = 'echo hello'\nmetric = [{ name = 'x', unit = 's', better = 'lower', json = '/x', file = '{dir}/none' }]",
        &["metric `x`: the file /tmp/pgio-command.", "end of stdout: hello"],
    );
    on(
        dsn,
        &format!("setup = ['sh', '-c', 'echo no room >&2; exit 7']\n{}", shell("echo rate 1")),
        &["`sh` (setup) ended with exit status 7: no room"],
    );
    on(
        dsn,
        &format!("cleanup = ['false']\n{}", shell("echo rate 1")),
        &["`false` (cleanup) ended with exit status 1"],
    );
    on(
        dsn,
        &format!("warmup = \"1s\"\nwarm_up = ['sh', '-c', 'exit 9']\n{}", shell("echo rate 1")),
        &["`sh` (warm_up) ended with exit status 9"],
    );
}

#[test]
fn what_setup_made_is_cleaned_up_if_the_window_is_never_reached() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let made = dir.path().join("made");
    let workload = format!(
        "setup = \"mkdir '{0}'\"\ncleanup = \"rmdir '{0}'\"\nwarmup = \"1s\"\n\
         warm_up = ['sh', '-c', 'exit 9']\n{1}",
        made.display(),
        prints("echo rate 1")
    );
    measured(&dir, &dsn, &workload);
    let error = dir.trials()[0]["outcome"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("`sh` (warm_up) ended with exit status 9"), "{error}");
    assert!(!made.exists());
}

#[test]
fn a_command_that_never_ends_times_out_and_its_output_is_kept() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let workload = format!(
        "time_limit = \"1s\"\n{}",
        prints("trap '' TERM; echo rate 1; while :; do sleep 0.1; done")
    );
    measured(&dir, &dsn, &workload);
    let error = dir.trials()[0]["outcome"]["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("`sh` (run) did not end within 1 s and was killed; raise time_limit"),
        "{error}"
    );
    assert_eq!(output(&dir, "0001.stdout"), "rate 1\n");
    assert!(dir.trials()[0]["metrics"].get("rate").is_none());
}

#[test]
fn invalid_commands_are_refused_before_anything_is_changed() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let metric = "metric = [{ name = 'x', unit = 's', better = 'lower', regex = 'x' }]";
    let with = |keys: &str| measured(&dir, &dsn, &format!("{keys}\n{metric}"));
    with("run = ['pgio-no-such', 'x']")
        .expect(4, &["program `pgio-no-such` is not on this machine: install it there"]);
    with("run = 'true'\nsetup = ['pgio-no-such']").expect(4, &["program `pgio-no-such`"]);
    with("run = 'true'\nhost = 'nowhere'").expect(2, &["unknown host `nowhere`"]);
    let several = dsn.replacen("host=", "host=/nonexistent,", 1);
    let of_first = |run: &str| measured(&dir, &several, &format!("run = {run}\n{metric}"));
    of_first("['true', '{host}']")
        .expect(4, &["uses {host}, which is only the first of several hosts in the target's dsn"]);
    with("run = ['true', '{secs}']").expect(2, &["contains unknown placeholder {secs}"]);
    let ours = metric.replace("'x', unit", "'riops', unit");
    measured(&dir, &dsn, &format!("run = 'true'\n{ours}"))
        .expect(2, &["`riops` is a built-in metric"]);
    let text = experiment(
        &format!("dsn = {dsn:?}"),
        "primary = \"y\"",
        &format!("run = 'true'\n{metric}"),
        &[("a", "")],
    );
    dir.compare(&text).expect(2, &["unknown metric `y`; the nearest valid one is `x`"]);

    connect(&dsn)
        .batch_execute("CREATE SCHEMA pgio_command; CREATE TABLE pgio_command.precious ()")
        .unwrap();
    with("run = 'true'\nschema = 'pgio_command'")
        .expect(4, &["schema pgio_command exists and was not created by pgio"]);
    connect(&dsn).batch_execute("SELECT FROM pgio_command.precious").unwrap();
    assert!(!dir.out().exists());

    connect(&dsn).batch_execute("CREATE ROLE command_guest LOGIN").unwrap();
    let guest =
        dsn.split_whitespace().filter(|w| !w.starts_with("user=")).collect::<Vec<_>>().join(" ");
    let text = experiment(
        &format!("dsn = {:?}", format!("{guest} user=command_guest")),
        "",
        &format!("run = 'true'\nschema = 'mine'\n{metric}"),
        &[("a", "")],
    );
    dir.compare(&text)
        .expect(4, &["has no privilege to create the schema mine; run: GRANT CREATE ON DATABASE"]);
}
