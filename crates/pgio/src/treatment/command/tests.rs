//! On real files, with the shell of this machine.

use std::fs;
use std::path::Path;

use super::*;
use crate::treatment::test_support::{in_words, in_world};

fn treatment(body: &str) -> Result<Box<dyn Treatment>, TreatmentError> {
    let table: toml::Table = format!("command = {body}").parse().unwrap();
    let body = table["command"].clone();
    parse(&TreatmentSpec { kind: "command".to_owned(), body, line: 9 })
}

/// A value in a file: set, shown, and restored from what was found.
fn of_file(dir: &Path) -> String {
    let file = dir.join("value").display().to_string();
    format!(
        "{{ name = \"value\", apply = \"echo ours >{file}\", verify = [\"cat\", \"{file}\"], expect = \"ours\", \
         probe = [\"cat\", \"{file}\"], undo = \"echo \\\"$PGIO_PRIOR\\\" >{file}\" }}"
    )
}

fn put_in_force(treatment: &dyn Treatment, world: &mut World<'_>) -> Result<Step, TreatmentError> {
    treatment.check(world)?;
    let step = treatment.probe(world)?.remove(0);
    treatment.apply(world, &step)?;
    treatment.settle(world)?;
    Ok(step)
}

#[test]
fn the_value_found_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "two words\n").unwrap();
    let treatment = treatment(&of_file(dir.path())).unwrap();
    in_world(|world| {
        let step = put_in_force(treatment.as_ref(), world).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "ours\n");
        assert!(treatment.verify(world, When::After).iter().all(Evidence::holds));
        // As from a journal on disk.
        let stored = serde_json::to_string(&step).unwrap();
        let step: Step = serde_json::from_str(&stored).unwrap();
        for _ in 0..2 {
            assert_eq!(undo(world, &step, Stranger::Ask).unwrap(), Undone::PutBack);
            assert_eq!(fs::read_to_string(&file).unwrap(), "two words\n");
        }
        assert!(!treatment.verify(world, When::After).iter().all(Evidence::holds));
    });
}

#[test]
fn a_change_of_someone_else_is_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "prior\n").unwrap();
    let treatment = treatment(&of_file(dir.path())).unwrap();
    in_world(|world| {
        let step = put_in_force(treatment.as_ref(), world).unwrap();
        fs::write(&file, "theirs\n").unwrap();
        let asked = undo(world, &step, Stranger::Ask).unwrap_err().to_string();
        assert!(asked.contains("`theirs`") && asked.contains("--restore"), "{asked}");
        assert_eq!(undo(world, &step, Stranger::Keep).unwrap(), Undone::Kept);
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs\n");
        assert_eq!(undo(world, &step, Stranger::Restore).unwrap(), Undone::PutBack);
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
    in_world(|world| {
        let step = put_in_force(remove.as_ref(), world).unwrap();
        assert_eq!(undo(world, &step, Stranger::Ask).unwrap(), Undone::PutBack);
        // Never applied: this undo of nothing fails, and says how to go on.
        let error = undo(world, &step, Stranger::Ask).unwrap_err().to_string();
        assert!(error.contains("undo of command `mark`") && error.contains("--keep"), "{error}");
        assert_eq!(undo(world, &step, Stranger::Keep).unwrap(), Undone::Kept);

        let idle = treatment(&body("true")).unwrap();
        let step = put_in_force(idle.as_ref(), world).unwrap();
        let error = undo(world, &step, Stranger::Ask).unwrap_err().to_string();
        assert!(error.ends_with("has no effect: verify still succeeds"), "{error}");
        let error = idle.check(world).unwrap_err().to_string();
        assert!(error.contains("succeeds already"), "{error}");
    });
}

fn wait_until_running(host: &Host, mark: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while line::running(host, mark).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it was never seen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_undo_waits_for_what_a_killed_run_had_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    fs::write(&file, "prior\n").unwrap();
    let body = of_file(dir.path()).replace("echo ours", "sleep 0.5; echo ours");
    let treatment = treatment(&body).unwrap();
    in_world(|world| {
        let step = treatment.probe(world).unwrap().remove(0);
        let commands = commands_of(&step).unwrap();
        let (mark, host) = (commands.mark.clone().unwrap(), Host::local());
        assert_eq!(line::running(&host, &mark).unwrap(), [""; 0]);
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
        assert_eq!(undo(world, &step, Stranger::Ask).unwrap(), Undone::PutBack);
        assert_eq!(fs::read_to_string(&file).unwrap(), "prior\n");
        assert!(apply.join().unwrap().status.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "prior\n");
    });
}

#[test]
fn an_undo_refuses_while_it_goes_on_and_lets_daemons_be() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("value"), "prior\n").unwrap();
    let body = of_file(dir.path()).replace(" }", ", timeout = \"2s\" }");
    let treatment = treatment(&body).unwrap();
    in_world(|world| {
        let mut step = treatment.probe(world).unwrap().remove(0);
        let mark = commands_of(&step).unwrap().mark.unwrap();
        let run = |line: serde_json::Value| {
            let line: Line = serde_json::from_value(line).unwrap();
            line.output(&Host::local(), Duration::from_secs(60), None, Some(&mark))
        };
        let leaves = run(json!(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]));
        let left = leaves.unwrap().unwrap().stdout.trim().to_owned();
        assert_eq!(undo(world, &step, Stranger::Ask).unwrap(), Undone::PutBack, "a daemon is none");
        let end = crate::host::exec::CommandLine::new("kill").arg(&left);
        crate::host::exec::Exec::run(&Host::local(), &end).unwrap();

        step.prior = json!("another");
        thread::scope(|scope| {
            scope.spawn(|| run(json!(["sleep", "8"])).unwrap().unwrap());
            wait_until_running(&Host::local(), &mark);
            let error = undo(world, &step, Stranger::Restore).unwrap_err().to_string();
            assert!(
                error.starts_with("undo of command `value` on host local: what was started"),
                "{error}"
            );
            assert!(error.contains("`pgio undo` again"), "{error}");
        });
    });
}

#[test]
fn what_fails_is_said_without_the_line_itself() {
    let of = |apply: &str, verify: &str| {
        let body = format!(
            "{{ name = \"x\", apply = \"{apply}\", verify = \"{verify}\", undo = \"true\", timeout = \"1s\" }}"
        );
        let treatment = treatment(&body).unwrap();
        in_world(|world| put_in_force(treatment.as_ref(), world)).unwrap_err().to_string()
    };
    let error = of("echo reason >&2; exit 3 # geheim", "false");
    assert_eq!(error, "apply of command `x` on host local: ends with exit status 3: reason");
    let error = of("true # geheim", "false # geheim");
    assert_eq!(
        error,
        "verify of command `x` on host local: ends with exit status 1, after apply succeeded"
    );
    let error = of("sleep 60 # geheim", "false");
    assert_eq!(error, "apply of command `x` on host local: did not end within 1 s");
    let missing =
        "{ name = \"x\", apply = [\"/nonexistent/geheim\"], verify = \"false\", undo = \"true\" }";
    let treatment = treatment(missing).unwrap();
    let error = in_world(|world| put_in_force(treatment.as_ref(), world)).unwrap_err().to_string();
    assert!(!error.contains("geheim") || error.contains("is not installed on host"), "{error}");
    assert!(!format!("{:?}", in_words(treatment.as_ref())).contains("geheim"));
}

#[test]
fn mistakes_are_named() {
    for (body, said) in [
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
        assert!(error.starts_with(said), "{error}");
    }
}
