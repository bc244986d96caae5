//! Collects the facts that are needed to stop a running server and restart it unchanged.
//!
//! Arguments and environment come from /proc, where they are exact; postmaster.opts does not escape
//! quotes. [`super::environment`] keeps what may be secret out of the journal. Read-only: the scripts
//! read, [`Facts`] parses.

use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::environment::{self, PROGRAM};
use super::{ControlError, Controller, Method, Plan, Program, active_dependents};
use crate::config::experiment::ControlMethod;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::{Prefix, Rights, User};
use crate::pg::{POSTMASTER_OF, values, words};

const PROCESS: &str = include_str!("process.sh");

const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of postgres whose value may be the next argument.
const OPTIONS_WITH_VALUE: &[&str] =
    &["-B", "-C", "-N", "-S", "-W", "-c", "-d", "-f", "-h", "-k", "-o", "-p", "-r", "-t", "-v"];

/// Facts that a session of the server reports.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionFacts {
    pub(super) backend: i32,
    pub(super) data_directory: String,
    pub(super) collector: bool,
}

impl Controller {
    /// Fails if the server could not be restarted unchanged. `client` is a session of the server,
    /// `exec` runs commands on its host, and `host` is that host's name in the experiment.
    pub fn find(
        client: &mut Client,
        host: &str,
        exec: Arc<dyn Exec>,
        method: &ControlMethod,
    ) -> Result<Controller, ControlError> {
        let row = client.query_one(
            "SELECT pg_backend_pid(), current_setting('data_directory'), current_setting('logging_collector') = 'on'",
            &[],
        );
        let row = row.map_err(|error| {
            if words::is_denied(&error) {
                ControlError::Denied { what: "data_directory" }
            } else {
                error.into()
            }
        })?;
        let facts = SessionFacts {
            backend: row.try_get(0)?,
            data_directory: row.try_get(1)?,
            collector: row.try_get(2)?,
        };
        let names = values::for_restart(client)?;
        if !names.is_empty() {
            return Err(ControlError::Pending { names });
        }
        let controller = Controller::new(plan(&facts, host, &*exec, method)?, exec);
        controller.prefixes()?;
        Ok(controller)
    }
}

pub(super) fn plan(
    session: &SessionFacts,
    host: &str,
    exec: &dyn Exec,
    method: &ControlMethod,
) -> Result<Plan, ControlError> {
    let text = format!("{POSTMASTER_OF}{PROCESS}");
    let process = script(&Prefix::default(), &text, &[&session.backend.to_string()]);
    let found = Process::parse(&exec.run(&process)?);
    let Some(Process { pid, owner, unit, own_unit }) = found else {
        return Err(ControlError::NotVisible { host: host.to_owned() });
    };
    let method = match method {
        ControlMethod::PgCtl => {
            if let Some(unit) = unit.clone().filter(|unit| main_pid(exec, unit) == Some(pid)) {
                return Err(ControlError::RunBySystemd { unit });
            }
            // What started pgio there may have started the server: a CI runner, a login without a scope.
            let foreign = unit.filter(|unit| own_unit.as_ref() != Some(unit));
            refuse_managed(exec, foreign)?;
            let prefix = Rights::find(exec)?.as_user(exec, host, &owner)?;
            let program = script(&prefix, PROGRAM, &[&pid.to_string()]);
            Method::PgCtl(Facts::parse(&exec.run(&program)?).into_program(session)?)
        }
        ControlMethod::Systemctl { unit: requested } => {
            check_unit(exec, host, requested, pid, unit)?;
            check_in_place(&program_of(exec, host, &owner, pid)?)?;
            Method::Systemctl { unit: requested.clone() }
        }
    };
    let data_directory = session.data_directory.clone();
    Ok(Plan { host: host.to_owned(), data_directory, owner, method })
}

/// Services that start what a user asks for and do not watch it: a login, a job.
const UNMANAGED_STARTERS: &[&str] = &["atd", "cron", "crond", "sshd", "systemd"];

/// Refuses a server below a program that systemd runs, such as Patroni: it would take a stop for a failure, start
/// the server again or promote a standby.
fn refuse_managed(exec: &dyn Exec, unit: Option<String>) -> Result<(), ControlError> {
    let Some((unit, main)) = unit.and_then(|unit| main_pid(exec, &unit).map(|main| (unit, main)))
    else {
        return Ok(());
    };
    let name = CommandLine::new("cat").arg(format!("/proc/{main}/comm")).timeout(TIMEOUT);
    let program = exec.output(&name)?.stdout.trim().to_owned();
    if UNMANAGED_STARTERS.contains(&program.as_str()) {
        Ok(())
    } else {
        Err(ControlError::Managed { unit, program })
    }
}

/// The file of a process's program, empty if only others may see it. A newer version that this hides is found after
/// the restart, by the server's own version.
fn program_of(exec: &dyn Exec, host: &str, owner: &User, pid: u32) -> Result<String, ControlError> {
    let prefix = Rights::find(exec)?.as_user(exec, host, owner).unwrap_or_default();
    let link = format!("/proc/{pid}/exe");
    let read = prefix.line(["readlink", link.as_str()]).directory("/".as_ref()).timeout(TIMEOUT);
    Ok(exec.output(&read)?.stdout.trim_end().to_owned())
}

/// A restart would run the file that took the program's place.
fn check_in_place(program: &str) -> Result<(), ControlError> {
    if program.ends_with(" (deleted)") {
        return Err(ControlError::Replaced { program: program.to_owned() });
    }
    Ok(())
}

fn script(prefix: &Prefix, text: &str, arguments: &[&str]) -> CommandLine {
    let words = ["sh", "-c", text, "sh"].into_iter().chain(arguments.iter().copied());
    prefix.line(words).directory("/".as_ref()).timeout(TIMEOUT)
}

/// `None` without systemd, or if the unit has no main process.
fn main_pid(exec: &dyn Exec, unit: &str) -> Option<u32> {
    let [_, _, pid] = unit_state(exec, unit)?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// LoadState, ActiveState and MainPID of a unit.
fn unit_state(exec: &dyn Exec, unit: &str) -> Option<[String; 3]> {
    let names = ["LoadState", "ActiveState", "MainPID"];
    let property = format!("--property={}", names.join(","));
    let command =
        CommandLine::new("systemctl").args(["show", &property, "--", unit]).timeout(TIMEOUT);
    let text = exec.run(&command).ok()?;
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    };
    Some(names.map(value))
}

/// Checks that the unit runs the server. Rejects an umbrella unit such as Debian's
/// postgresql.service: systemctl would not wait for its stop, and it stops other servers too. Rejects a unit
/// whose stop would stop others as well.
fn check_unit(
    exec: &dyn Exec,
    host: &str,
    requested: &str,
    pid: u32,
    found: Option<String>,
) -> Result<(), ControlError> {
    let (host, unit) = (host.to_owned(), requested.to_owned());
    let instead = found.map_or_else(
        || "; check the unit name with `systemctl status`".to_owned(),
        |found| format!("; the server runs in unit {found}: write control = \"systemctl {found}\""),
    );
    let Some([load, active, main]) = unit_state(exec, requested) else {
        let instead = "; write control = \"pg_ctl\"".to_owned();
        return Err(ControlError::NoUnit { host, unit, state: "no systemd".to_owned(), instead });
    };
    if load != "loaded" || active != "active" {
        return Err(ControlError::NoUnit {
            host,
            unit,
            state: format!("{load}, {active}"),
            instead,
        });
    }
    if main.parse() != Ok(pid) {
        return Err(ControlError::OtherUnit { unit, instead });
    }
    let active = active_dependents(exec, requested)?;
    if active.is_empty() { Ok(()) } else { Err(ControlError::Dependents { unit, active }) }
}

#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    owner: User,
    /// systemd unit according to the control group.
    unit: Option<String>,
    /// The unit of our own commands on the host.
    own_unit: Option<String>,
}

impl Process {
    fn parse(text: &str) -> Option<Process> {
        let (mut pid, mut owner, mut unit, mut own_unit) = (None, None, None, None);
        let service = |path: &str| {
            let last = path.rsplit('/').next().filter(|name| name.ends_with(".service"));
            last.map(str::to_owned)
        };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("main", number)) => pid = number.parse().ok(),
                Some(("user", rest)) => {
                    // A name may have blanks.
                    let mut words = rest.splitn(3, ' ');
                    let (uid, gid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                    owner = Some(User { uid, gid, name: words.next()?.to_owned() });
                }
                Some(("group", path)) => unit = unit.or(service(path)),
                Some(("here", path)) => own_unit = own_unit.or(service(path)),
                _ => {}
            }
        }
        Some(Process { pid: pid?, owner: owner?, unit, own_unit })
    }
}

/// Output of program.sh.
#[derive(Debug, Default, PartialEq)]
struct Facts {
    path: String,
    pg_ctl: bool,
    arguments: Vec<String>,
    environment: Vec<String>,
    log: Option<String>,
    closed: bool,
}

impl Facts {
    fn parse(text: &str) -> Facts {
        let mut facts = Facts::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let value = || rest.replace('\u{1}', "\n");
            match kind {
                "program" => facts.path = value(),
                "pg_ctl" => facts.pg_ctl = true,
                "argument" => facts.arguments.push(value()),
                "environment" => facts.environment.push(value()),
                "log" => facts.log = Some(value()),
                "closed" => facts.closed = true,
                _ => {}
            }
        }
        facts
    }

    fn into_program(self, session: &SessionFacts) -> Result<Program, ControlError> {
        let program = self.path.clone();
        check_in_place(&program)?;
        if !self.pg_ctl {
            return Err(ControlError::NoPgCtl { program });
        }
        let log = match self.log {
            _ if session.collector => None,
            Some(file) if !self.closed && can_be_reopened(&file) => Some(file),
            to => return Err(ControlError::Log { to: to.unwrap_or("a closed file".to_owned()) }),
        };
        let (directory, arguments) = directory_of(self.arguments.into_iter().skip(1));
        let by_variable = self.environment.iter().find_map(|v| v.strip_prefix("PGDATA="));
        let directory = directory.or(by_variable.map(str::to_owned));
        // A relative path refers to the unknown directory where the server was started; use the
        // data directory instead.
        let directory = directory.filter(|directory| directory.starts_with('/'));
        let (environment, secrets) = environment::split(self.environment);
        Ok(Program {
            path: self.path,
            directory: directory.unwrap_or_else(|| session.data_directory.clone()),
            arguments,
            environment,
            secret_names: secrets.names(),
            secrets,
            log,
        })
    }
}

fn can_be_reopened(file: &str) -> bool {
    let device = file.starts_with("/dev/") && file != "/dev/null";
    file.starts_with('/') && !device && !file.ends_with(" (deleted)")
}

/// The last `-D`, and the other arguments.
fn directory_of(arguments: impl Iterator<Item = String>) -> (Option<String>, Vec<String>) {
    let (mut directory, mut others) = (None, Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("-D") {
            Some("") => directory = arguments.next(),
            Some(joined) => directory = Some(joined.to_owned()),
            None => {
                // The value of another option may look like `-D`.
                let takes_value = OPTIONS_WITH_VALUE.contains(&argument.as_str());
                others.push(argument);
                others.extend(takes_value.then(|| arguments.next()).flatten());
            }
        }
    }
    (directory, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(collector: bool) -> SessionFacts {
        SessionFacts { backend: 9, data_directory: "/d".to_owned(), collector }
    }

    fn facts(arguments: &[&str], log: &str) -> Facts {
        Facts {
            path: "/bin/postgres".to_owned(),
            pg_ctl: true,
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: ["TZ=UTC", "PGPASSWORD=geheim", "LC_ALL=C", "SSH_TTY=x", "PGDATA=/e"]
                .map(str::to_owned)
                .to_vec(),
            log: Some(log.to_owned()),
            closed: false,
        }
    }

    #[test]
    fn parses_owner_and_unit_of_a_process() {
        let v1 = "main 77\nuser 26 27 postgres\ngroup /\ngroup /system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        let found = Process::parse(v1).unwrap();
        assert_eq!((found.pid, found.owner.uid, found.owner.gid), (77, 26, 27));
        assert_eq!(found.unit.as_deref(), Some("postgresql@15-main.service"));
        let here = format!("{v1}here /system.slice/cron.service\n");
        assert_eq!(Process::parse(&here).unwrap().own_unit.as_deref(), Some("cron.service"));
        let session = "main 77\nuser 0 0 root\ngroup /user.slice/session-3.scope\n";
        assert_eq!(Process::parse(session).unwrap().unit, None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn arguments_are_exact_and_the_environment_has_no_secrets() {
        let given = ["postgres", "-D", "/e/pg", "-c", "-Dx", "-c", "a=b \"c\"\n'", "-p5432"];
        let program = facts(&given, "/var/log/pg.log").into_program(&session(false)).unwrap();
        assert_eq!(program.directory, "/e/pg");
        assert_eq!(program.arguments, ["-c", "-Dx", "-c", "a=b \"c\"\n'", "-p5432"]);
        assert_eq!(program.environment, ["TZ=UTC", "LC_ALL=C"]);
        assert_eq!(program.log.as_deref(), Some("/var/log/pg.log"));
        let by_variable = facts(&["postgres"], "/dev/null").into_program(&session(false)).unwrap();
        assert_eq!(by_variable.directory, "/e");
        let relative =
            facts(&["postgres", "-Ddata"], "/dev/null").into_program(&session(false)).unwrap();
        assert_eq!(relative.directory, "/d");
    }

    #[test]
    fn the_environment_is_kept_but_for_traces_of_the_session_that_started_the_server() {
        let variables = ["PGPORT=5433", "SHLVL=1", "AWS_SECRET_ACCESS_KEY=geheim", "AWS_REGION=eu"];
        let environment = variables.map(str::to_owned).to_vec();
        let found = Facts { environment, ..facts(&["postgres"], "/l") };
        let program = found.into_program(&session(false)).unwrap();
        assert_eq!(program.environment, ["PGPORT=5433", "AWS_REGION=eu"]);
        assert_eq!(program.secret_names, ["AWS_SECRET_ACCESS_KEY"]);
        let secrets: Vec<&str> = program.secrets.variables().collect();
        assert_eq!(secrets, ["AWS_SECRET_ACCESS_KEY=geheim"]);
        assert!(!format!("{program:?}").contains("geheim"));
    }

    #[test]
    fn a_server_that_could_not_be_restarted_unchanged_is_refused() {
        let refused = |facts: Facts, collector| {
            facts.into_program(&session(collector)).map(drop).unwrap_err().to_string()
        };
        for log in ["pipe:[7]", "socket:[8]", "/dev/pts/3", "/tmp/log (deleted)"] {
            let message = refused(facts(&["postgres"], log), false);
            assert!(message.contains(log) && message.contains("pg_ctl start -l FILE"), "{message}");
        }
        let closed = Facts { closed: true, ..facts(&["postgres"], "/root/log") };
        assert!(refused(closed, false).contains("/root/log"));
        let collected = facts(&["postgres"], "pipe:[7]").into_program(&session(true)).unwrap();
        assert_eq!(collected.log, None);
        let replaced = Facts { path: "/b/postgres (deleted)".to_owned(), ..Facts::default() };
        assert!(refused(replaced, false).contains("restart the server manually first"));
        let alone = Facts { pg_ctl: false, ..facts(&["postgres"], "/l") };
        assert!(refused(alone, false).contains("no pg_ctl in the directory of /bin/postgres"));
    }

    #[test]
    fn the_script_keeps_blanks_at_the_ends_of_values() {
        let mut process = std::process::Command::new("sleep");
        let mut process = process.args(["1000"]).env("PGIO_BLANKS", " %m [%p] ").spawn().unwrap();
        let pid = process.id().to_string();
        let read = || {
            let program =
                std::process::Command::new("sh").args(["-c", PROGRAM, "sh", &pid]).output();
            Facts::parse(&String::from_utf8(program.unwrap().stdout).unwrap())
        };
        // Until it executes sleep, the child still shows our environment.
        let mut facts = read();
        while !facts.arguments.contains(&"1000".to_owned()) {
            facts = read();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let blanks = "PGIO_BLANKS= %m [%p] ".to_owned();
        assert!(facts.environment.contains(&blanks), "{:?}", facts.environment);
    }

    #[test]
    fn line_breaks_in_values_are_restored() {
        let text =
            "program /b/postgres\npg_ctl\nargument postgres\nargument a\u{1}b\nargument \nlog /l\n";
        let facts = Facts::parse(text);
        assert_eq!(facts.arguments, ["postgres", "a\nb", ""]);
        assert!(facts.pg_ctl && !facts.closed);
    }
}
