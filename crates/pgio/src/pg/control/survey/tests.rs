//! Tests of collecting the facts for a restart.

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
        let program = std::process::Command::new("sh").args(["-c", PROGRAM, "sh", &pid]).output();
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
