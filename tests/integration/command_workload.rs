//! The workload `command`: programs of others, what they print, failed trials with their reasons, and refusals before
//! anything is created. The shipped presets: `command_presets`.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::managed::plain_role;
use crate::sshd::Sshd;
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::{
    BETWEEN_TRIAL_CHECKS, CommandResult, SAMPLED, Workdir, pgio_sessions, tolerate, wait_until,
};

pub(crate) const ONCE: &str = "blocks = 1\naa = false";

/// An experiment with a workload of kind `command` on a server; `conditions` as in `workdir::experiment`.
pub(crate) fn experiment(
    target: &str,
    keys: &str,
    workload: &str,
    conditions: &[(&str, &str)],
) -> String {
    let telemetry = if keys.contains("telemetry") { "" } else { "telemetry = \"0s\"" };
    let mut text = format!(
        "[experiment]\nname = \"test\"\n{keys}\n{telemetry}\n{}\n\n\
         [target]\n{target}\n\n[workload]\nkind = \"command\"\n{workload}\n",
        tolerate(&BETWEEN_TRIAL_CHECKS)
    );
    for (name, postgres) in conditions {
        text += &format!("\n[[condition]]\nname = {name:?}\n");
        if !postgres.is_empty() {
            text += &format!("postgres = {{ {postgres} }}\n");
        }
    }
    text
}

fn measured(dir: &Workdir, dsn: &str, workload: &str) -> CommandResult {
    let conditions = [("a", "")];
    dir.compare(&experiment(&format!("dsn = {dsn:?}"), ONCE, workload, &conditions))
}

/// Returns the error of the only trial.
fn failure(dsn: &str, workload: &str) -> String {
    let dir = Workdir::new();
    let result = measured(&dir, dsn, workload);
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "failed", "{result}");
    trial["outcome"]["error"].as_str().unwrap().to_owned()
}

pub(crate) fn output(dir: &Workdir, name: &str) -> String {
    fs::read_to_string(dir.out().join("output").join(name)).unwrap()
}

/// A line of a shell whose one number is `value`.
pub(crate) fn prints(text: &str) -> String {
    format!(
        "run = {text:?}\nmetric = [{{ name = \"rate\", unit = \"things/s\", better = \"higher\", \
         regex = \"^rate (\\\\S+)\" }}]"
    )
}

/// Its setting is what it measures, so that the right answer is known.
#[test]
fn a_condition_reaches_the_programs_sessions_and_its_metrics_are_like_others() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let workload = "run = \"psql -qAtX -c 'SHOW work_mem' -c 'SELECT pg_sleep(0.4)'; echo done >&2\"\n\
                    sessions = 1\nparameters = { one = \"{sessions}\" }\nenv = { ONE = \"{one}\" }\n\
                    [[workload.metric]]\nname = \"memory\"\nunit = \"bytes\"\nbetter = \"higher\"\n\
                    regex = \"^([0-9]+)MB\"\nscale = 1048576\nprimary = true\n\
                    [[workload.metric]]\nname = \"lines\"\nunit = \"lines\"\nbetter = \"neither\"\n\
                    regex = \"nowhere ([0-9])\"\noptional = true\n";
    let conditions = [("small", "work_mem = \"4MB\""), ("large", "work_mem = \"8MB\"")];
    let text =
        experiment(&format!("dsn = {dsn:?}"), "blocks = 6\naa = false", workload, &conditions);
    let result = dir.compare(&text).expect(0, &["large", "+100.0 %", "4 MiB", "8 MiB"]);
    assert!(result.out.contains("memory"), "{result}");

    let manifest = dir.manifest();
    assert_eq!(
        manifest["metrics"],
        json!([{ "name": "memory", "unit": "bytes", "better": "higher" },
               { "name": "lines", "unit": "lines", "better": "neither" }])
    );
    assert_eq!(manifest["primary_metric"], "memory");
    let trials = dir.trials();
    assert_eq!(trials.len(), 12);
    for trial in &trials {
        crate::schema::assert_valid("pgio.trial/1", trial);
        assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
        let expected = if trial["place"]["condition"] == "small" { 4 } else { 8 };
        assert_eq!(
            trial["metrics"]["memory"],
            json!({ "value": f64::from(expected << 20), "unit": "bytes" })
        );
        assert_eq!(trial["metrics"]["lines"]["value"], Value::Null);
        assert_eq!(trial["settings"]["work_mem"], format!("{expected}MB"));
        let evidence = trial["evidence"].as_array().unwrap();
        let count = |what: &str| evidence.iter().filter(|e| e["what"] == what).count();
        assert_eq!(
            (count("work_mem (sessions)"), count("sessions of the command")),
            (1, 1),
            "{evidence:?}"
        );
        // Rates refer to the program's run, not to a duration that it does not know.
        let window = &trial["window"];
        assert_eq!(
            (&window["asked_seconds"], &window["warmup_seconds"]),
            (&Value::Null, &json!(0.0))
        );
        let seconds = window["seconds"].as_f64().unwrap();
        assert!((0.4..10.0).contains(&seconds), "{seconds}");
    }
    crate::schema::assert_valid("pgio.manifest/1", &manifest);
    assert!(output(&dir, "0012.stdout").contains("MB\n"));
    assert_eq!(output(&dir, "0001.stderr"), "done\n");

    let analysis = dir.analysis();
    crate::schema::assert_valid("pgio.analysis/1", &analysis);
    let comparisons = analysis["comparisons"].as_array().unwrap();
    let memory = comparisons.iter().find(|c| c["metric"] == "memory").unwrap();
    assert_eq!((&memory["verdict"], &memory["primary"]), (&json!("faster"), &json!(true)));
    assert!((memory["ratio"].as_f64().unwrap() - 2.0).abs() < 1e-6, "{memory}");
    let csv = dir.pgio(&["report", "out", "--format", "csv"]).expect(0, &[]);
    let row = csv.out.lines().find(|l| l.contains(",large,") && l.contains(",memory,")).unwrap();
    assert!(row.contains(",bytes,838860") && row.contains(",true,faster,6,"), "{row}");
    let across = dir.pgio(&["report", "out", "out"]).expect(0, &["8 MiB"]);
    assert!(across.out.contains("memory"), "{across}");
    let page = fs::read_to_string(dir.out().join("report.html")).unwrap();
    assert!(page.contains("slower") && page.contains("4 MiB"), "direction and unit");
    let plan = dir.pgio(&["compare", "experiment.toml", "--plan"]);
    plan.expect(0, &["until the command ends", "run on this machine: psql -qAtX", "12 trials"]);
}

/// PGOPTIONS sets it before the session starts. The program fails where the library is not loaded.
#[test]
fn a_condition_loads_a_library_into_the_programs_sessions() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let program = "psql -qAtX -c 'SELECT pg_sleep(0.8)' -c 'SHOW auto_explain.log_min_duration' && echo rate 1";
    let conditions = [("loaded", "session_preload_libraries = \"auto_explain\"")];
    let text = experiment(&format!("dsn = {dsn:?}"), ONCE, &prints(program), &conditions);
    dir.compare(&text).expect(0, &[]);
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    assert_eq!(trial["settings"]["session_preload_libraries"], "auto_explain");
}

#[test]
fn waits_of_another_roles_sessions_are_unknown_and_not_those_for_the_client() {
    let dsn = plain_role(&fresh_database(shared_primary(INSTALLED)), "onlooker");
    let dir = Workdir::new();
    let program = "psql -U postgres -qAtXc 'SELECT pg_sleep(2)' >&2; echo rate 1";
    let keys = format!("{ONCE}\n{SAMPLED}");
    let text = experiment(&format!("dsn = {dsn:?}"), &keys, &prints(program), &[("a", "")]);
    dir.compare(&text).expect(0, &[]);
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    assert!(trial["telemetry"]["waits"].is_null(), "{trial:#}");
    let warnings = trial["warnings"].to_string();
    assert!(warnings.contains("may not see the sessions of another role"), "{warnings}");
}

#[test]
fn the_warm_up_does_not_read_beforehand_what_the_window_reads() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let workload = prints("[ $(cat {dir}/seed) -ne {seed} ] && echo rate 1");
    let warm_up = "warmup = \"1s\"\nwarm_up = \"echo {seed} > {dir}/seed\"\n";
    measured(&dir, &dsn, &format!("{warm_up}{workload}")).expect(0, &[]);
    assert_eq!(dir.trials()[0]["outcome"]["state"], "complete");
}

#[test]
fn a_program_that_ignores_pgoptions_fails_a_condition_with_a_setting() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let target = format!("dsn = {dsn:?}");
    let conditions = [("a", "work_mem = \"8MB\"")];
    let text = experiment(&target, ONCE, &prints("sleep 0.5; echo rate 1"), &conditions);
    dir.compare(&text);
    let error = dir.trials()[0]["outcome"]["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("sets work_mem in the command's sessions, but pgio saw no session with it"),
        "{error}"
    );
    // Without a setting there is nothing to prove.
    let text = experiment(&target, ONCE, &prints("sleep 0.5; echo rate 1"), &[("a", "")]);
    fs::remove_dir_all(dir.out()).unwrap();
    dir.compare(&text).expect(0, &[]);
}

/// A program may take PGAPPNAME from the environment and not PGOPTIONS.
#[test]
fn a_session_without_the_options_proves_nothing_although_it_has_the_environments_name() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let target = format!("dsn = {dsn:?}");
    let session = "psql -qAtX -c 'SELECT pg_sleep(0.8)'";
    let trial = |program: &str| {
        let dir = Workdir::new();
        let conditions = [("a", "work_mem = \"8MB\"")];
        dir.compare(&experiment(&target, ONCE, &prints(program), &conditions));
        dir.trials().remove(0)
    };
    let without = trial(&format!("PGOPTIONS= {session}; echo rate 1"));
    let error = without["outcome"]["error"].as_str().unwrap_or_else(|| panic!("{without:#}"));
    assert!(error.contains("pgio saw no session with it"), "{error}");
    let both = trial(&format!("PGOPTIONS= {session} & {session}; wait; echo rate 1"));
    let checks = both["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == "treatment-in-force").unwrap();
    assert_eq!(check["verdict"], "warning", "{check}");
    assert!(check["message"].as_str().unwrap().contains("not proven"), "{check}");
    let workload = format!(
        "schema = \"pgio_command\"\nsetup = \"PGOPTIONS= psql -qXc 'CREATE TABLE elsewhere ()'\"\n{}",
        prints("echo rate 1")
    );
    let error = failure(&dsn, &workload);
    assert!(error.contains("setup left the schema pgio_command empty"), "{error}");
    connect(&dsn).batch_execute("CREATE TABLE mine AS SELECT 1 AS a").unwrap();
    let drops = |options: &str, table: &str| {
        let sql = format!("DROP TABLE IF EXISTS {table}; CREATE TABLE mine ()");
        let setup = format!("schema = \"pgio_command\"\nsetup = \"{options} psql -qXc '{sql}'\"\n");
        setup + &prints("echo rate 1")
    };
    let error = failure(&dsn, &drops("PGOPTIONS=", "mine"));
    assert!(error.contains("was ended before it changed tables outside"), "{error}");
    let count = |sql| connect(&dsn).query_one(sql, &[]).unwrap().get::<_, i64>(0);
    assert_eq!(count("SELECT count(*) FROM mine"), 1, "the user's table");
    // A session that has the schema may name a table outside.
    let text = experiment(&target, ONCE, &drops("", "public.mine"), &[("a", "")]);
    Workdir::new().compare(&text).expect(0, &[]);
    assert_eq!(count("SELECT count(*) FROM pg_class WHERE oid = to_regclass('public.mine')"), 0);
}

#[test]
fn a_password_stays_in_the_environment() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED)) + " password=geheim";
    let run = "echo pw=$PGPASSWORD; echo $PGPASSWORD {dsn} >&2; echo rate ${#PGPASSWORD}; psql -Xc 'SELECT 1'";
    let result = measured(&dir, &dsn, &prints(run)).expect(0, &["rate"]);
    assert_eq!(dir.trials()[0]["metrics"]["rate"]["value"], 6.0, "it had the password");
    assert!(output(&dir, "0001.stdout").starts_with("pw=***\n"));
    assert!(!result.err.contains("geheim"));
    for entry in
        fs::read_dir(dir.out()).unwrap().chain(fs::read_dir(dir.out().join("output")).unwrap())
    {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert!(!fs::read_to_string(&path).unwrap().contains("geheim"), "{}", path.display());
        }
    }
}

/// Whether a process with this word in its line runs.
fn runs(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.into_iter().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|w| w == word.as_bytes())
    })
}

pub(crate) fn schemas(dsn: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'pgio_command'";
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn a_stop_or_a_kill_leaves_no_program_and_no_session() {
    for (signal, digit) in [(Signal::INT, 1), (Signal::KILL, 2)] {
        // In the line of no other process, another run of the tests included.
        let word = &format!("7{digit}{:08}", std::process::id());
        let dir = Workdir::new();
        let dsn = fresh_database(shared_primary(INSTALLED));
        let run = format!("psql -Xc 'SELECT pg_sleep({word})' & sleep {word} & sleep {word}");
        let workload = format!(
            "schema = \"pgio_command\"\nsetup = \"psql -qXc 'CREATE TABLE t ()'\"\n{}",
            prints(&run)
        );
        let text = experiment(&format!("dsn = {dsn:?}"), ONCE, &workload, &[("a", "")]);
        let mut running = dir.start_compare(&text);
        running.wait_until("at work", || runs(word) && pgio_sessions(&dsn) >= 2);
        running.signal(signal);
        let result = running.wait();
        let code = if signal == Signal::KILL { -9 } else { 130 };
        assert_eq!(result.code, Some(code), "{result}");
        wait_until("no program", || !runs(word));
        if signal == Signal::INT {
            assert_eq!(dir.trials()[0]["outcome"]["state"], "interrupted");
            assert_eq!(schemas(&dsn), 0);
        } else {
            // Leftovers of a kill are found by their mark.
            assert_eq!(schemas(&dsn), 1);
            dir.pgio(&["destroy", "--yes", "--connect-string", &dsn]).expect(0, &["pgio_command"]);
            assert_eq!(schemas(&dsn), 0);
        }
        wait_until("no session", || pgio_sessions(&dsn) == 0);
    }
}

#[test]
fn a_command_runs_on_another_host_over_ssh() {
    let (dir, sshd) = (Workdir::new(), Sshd::start());
    let dsn = fresh_database(shared_primary(INSTALLED));
    let spec = sshd.spec();
    let target = format!(
        "dsn = {dsn:?}\n[hosts.box]\nssh = {:?}\nssh_config = {:?}",
        spec.ssh.unwrap(),
        spec.ssh_config.unwrap()
    );
    let run = prints(
        "echo ${SSH_CONNECTION:+rate 3}; echo \"it's {dir}\" >{dir}/x; sleep 0.3; cat {dir}/x",
    );
    let on_box = format!("host = \"box\"\n{run}");
    dir.compare(&experiment(&target, ONCE, &on_box, &[("a", "")])).expect(0, &["rate"]);
    assert!(output(&dir, "0001.stdout").starts_with("rate 3\nit's /tmp/pgio-command."));
    let trial = &dir.trials()[0];
    assert_eq!(trial["workload"]["keys"]["host"], "box");
    sshd.wait_until_idle();

    // A socket of this machine is none of another's.
    let other = Workdir::new();
    let on_box = format!("host = \"box\"\n{}", prints("psql {dsn}"));
    let text = experiment(&target, ONCE, &on_box, &[("a", "")]);
    other.compare(&text).expect(4, &["uses a Unix socket of this machine"]);
    let nowhere = text.replace("host = \"box\"", "host = \"bux\"");
    other.compare(&nowhere).expect(2, &["unknown host `bux`"]);
    assert!(!other.out().exists());
}

#[test]
fn a_failed_trial_shows_the_programs_output() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let good = prints("echo rate 1");
    let json = "metric = [{ name = 'x', unit = 's', better = 'lower', json = '/x'";
    for (workload, texts) in [
        (
            prints("echo rate 1; echo one >&2; echo two >&2; exit 3"),
            &["`sh` (run) ended with exit status 3: one / two"][..],
        ),
        (
            prints("echo something else; echo result"),
            &[
                "metric `rate`: nothing matches `^rate (\\S+)`; see its complete output in output/",
                "correct regex; end of stdout: something else / result",
            ],
        ),
        (
            format!("run = ['sh', '-c', 'psql -X -c nonsense']\n{json} }}]"),
            &["`sh` (run) ended with exit status 1: ERROR:  syntax error at or near \"nonsense\""],
        ),
        (
            format!("run = 'echo hello'\n{json}, file = '{{dir}}/none' }}]"),
            &["metric `x`: the file /tmp/pgio-command.", "end of stdout: hello"],
        ),
        (
            format!("setup = ['sh', '-c', 'echo no room >&2; exit 7']\n{good}"),
            &["`sh` (setup) ended with exit status 7: no room"],
        ),
        (format!("cleanup = ['false']\n{good}"), &["`false` (cleanup) ended with exit status 1"]),
    ] {
        let error = failure(&dsn, &workload);
        assert!(texts.iter().all(|text| error.contains(text)), "{texts:?}: {error}");
    }
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
    let workload =
        format!("time_limit = \"1s\"\n{}", prints("echo rate 1; while :; do sleep 0.1; done"));
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
    let on_several = |run: &str| measured(&dir, &several, &format!("run = {run}\n{metric}"));
    on_several("['true', '{host}']")
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
