//! Tests with this machine's shell and /proc.

use std::fs;
use std::path::Path;

use super::*;
use crate::host::test_support::await_end;

fn job(argv: &[&str]) -> Job {
    let argv = argv.iter().map(|a| (*a).to_owned()).collect();
    Job { key: "run", argv, limit: Duration::from_secs(30), limit_key: "time_limit" }
}

fn runner() -> Runner {
    Runner::open(&Host::local()).unwrap()
}

fn run(runner: &mut Runner, argv: &[&str]) -> Done {
    runner.run(&job(argv), &Stop::new(), &mut |_, _| {}).unwrap()
}

/// Returns whether a process with this argument runs.
fn runs(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.into_iter().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|word| word == argument.as_bytes())
    })
}

fn gone(argument: &str) -> bool {
    let asked = Instant::now();
    while runs(argument) && asked.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    !runs(argument)
}

#[test]
fn programs_receive_words_and_variables_unchanged() {
    let mut runner = runner();
    runner.set("A", "it's $HOME\n`two` lines ").unwrap();
    let done = run(
        &mut runner,
        &["sh", "-c", "printf '%s|' \"$A\" \"$@\"; echo err >&2", "sh", "a b", "", "'", "x\ny "],
    );
    assert_eq!(done.stdout, "it's $HOME\n`two` lines |a b||'|x\ny |");
    assert_eq!(done.stderr, "err\n");
    assert!(done.seconds.unwrap() < 20.0);
    let again = run(&mut runner, &["sh", "-c", "sleep 0.3"]);
    assert_eq!(again.stdout, "", "nothing of the one before");
    let seconds = again.seconds.unwrap();
    assert!(seconds >= 0.28, "{seconds}");
}

#[test]
fn a_failure_reports_its_status_and_last_lines() {
    let mut runner = runner();
    let error =
        |argv: &[&str], runner: &mut Runner| run(runner, argv).seconds.unwrap_err().to_string();
    let text = error(&["sh", "-c", "echo out; echo first >&2; echo why >&2; exit 3"], &mut runner);
    assert_eq!(text, "`sh` (run) ended with exit status 3: first / why");
    let text = error(&["sh", "-c", "echo only out; kill -9 $$"], &mut runner);
    assert_eq!(text, "`sh` (run) ended with exit status 137, killed by signal 9: only out");
    let text = error(&["/nonexistent/prog"], &mut runner);
    assert!(
        text.starts_with(
            "`/nonexistent/prog` (run) ended with exit status 127 (program not found)"
        ),
        "{text}"
    );
    let text = error(&["false"], &mut runner);
    assert_eq!(text, "`false` (run) ended with exit status 1: it printed nothing");
}

#[test]
fn a_program_that_ends_during_a_query_has_ended() {
    // The process ends between the two checks of one query.
    let dies = "alive() { until [ -s \"$dir/ended\" ]; do sleep 0.01; done; return 1; }\n";
    let shell = Shell::start(&Host::local(), &format!("{PRELUDE}{dies}"), BODY).unwrap();
    let dir = shell.greeting().trim().trim_start_matches("ready ").to_owned();
    let mut runner = Runner { shell, host: "local".to_owned(), dir, secret: None };
    let done = run(&mut runner, &["sh", "-c", "sleep 0.2; echo done"]);
    assert_eq!((done.seconds.is_ok(), done.stdout.as_str()), (true, "done\n"));
}

#[test]
fn a_program_that_never_ends_is_killed_with_its_children() {
    for deaf in ["", "trap '' TERM; "] {
        let mut runner = runner();
        let mark = format!("71{}", deaf.len());
        let script = format!("{deaf}echo working; sleep {mark} & while :; do sleep {mark}; done");
        let job = Job { limit: Duration::from_secs(2), ..job(&["sh", "-c", &script]) };
        let done = runner.run(&job, &Stop::new(), &mut |_, _| {}).unwrap();
        assert_eq!(
            done.seconds.unwrap_err().to_string(),
            "`sh` (run) did not end within 2 s and was killed; raise time_limit, or find the cause in its output: working"
        );
        assert!(gone(&mark));
        // The next line can run.
        assert_eq!(run(&mut runner, &["echo", "x"]).stdout, "x\n");
    }
}

#[test]
fn a_stop_or_the_end_of_the_owner_ends_the_program() {
    let mut runner = runner();
    let (stop, asked) = (Stop::new(), Instant::now());
    let argv = ["sh", "-c", "sleep 7201 & sleep 7201"];
    let mut started = false;
    let done = runner.run(&job(&argv), &stop, &mut |_, _| {
        if runs("7201") {
            started = true;
            stop.request();
        }
    });
    assert!(started && matches!(done.unwrap().seconds, Err(CommandError::Stopped)));
    assert!(gone("7201") && asked.elapsed() < Duration::from_secs(20));

    // Processes that a program leaves behind are ended too.
    run(&mut runner, &["sh", "-c", "sleep 7202 & exit 0"]);
    assert!(gone("7202"));
    let dir = runner.dir.clone();
    assert!(Path::new(&dir).is_dir());
    drop(runner);
    assert!(!Path::new(&dir).exists());
}

/// Another process group may have its number.
#[test]
fn a_program_that_has_ended_is_never_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, leader) = (dir.path().join("killed"), dir.path().join("leader"));
    let fake = format!("kill() {{ echo \"$@\" >>{}; command kill \"$@\"; }}\n", log.display());
    let mut shell = Shell::start(&Host::local(), &(fake + PRELUDE), BODY).unwrap();
    let run = format!("run sh -c {}", quote_word(&format!("echo $PPID >{}", leader.display())));
    let mut run_to_end = |question: &str| {
        let _ = fs::remove_file(&leader);
        shell.ask(&run, ANSWER_LIMIT).unwrap();
        await_end(&leader);
        shell.ask(question, ANSWER_LIMIT).unwrap().text
    };
    assert!(run_to_end("").starts_with("ended 0 "));
    assert!(run_to_end("stop TERM").starts_with("ended 0 "));
    let killed = fs::read_to_string(log).unwrap_or_default();
    assert!(!killed.contains("KILL") && !killed.contains("TERM"), "{killed}");
}

#[test]
fn output_is_reported_while_the_program_runs() {
    let mut runner = runner();
    let mut lines = Vec::new();
    let argv = ["sh", "-c", "for i in 1 2 3; do echo line $i >&2; sleep 0.8; done"];
    runner.run(&job(&argv), &Stop::new(), &mut |_, text| lines.push(text.to_owned())).unwrap();
    lines.dedup();
    assert_eq!(lines.first().map(String::as_str), Some(""));
    assert!(
        lines.len() > 1 && lines[1..].iter().all(|line| line.starts_with("line ")),
        "{lines:?}"
    );
}

#[test]
fn files_of_earlier_runs_are_refused() {
    let mut runner = runner();
    let file = format!("{}/a file", runner.dir);
    fs::write(&file, "of before").unwrap();
    thread::sleep(Duration::from_millis(30));
    run(&mut runner, &["true"]);
    assert!(
        runner.file(&file).unwrap().unwrap_err().contains("is older than this run; find out why")
    );
    run(&mut runner, &["sh", "-c", "echo now >\"$1\"", "sh", &file]);
    assert_eq!(runner.file(&file).unwrap().unwrap(), "now\n");
    assert!(runner.file("/nonexistent").unwrap().unwrap_err().contains("does not exist on host"));
}

#[test]
fn a_password_is_in_the_environment_and_nowhere_else() {
    let mut runner = runner();
    runner.set_secret("PGPASSWORD", pgio_connect::Secret::new("ge heim")).unwrap();
    let done =
        run(&mut runner, &["sh", "-c", "echo $PGPASSWORD; tr '\\0' ' ' </proc/$PPID/cmdline >&2"]);
    assert_eq!(done.stdout, "***\n");
    assert!(!done.stderr.contains("heim") && !done.stderr.contains("***"), "{}", done.stderr);
    assert_eq!(run(&mut runner, &["sh", "-c", "echo ${#PGPASSWORD}"]).stdout, "7\n");
}
