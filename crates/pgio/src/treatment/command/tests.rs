//! Uses real files and the shell of this machine.

use std::fs;
use std::path::Path;

use std::thread;
use std::time::Instant;

use serde_json::json;

use super::step::from_record;
use super::*;
use crate::treatment::mark::processes_with;
use crate::treatment::record::Record;
use crate::treatment::step::{OnConflict, Step, Undone};
use crate::treatment::test_support::{in_context, in_words};

fn treatment(body: &str) -> Result<Box<dyn Treatment>, TreatmentError> {
    command(body).map(|command| Box::new(command) as Box<dyn Treatment>)
}

fn command(body: &str) -> Result<Command, TreatmentError> {
    let table: toml::Table = format!("command = {body}").parse().unwrap();
    let body = table["command"].clone();
    Command::new(&TreatmentSpec { kind: "command".to_owned(), body, line: 9 })
}

/// A value in a file: set, shown, and restored from what was found.
fn of_file(dir: &Path) -> String {
    let file = dir.join("value").display().to_string();
    format!(
        "{{ name = \"value\", apply = \"echo ours >{file}\", verify = [\"cat\", \"{file}\"], expect = \"ours\", \
         probe = [\"cat\", \"{file}\"], undo = \"echo \\\"$PGIO_PRIOR\\\" >{file}\" }}"
    )
}

/// Returns what is in force, and its step as it is read from a journal on disk.
fn put_in_force(
    treatment: &dyn Treatment,
    context: &mut Context<'_>,
) -> Result<(Box<dyn InForce>, CommandStep), TreatmentError> {
    let mut journal = Journal::in_memory("r1");
    let in_force = treatment.check(context)?.put_in_force(context, &mut journal)?;
    Ok((in_force, journaled(&journal)))
}

fn journaled(journal: &Journal) -> CommandStep {
    let (_, record) = journal.open_steps().remove(0);
    let stored = serde_json::to_string(&record).unwrap();
    from_record(&serde_json::from_str::<Record>(&stored).unwrap()).unwrap()
}

/// The step of a command that was not applied.
fn step_of(body: &str, context: &Context<'_>) -> CommandStep {
    command(body).unwrap().step(&context.host(None).unwrap()).unwrap()
}

#[test]
fn the_prior_value_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "two words\n").unwrap();
    let treatment = treatment(&of_file(dir.path())).unwrap();
    in_context(|context| {
        let (mut in_force, step) = put_in_force(treatment.as_ref(), context).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "ours\n");
        assert!(in_force.verify(context, When::After).iter().all(Evidence::holds));
        for _ in 0..2 {
            assert_eq!(step.undo(context, OnConflict::Ask).unwrap(), Undone::Restored);
            assert_eq!(fs::read_to_string(&file).unwrap(), "two words\n");
        }
        assert!(!in_force.verify(context, When::After).iter().all(Evidence::holds));
    });
}

#[test]
fn undo_asks_about_a_foreign_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "prior\n").unwrap();
    let treatment = treatment(&of_file(dir.path())).unwrap();
    in_context(|context| {
        let (_, step) = put_in_force(treatment.as_ref(), context).unwrap();
        fs::write(&file, "theirs\n").unwrap();
        let asked = step.undo(context, OnConflict::Ask).unwrap_err().to_string();
        assert!(asked.contains("`theirs`") && asked.contains("--restore"), "{asked}");
        assert_eq!(step.undo(context, OnConflict::Keep).unwrap(), Undone::Kept);
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs\n");
        assert_eq!(step.undo(context, OnConflict::Restore).unwrap(), Undone::Restored);
        assert_eq!(fs::read_to_string(&file).unwrap(), "prior\n");
    });
}

#[test]
fn without_a_probe_verify_decides() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark").display().to_string();
    let body = |undo: &str| {
        format!(
            "{{ name = \"mark\", apply = [\"touch\", \"{mark}\"], verify = [\"test\", \"-e\", \"{mark}\"], undo = \"{undo}\" }}"
        )
    };
    let remove = treatment(&body(&format!("rm {mark}"))).unwrap();
    in_context(|context| {
        let (_, step) = put_in_force(remove.as_ref(), context).unwrap();
        assert_eq!(step.undo(context, OnConflict::Ask).unwrap(), Undone::Restored);
        // Never applied: this undo of nothing fails with a hint.
        let error = step.undo(context, OnConflict::Ask).unwrap_err().to_string();
        assert!(error.contains("undo of command `mark`") && error.contains("--keep"), "{error}");
        assert_eq!(step.undo(context, OnConflict::Keep).unwrap(), Undone::Kept);

        let idle = treatment(&body("true")).unwrap();
        let (_, step) = put_in_force(idle.as_ref(), context).unwrap();
        let error = step.undo(context, OnConflict::Ask).unwrap_err().to_string();
        assert!(error.ends_with("has no effect: verify still succeeds"), "{error}");
        let error = idle.check(context).unwrap_err().to_string();
        assert!(error.contains("succeeds before apply"), "{error}");
    });
}

#[test]
fn a_change_that_the_probe_does_not_show_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let shown = mark.display().to_string();
    let body = |undo: &str| {
        format!(
            "{{ name = \"mark\", apply = [\"touch\", \"{shown}\"], verify = [\"test\", \"-e\", \"{shown}\"], \
             probe = \"echo x\", undo = \"{undo}\" }}"
        )
    };
    let remove = treatment(&body(&format!("rm {shown}"))).unwrap();
    in_context(|context| {
        let (_, step) = put_in_force(remove.as_ref(), context).unwrap();
        // The second time there is nothing to undo, and rm would fail.
        for _ in 0..2 {
            assert_eq!(step.undo(context, OnConflict::Ask).unwrap(), Undone::Restored);
            assert!(!mark.exists());
        }

        let idle = treatment(&body("true")).unwrap();
        let (_, step) = put_in_force(idle.as_ref(), context).unwrap();
        let error = step.undo(context, OnConflict::Ask).unwrap_err().to_string();
        assert!(error.ends_with("has no effect: verify still succeeds"), "{error}");
    });
}

fn wait_until_running(host: &Host, mark: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while processes_with(host, mark).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it was never seen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_undo_waits_for_commands_of_a_killed_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "prior\n").unwrap();
    let body = of_file(dir.path()).replace("echo ours", "sleep 0.5; echo ours");
    in_context(|context| {
        let step = step_of(&body, context);
        let commands = step.commands.clone();
        let (mark, host) = (commands.mark.clone().unwrap(), Host::local());
        assert_eq!(processes_with(&host, &mark).unwrap(), [""; 0]);
        // It lives on beside us, and is not over when the undo comes.
        let late = format!("sleep 2; echo ours >{}", file.display());
        let line = json!(["sh", "-c", late]);
        let line: Line = serde_json::from_value(line).unwrap();
        let apply = thread::spawn(move || {
            let limit = Duration::from_secs(60);
            line.output(&Host::local(), limit, None, Some(&mark)).unwrap().unwrap()
        });
        let mark = commands.mark.unwrap();
        wait_until_running(&host, &mark);
        assert_eq!(step.undo(context, OnConflict::Ask).unwrap(), Undone::Restored);
        assert_eq!(fs::read_to_string(&file).unwrap(), "prior\n");
        assert!(apply.join().unwrap().status.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "prior\n");
    });
}

#[test]
fn an_undo_refuses_while_a_command_runs_and_ignores_daemons() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("value"), "prior\n").unwrap();
    let body = of_file(dir.path()).replace(" }", ", timeout = \"2s\" }");
    in_context(|context| {
        let mut step = step_of(&body, context);
        let mark = step.commands.mark.clone().unwrap();
        let run = |line: serde_json::Value| {
            let line: Line = serde_json::from_value(line).unwrap();
            line.output(&Host::local(), Duration::from_secs(60), None, Some(&mark))
        };
        let leaves = run(json!(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]));
        let left = leaves.unwrap().unwrap().stdout.trim().to_owned();
        assert_eq!(
            step.undo(context, OnConflict::Ask).unwrap(),
            Undone::Restored,
            "a daemon is none"
        );
        let end = crate::host::exec::CommandLine::new("kill").arg(&left);
        crate::host::exec::Exec::run(&Host::local(), &end).unwrap();

        step.prior = Some("another".to_owned());
        thread::scope(|scope| {
            scope.spawn(|| run(json!(["sleep", "8"])).unwrap().unwrap());
            wait_until_running(&Host::local(), &mark);
            let error = step.undo(context, OnConflict::Restore).unwrap_err().to_string();
            assert!(
                error.starts_with(
                    "undo of command `value` on host local: a command of an interrupted run"
                ),
                "{error}"
            );
            assert!(error.contains("rerun `pgio undo`"), "{error}");
        });
    });
}

#[test]
fn errors_do_not_show_the_command_line() {
    let of = |apply: &str, verify: &str| {
        let body = format!(
            "{{ name = \"x\", apply = \"{apply}\", verify = \"{verify}\", undo = \"true\", timeout = \"1s\" }}"
        );
        let treatment = treatment(&body).unwrap();
        in_context(|context| put_in_force(treatment.as_ref(), context))
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let error = of("echo reason >&2; exit 3 # geheim", "false");
    assert_eq!(error, "apply of command `x` on host local: exited with status 3: reason");
    let error = of("true # geheim", "false # geheim");
    assert_eq!(
        error,
        "verify of command `x` on host local: exited with status 1, after apply succeeded"
    );
    let error = of("sleep 60 # geheim", "false");
    assert_eq!(error, "apply of command `x` on host local: did not finish within 1 s");
    let missing =
        "{ name = \"x\", apply = [\"/nonexistent/geheim\"], verify = \"false\", undo = \"true\" }";
    let treatment = treatment(missing).unwrap();
    let error = in_context(|context| put_in_force(treatment.as_ref(), context))
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(!error.contains("geheim") || error.contains("is not installed on host"), "{error}");
    assert!(!format!("{:?}", in_words(treatment.as_ref())).contains("geheim"));
}

#[test]
fn errors_in_command_name_line_and_key() {
    for (body, message) in [
        ("\"ls\"", "line 9: command: must be a table"),
        ("{ apply = \"a\" }", "line 9: command.name: is missing"),
        ("{ name = \"n\", apply = \"a\", undo = \"u\" }", "line 9: command.verify: is missing"),
        ("{ name = \"n\", apply = \"a\", verify = \"v\" }", "line 9: command.undo: is missing"),
        (
            "{ name = \"n\", aply = \"a\" }",
            "line 9: command.aply: is an unknown key; the nearest valid one is `apply`",
        ),
        ("{ name = \"n\", apply = [] }", "line 9: command.apply: must be a list of texts"),
        ("{ name = \"a = b\", apply = \"a\" }", "line 9: command.name: must be one line"),
        ("{ name = \"n\", timeout = \"soon\" }", "line 9: command.timeout: must be a duration"),
    ] {
        let error = treatment(body).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
