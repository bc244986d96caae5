//! What has to be known of a running server to stop it and to start it again as it was.
//!
//! The process tells: its arguments are exact in /proc, where postmaster.opts leaves quotes within
//! them open. Of its environment only what bears on how it runs is kept, since the rest may hold
//! passwords and the journal is a file. Reads only; the scripts look, [`Facts`] makes sense of it.

use std::sync::Arc;
use std::time::Duration;

use postgres::Client;
use postgres::error::SqlState;

use super::{ControlError, Controller, Plan, Program, Way};
use crate::config::experiment::ControlMethod;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::{Prefix, Rights, User};

const PROCESS: &str = include_str!("process.sh");
const PROGRAM: &str = include_str!("program.sh");

const LIMIT: Duration = Duration::from_secs(30);

/// Variables that the server keeps, or their beginnings.
const KEPT: &[&str] = &["HOME=", "LANG=", "LANGUAGE=", "LOGNAME=", "PATH=", "TZ=", "USER="];
const KEPT_FAMILIES: &[&str] =
    &["GLIBC_", "KRB5", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PG_OOM_", "SSL_"];

/// Options of postgres that take a value, which may be the next argument.
const WITH_VALUE: &[&str] =
    &["-B", "-C", "-N", "-S", "-W", "-c", "-d", "-f", "-h", "-k", "-o", "-p", "-r", "-t", "-v"];

/// What the server says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) backend: i32,
    pub(super) data_directory: String,
    pub(super) collector: bool,
}

impl Controller {
    /// Refuses what could not be started again as it was. `client` is a session of the server that runs on `exec`, which the experiment calls `host`.
    pub fn find(
        client: &mut Client,
        host: &str,
        exec: Arc<dyn Exec>,
        way: &ControlMethod,
    ) -> Result<Controller, ControlError> {
        let row = client.query_one(
            "SELECT pg_backend_pid(), current_setting('data_directory'), current_setting('logging_collector') = 'on'",
            &[],
        );
        let row = row.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                ControlError::Denied { what: "data_directory" }
            }
            _ => error.into(),
        })?;
        let told = Told { backend: row.get(0), data_directory: row.get(1), collector: row.get(2) };
        let controller = Controller::new(plan(&told, host, &*exec, way)?, exec);
        controller.means()?;
        Ok(controller)
    }
}

pub(super) fn plan(
    told: &Told,
    host: &str,
    exec: &dyn Exec,
    way: &ControlMethod,
) -> Result<Plan, ControlError> {
    let process = script(&Prefix::default(), PROCESS, &[&told.backend.to_string()]);
    let found = Process::parse(&exec.run(&process)?);
    let Some(Process { pid, owner, unit }) = found else {
        return Err(ControlError::NotThere { host: host.to_owned() });
    };
    let way = match way {
        ControlMethod::PgCtl => {
            if let Some(unit) = unit.filter(|unit| main_pid(exec, unit) == Some(pid)) {
                return Err(ControlError::OfSystemd { unit });
            }
            let prefix = Rights::find(exec)?.as_user(exec, host, &owner)?;
            let look = script(&prefix, PROGRAM, &[&pid.to_string()]);
            Way::PgCtl(Facts::parse(&exec.run(&look)?).program(told)?)
        }
        ControlMethod::Systemctl { unit: asked } => {
            check_unit(exec, host, asked, pid, unit)?;
            Way::Systemctl { unit: asked.clone() }
        }
    };
    Ok(Plan { host: host.to_owned(), data_directory: told.data_directory.clone(), owner, way })
}

fn script(prefix: &Prefix, text: &str, arguments: &[&str]) -> CommandLine {
    let words = ["sh", "-c", text, "sh"].into_iter().chain(arguments.iter().copied());
    prefix.line(words).directory("/".as_ref()).timeout(LIMIT)
}

/// None: systemd is not there, or does not know.
fn main_pid(exec: &dyn Exec, unit: &str) -> Option<u32> {
    let [_, _, pid] = show(exec, unit)?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// LoadState, ActiveState and MainPID.
fn show(exec: &dyn Exec, unit: &str) -> Option<[String; 3]> {
    let names = ["LoadState", "ActiveState", "MainPID"];
    let property = format!("--property={}", names.join(","));
    let ask = CommandLine::new("systemctl").args(["show", &property, "--", unit]).timeout(LIMIT);
    let text = exec.run(&ask).ok()?;
    let of = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    };
    Some(names.map(of))
}

/// Refuses also a unit that only stands for others, as Debian's postgresql.service does: its stop
/// would not be waited for, and ends more servers than this one.
fn check_unit(
    exec: &dyn Exec,
    host: &str,
    asked: &str,
    pid: u32,
    found: Option<String>,
) -> Result<(), ControlError> {
    let (host, unit) = (host.to_owned(), asked.to_owned());
    let instead = found.map_or_else(String::new, |found| format!(": that is {found}"));
    let Some([load, active, main]) = show(exec, asked) else {
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
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    owner: User,
    /// Systemd's, by its control group.
    unit: Option<String>,
}

impl Process {
    fn parse(text: &str) -> Option<Process> {
        let (mut pid, mut owner, mut unit) = (None, None, None);
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("main", number)) => pid = number.parse().ok(),
                Some(("user", rest)) => {
                    let mut words = rest.split(' ');
                    let (uid, gid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                    owner = Some(User { uid, gid, name: words.next()?.to_owned() });
                }
                Some(("group", path)) => {
                    let last = path.rsplit('/').next().filter(|name| name.ends_with(".service"));
                    unit = unit.or(last.map(str::to_owned));
                }
                _ => {}
            }
        }
        Some(Process { pid: pid?, owner: owner?, unit })
    }
}

/// What program.sh printed.
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

    fn program(self, told: &Told) -> Result<Program, ControlError> {
        let program = self.path.clone();
        if program.ends_with(" (deleted)") {
            return Err(ControlError::Replaced { program });
        }
        if !self.pg_ctl {
            return Err(ControlError::NoPgCtl { program });
        }
        let log = match self.log {
            _ if told.collector => None,
            Some(file) if !self.closed && can_be_opened_again(&file) => Some(file),
            to => return Err(ControlError::Log { to: to.unwrap_or("a closed file".to_owned()) }),
        };
        let (directory, arguments) = directory_of(self.arguments.into_iter().skip(1));
        let by_variable = self.environment.iter().find_map(|v| v.strip_prefix("PGDATA="));
        let directory = directory.or(by_variable.map(str::to_owned));
        // One that began where the server was started, which is forgotten: the data directory it is.
        let directory = directory.filter(|directory| directory.starts_with('/'));
        let kept = |variable: &String| {
            KEPT.iter().chain(KEPT_FAMILIES).any(|start| variable.starts_with(start))
        };
        Ok(Program {
            path: self.path,
            directory: directory.unwrap_or_else(|| told.data_directory.clone()),
            arguments,
            environment: self.environment.into_iter().filter(kept).collect(),
            log,
        })
    }
}

fn can_be_opened_again(file: &str) -> bool {
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
                // The value of another option may look like one.
                let takes_value = WITH_VALUE.contains(&argument.as_str());
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

    fn told(collector: bool) -> Told {
        Told { backend: 9, data_directory: "/d".to_owned(), collector }
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
    fn a_process_is_described_by_its_owner_and_its_unit() {
        let v1 = "main 77\nuser 26 27 postgres\ngroup /\ngroup /system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        let found = Process::parse(v1).unwrap();
        assert_eq!((found.pid, found.owner.uid, found.owner.gid), (77, 26, 27));
        assert_eq!(found.unit.as_deref(), Some("postgresql@15-main.service"));
        let session = "main 77\nuser 0 0 root\ngroup /user.slice/session-3.scope\n";
        assert_eq!(Process::parse(session).unwrap().unit, None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn arguments_are_exact_and_the_environment_holds_no_secret() {
        let given = ["postgres", "-D", "/e/pg", "-c", "-Dx", "-c", "a=b \"c\"\n'", "-p5432"];
        let program = facts(&given, "/var/log/pg.log").program(&told(false)).unwrap();
        assert_eq!(program.directory, "/e/pg");
        assert_eq!(program.arguments, ["-c", "-Dx", "-c", "a=b \"c\"\n'", "-p5432"]);
        assert_eq!(program.environment, ["TZ=UTC", "LC_ALL=C"]);
        assert_eq!(program.log.as_deref(), Some("/var/log/pg.log"));
        let by_variable = facts(&["postgres"], "/dev/null").program(&told(false)).unwrap();
        assert_eq!(by_variable.directory, "/e");
        let relative = facts(&["postgres", "-Ddata"], "/dev/null").program(&told(false)).unwrap();
        assert_eq!(relative.directory, "/d");
    }

    #[test]
    fn what_could_not_be_started_as_it_was_is_refused() {
        let refused = |facts: Facts, collector| {
            facts.program(&told(collector)).map(drop).unwrap_err().to_string()
        };
        for log in ["pipe:[7]", "socket:[8]", "/dev/pts/3", "/tmp/log (deleted)"] {
            let said = refused(facts(&["postgres"], log), false);
            assert!(said.contains(log) && said.contains("pg_ctl start -l FILE"), "{said}");
        }
        let closed = Facts { closed: true, ..facts(&["postgres"], "/root/log") };
        assert!(refused(closed, false).contains("/root/log"));
        let collected = facts(&["postgres"], "pipe:[7]").program(&told(true)).unwrap();
        assert_eq!(collected.log, None);
        let replaced = Facts { path: "/b/postgres (deleted)".to_owned(), ..Facts::default() };
        assert!(refused(replaced, false).contains("restart the server by hand first"));
        let alone = Facts { pg_ctl: false, ..facts(&["postgres"], "/l") };
        assert!(refused(alone, false).contains("no pg_ctl beside /bin/postgres"));
    }

    #[test]
    fn blanks_at_the_ends_of_values_survive_the_way() {
        let mut process = std::process::Command::new("sleep");
        let mut process = process.args(["1000"]).env("PGIO_BLANKS", " %m [%p] ").spawn().unwrap();
        let pid = process.id().to_string();
        let asked = || {
            let program =
                std::process::Command::new("sh").args(["-c", PROGRAM, "sh", &pid]).output();
            Facts::parse(&String::from_utf8(program.unwrap().stdout).unwrap())
        };
        // Until it is another program than ours, it has our environment.
        let mut facts = asked();
        while !facts.arguments.contains(&"1000".to_owned()) {
            facts = asked();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let blanks = "PGIO_BLANKS= %m [%p] ".to_owned();
        assert!(facts.environment.contains(&blanks), "{:?}", facts.environment);
    }

    #[test]
    fn line_breaks_in_values_survive_the_way() {
        let text =
            "program /b/postgres\npg_ctl\nargument postgres\nargument a\u{1}b\nargument \nlog /l\n";
        let facts = Facts::parse(text);
        assert_eq!(facts.arguments, ["postgres", "a\nb", ""]);
        assert!(facts.pg_ctl && !facts.closed);
    }
}
