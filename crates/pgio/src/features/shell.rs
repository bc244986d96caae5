//! `command = { apply = …, verify = …, undo = …, … }`: a change that no other treatment makes, by the
//! user's own commands.
//!
//! `verify` is required, since it proves that the change is in force: exit status 0 and, with `expect`,
//! this output; undo succeeds only if it fails again. What `probe` prints before is the prior value: undo finds it in
//! PGIO_PRIOR, and succeeds only if `probe` prints it again as well. The undo command is in the journal, which only
//! its owner can read. A command is a list of words, or text for `sh`. The apply or undo command of a run that
//! was killed may still be running: the next undo waits for it, and fails if it does not end.
//!
//! A command line may contain a password, so messages show the `name` only. Next: [`step`].

mod step;

use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::step::{CommandStep, Commands, NAME};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::host::{Host, HostError};
use crate::treatment::body::Body;
use crate::treatment::context::Context;
use crate::treatment::contract::{Declared, InForce, Kind, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};

pub(super) static FEATURE: Feature =
    Feature { name: "shell", treatments: &[KIND], ..Feature::NONE };

const KIND: Kind = Kind {
    name: NAME,
    help: "your own commands: { name = \"…\", apply = [..] or \"shell line\", verify = …, undo = … }; expect = \"what verify prints\", probe = a command that prints the prior value, which undo finds in PGIO_PRIOR, host = \"…\", timeout = \"60s\"",
    parse,
    read: CommandStep::read,
};

const KEYS: &[&str] = &["name", "apply", "verify", "undo", "probe", "expect", "host", "timeout"];
const EXAMPLE: &str = "{ name = \"swap off\", apply = \"swapoff -a\", verify = \"! grep -q ^/ /proc/swaps\", undo = \"swapon -a\" }";

const TIMEOUT: Duration = Duration::from_secs(60);

/// The commands, the same in all phases.
#[derive(Debug, Clone)]
struct Command {
    apply: Line,
    /// None means the server's host.
    host: Option<String>,
    commands: Commands,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    Ok(Box::new(Command::new(spec)?))
}

impl Command {
    fn new(spec: &TreatmentSpec) -> Result<Command, TreatmentError> {
        let body = Body::table(spec, KEYS, EXAMPLE)?;
        let line = |key: &str, why: &str| match Line::read(&body, key)? {
            Some(line) => Ok(line),
            None => Err(body.error(key, format!("is missing: {why}"))),
        };
        let name = body.required("name", "the name for reports, such as \"swap off\"")?;
        if name.contains(['=', '\n']) {
            return Err(body.error("name", "must be one line without `=`"));
        }
        let timeout = match body.text("timeout")? {
            None => TIMEOUT,
            Some(text) => pgio_results::units::parse_duration(text)
                .ok()
                .filter(|limit| !limit.is_zero())
                .ok_or_else(|| body.error("timeout", "must be a duration such as \"60s\""))?,
        };
        Ok(Command {
            apply: line("apply", "the command that applies the change")?,
            host: body.text("host")?.map(str::to_owned),
            commands: Commands {
                name: name.to_owned(),
                verify: line("verify", "a command that succeeds only if the change is in force")?,
                undo: line("undo", "the command that undoes the change")?,
                probe: Line::read(&body, "probe")?,
                expect: body.text("expect")?.map(str::to_owned),
                seconds: timeout.as_secs_f64(),
                mark: None,
            },
        })
    }

    fn what(&self) -> String {
        format!("command `{}`", self.commands.name)
    }

    fn check_not_in_force(&self, host: &Host) -> Result<(), TreatmentError> {
        if self.commands.is_in_force(host)? {
            let why = "succeeds before apply: either it proves nothing, or undo would remove what existed before";
            return Err(self.commands.failed("verify", host, why));
        }
        Ok(())
    }

    fn step(&self, host: &Host) -> Result<CommandStep, TreatmentError> {
        let prior = self.commands.run_probe(host)?;
        let mark = Some(new_mark(host)?);
        let ours = Commands { mark, ..self.commands.clone() };
        Ok(CommandStep { label: Label::on_host(self.what(), host.name()), prior, ours })
    }
}

impl Treatment for Command {
    fn declared(&self) -> Declared {
        let name = Change::new(self.host.as_deref(), Subject::Command, &self.commands.name, "");
        let how = "by your commands: probe, apply, verify and, after the trial, undo";
        Declared {
            intents: vec![format!("{name} = in force {how}")],
            changes: vec![name],
            ..Declared::default()
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        Ok(vec![Preview {
            what: format!("{} on host {}", self.what(), host.name()),
            now: "unknown, since finding out would run a command".to_owned(),
            then: "in force".to_owned(),
            how: "by your commands",
        }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        // Only the user knows what the commands change.
        let host = context.host(self.host.as_deref())?;
        Ok(vec![Touch::Resource(Resource::on(&host, "whatever commands change"))])
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        self.check_not_in_force(&host)?;
        self.commands.run_probe(&host)?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for Command {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        self.check_not_in_force(&host)?;
        let step = self.step(&host)?;
        carry_out(journal, &step, || {
            step.ours.run("apply", &self.apply, &host, step.prior.as_deref())
        })?;
        match self.commands.run_verify(&host)? {
            Ok(_) => Ok(Box::new(self.clone())),
            Err(why) => {
                let why = format!("{why}, after apply succeeded");
                Err(self.commands.failed("verify", &host, &why))
            }
        }
    }
}

impl InForce for Command {
    /// Reads nothing inside the window, which would measure a command of unknown cost.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        if when == When::During {
            return Vec::new();
        }
        let verified = context
            .host(self.host.as_deref())
            .and_then(|host| self.commands.run_verify(&host))
            .unwrap_or_else(|error| Err(error.to_string()));
        let expected = "in force".to_owned();
        let found =
            verified.map_or_else(|why| format!("not in force: {why}"), |_| expected.clone());
        vec![Evidence { when, what: self.what(), found, expected: Some(expected) }]
    }
}

/// `$0` is the mark. The exit comes after the command, or a shell would replace itself by the command;
/// a missing program is reported without the command line.
const MARKED_SCRIPT: &str = "command -v \"$1\" >/dev/null || exit 127; \"$@\"; exit \"$?\"";
const STATUS_NOT_FOUND: i32 = 127;
const MARK: &str = "pgio-command-";

const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Characters of output that are shown.
const MAX_SHOWN: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line(Vec<String>);

impl Line {
    fn read(body: &Body<'_>, key: &str) -> Result<Option<Line>, TreatmentError> {
        if body.is_text(key) {
            let words = |text: &str| ["sh", "-c", text].map(str::to_owned).to_vec();
            return Ok(body.text(key)?.map(|text| Line(words(text))));
        }
        Ok(body.texts(key)?.map(Line))
    }

    /// The inner error is the reason why it did not finish, without the command line.
    pub(super) fn output(
        &self,
        host: &Host,
        limit: Duration,
        prior: Option<&str>,
        mark: Option<&str>,
    ) -> Result<Result<Output, String>, TreatmentError> {
        let (program, args) =
            self.0.split_first().map_or(("true", [].as_slice()), |(p, a)| (p.as_str(), a));
        let command = match mark {
            None => CommandLine::new(program),
            Some(mark) => CommandLine::new("sh").args(["-c", MARKED_SCRIPT, mark, program]),
        };
        let command = command.args(args).timeout(limit).own_session();
        let command = match prior {
            Some(prior) => command.env("PGIO_PRIOR", prior),
            None => command,
        };
        match host.output(&command) {
            Ok(output) if is_missing(&output) && mark.is_some() => {
                let (host, program) = (host.name().to_owned(), program.to_owned());
                Err(ExecError::from(HostError::Missing { host, program }).into())
            }
            Ok(output) => Ok(Ok(output)),
            Err(error) => error.without_words().map(Err).ok_or_else(|| error.into()),
        }
    }
}

/// Returns a mark that is unique on all hosts.
fn new_mark(host: &Host) -> Result<String, TreatmentError> {
    let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid").timeout(LOOK_LIMIT);
    Ok(format!("{MARK}{}", host.run(&draw)?.trim()))
}

fn is_missing(output: &Output) -> bool {
    output.status.code() == Some(STATUS_NOT_FOUND) && output.stderr.is_empty()
}

/// Describes why a command failed: exit status and output.
pub(super) fn describe_failure(output: &Output) -> String {
    let ended = describe_status(output.status);
    match [output.stderr.trim(), output.stdout.trim()].into_iter().find(|text| !text.is_empty()) {
        Some(text) => format!("{ended}: {}", shorten(text)),
        None => ended,
    }
}

fn describe_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("terminated by {status}"),
    }
}

/// Shortens output to one line; keeps the end, where programs give the reason.
pub(super) fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length <= MAX_SHOWN {
        return line;
    }
    format!("… {}", line.chars().skip(length - MAX_SHOWN).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;
    use std::{fs, thread};

    use serde_json::json;

    use super::*;
    use crate::treatment::guard::processes_with;
    use crate::treatment::step::{OnConflict, Record, Step, Undone};
    use crate::treatment::test_support::{assert_refused, in_context, in_words, spec};

    fn treatment(body: &str) -> Result<Box<dyn Treatment>, TreatmentError> {
        command(body).map(|command| Box::new(command) as Box<dyn Treatment>)
    }

    fn command(body: &str) -> Result<Command, TreatmentError> {
        Command::new(&spec("command", body))
    }

    /// A value in a file: set, shown, and restored from what was found.
    fn file_body(dir: &Path) -> String {
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
        CommandStep::from_record(&serde_json::from_str::<Record>(&stored).unwrap()).unwrap()
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
        let treatment = treatment(&file_body(dir.path())).unwrap();
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
        let treatment = treatment(&file_body(dir.path())).unwrap();
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
            assert!(
                error.contains("undo of command `mark`") && error.contains("--keep"),
                "{error}"
            );
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
        let body = file_body(dir.path()).replace("echo ours", "sleep 0.5; echo ours");
        in_context(|context| {
            let step = step_of(&body, context);
            let commands = step.ours.clone();
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
        let body = file_body(dir.path()).replace(" }", ", timeout = \"2s\" }");
        in_context(|context| {
            let mut step = step_of(&body, context);
            let mark = step.ours.mark.clone().unwrap();
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
            let end = CommandLine::new("kill").arg(&left);
            Exec::run(&Host::local(), &end).unwrap();

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
        let error_from = |apply: &str, verify: &str| {
            let body = format!(
                "{{ name = \"x\", apply = \"{apply}\", verify = \"{verify}\", undo = \"true\", timeout = \"1s\" }}"
            );
            let treatment = treatment(&body).unwrap();
            in_context(|context| put_in_force(treatment.as_ref(), context))
                .map(drop)
                .unwrap_err()
                .to_string()
        };
        let error = error_from("echo reason >&2; exit 3 # geheim", "false");
        assert_eq!(error, "apply of command `x` on host local: exited with status 3: reason");
        let error = error_from("true # geheim", "false # geheim");
        assert_eq!(
            error,
            "verify of command `x` on host local: exited with status 1, after apply succeeded"
        );
        let error = error_from("sleep 60 # geheim", "false");
        assert_eq!(error, "apply of command `x` on host local: did not finish within 1 s");
        let missing =
            "{ name = 'x', apply = ['/nonexistent/geheim'], verify = 'false', undo = 'true' }";
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
        let cases = [
            ("\"ls\"", "line 7: command: must be a table"),
            ("{ apply = 'a' }", "line 7: command.name: is missing"),
            ("{ name = 'n', apply = 'a', undo = 'u' }", "line 7: command.verify: is missing"),
            ("{ name = 'n', apply = 'a', verify = 'v' }", "line 7: command.undo: is missing"),
            (
                "{ name = 'n', aply = 'a' }",
                "line 7: command.aply: is an unknown key; the nearest valid one is `apply`",
            ),
            ("{ name = 'n', apply = [] }", "line 7: command.apply: must be a list of texts"),
            ("{ name = 'a = b', apply = 'a' }", "line 7: command.name: must be one line"),
            ("{ name = 'n', timeout = 'soon' }", "line 7: command.timeout: must be a duration"),
        ];
        assert_refused("command", &cases);
    }
}
