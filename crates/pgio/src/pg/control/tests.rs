//! Tests the order of commands on a fake host. Integration tests use real servers.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;

use super::survey::{SessionFacts, plan};
use super::*;
use crate::config::experiment::ControlMethod;
use crate::host::exec::Output;

/// A host with one server whose state follows the commands.
#[derive(Default)]
struct Fake {
    uid: u32,
    has: &'static str,
    unit: &'static str,
    /// The unit of pgio's commands there.
    here: &'static str,
    /// The main process of `unit`, if that is another.
    manager: &'static str,
    /// Output of `systemctl show`.
    shown: &'static str,
    /// Units with what `systemctl show` prints of their state and dependents.
    units: Vec<(&'static str, &'static str)>,
    state: Mutex<Vec<&'static str>>,
    ran: Mutex<Vec<String>>,
    /// The file of the server's program, if not /b/postgres.
    program: &'static str,
    /// Further output of program.sh.
    environment: &'static str,
    /// What commands read from stdin.
    inputs: Mutex<Vec<String>>,
    /// Whether the server becomes ready only after its start command has returned.
    late: bool,
}

impl Fake {
    fn ran(&self) -> Vec<String> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }

    fn program(&self) -> &str {
        if self.program.is_empty() { "/b/postgres" } else { self.program }
    }

    fn respond(&self, line: &str) -> Option<String> {
        if line.contains("Prints the state") {
            let mut states = self.state.lock().unwrap();
            let state = if states.len() > 1 { states.remove(0) } else { states[0] };
            return Some(format!("{state}\n"));
        }
        if line.contains("from one of its sessions") {
            return Some(if line.ends_with(" 9") {
                format!(
                    "main 7\nuser 26 27 postgres\ngroup /system.slice/{}\nhere /system.slice/{}\n",
                    self.unit, self.here
                )
            } else {
                String::new()
            });
        }
        if line.contains("postmaster.pid") {
            return Some("7\n".to_owned());
        }
        if line.contains("only its owner may") {
            return Some(format!(
                "program {}\npg_ctl\nargument postgres\nargument -c\nargument a=b c\nenvironment TZ=UTC\n{}log /l\n",
                self.program(),
                self.environment
            ));
        }
        if line.contains("programs that can change the user") {
            let has: String = self.has.split(' ').map(|p| format!("has {p}\n")).collect();
            return Some(format!("uid {}\nname joe\ncapabilities ffff\n{has}", self.uid));
        }
        if line.ends_with("readlink /proc/7/exe") {
            return Some(format!("{}\n", self.program()));
        }
        if line == "cat /proc/3/comm" {
            return Some(format!("{}\n", self.manager));
        }
        if line.starts_with("systemctl show") && line.contains("RequiredBy") {
            let names = line.split_once(" -- ")?.1.replace('\'', "");
            let shown = |name: &str| {
                let found = self.units.iter().find(|(unit, _)| *unit == name);
                format!("Id={name}\n{}\n", found.map_or("ActiveState=active", |(_, text)| text))
            };
            return Some(names.split(' ').map(shown).collect::<Vec<_>>().join("\n"));
        }
        if line.starts_with("systemctl show") {
            return Some(self.shown.to_owned()).filter(|text| !text.is_empty());
        }
        self.ran.lock().unwrap().push(line.to_owned());
        let stops = line.contains(" stop ");
        *self.state.lock().unwrap() = match (stops, self.late) {
            (true, _) => vec!["down"],
            (false, true) => vec!["down", "down", "", "ready"],
            (false, false) => vec!["ready"],
        };
        Some(String::new())
    }
}

impl Exec for Fake {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        self.inputs.lock().unwrap().extend(command.input_text().map(str::to_owned));
        let stdout = self.respond(&command.to_string());
        let status = ExitStatus::from_raw(if stdout.is_some() { 0 } else { 256 });
        Ok(Output { status, stdout: stdout.unwrap_or_default(), stderr: "no".to_owned() })
    }
}

fn session() -> SessionFacts {
    SessionFacts { backend: 9, data_directory: "/d".to_owned(), collector: false }
}

fn systemctl(unit: &str) -> ControlMethod {
    ControlMethod::Systemctl { unit: unit.to_owned() }
}

fn controller(fake: Fake, way: &ControlMethod) -> (Controller, Arc<Fake>) {
    let fake = Arc::new(fake);
    let plan = plan(&session(), "db", &*fake, way).unwrap();
    (Controller::new(plan, fake.clone()), fake)
}

#[test]
fn pg_ctl_runs_as_the_owner_with_the_original_options() {
    let state = Mutex::new(vec!["ready"]);
    let fake = Fake { has: "runuser", state, ..Fake::default() };
    let (controller, fake) = controller(fake, &ControlMethod::PgCtl);
    controller.start().unwrap();
    assert!(fake.ran().is_empty(), "already running");
    controller.stop().unwrap();
    controller.stop().unwrap();
    let stop = "runuser -u postgres -- /b/pg_ctl stop -D /d -m fast -w -s -t 300";
    assert_eq!(fake.ran(), [stop], "once");
    controller.start().unwrap();
    let [start] = &fake.ran()[..] else { panic!() };
    let (_, given) = start.split_once("\n' sh ").unwrap();
    assert_eq!(
        given,
        "/l env -i sh -s /b/pg_ctl start -D /d -w -s -t 300 -p /b/postgres -o '-c '\\''a=b c'\\'''"
    );
    let input = "{\ncommand export TZ=UTC\nexec \"$@\" </dev/null\n}\n";
    assert_eq!(*fake.inputs.lock().unwrap(), [input]);
}

#[test]
fn secret_variables_reach_the_server_but_neither_arguments_nor_the_journal() {
    let environment = "environment PGPORT=5433\nenvironment AWS_SECRET_ACCESS_KEY=it's geheim\n";
    let state = Mutex::new(vec!["ready"]);
    let fake = Fake { has: "runuser", environment, state, ..Fake::default() };
    let (controller, fake) = controller(fake, &ControlMethod::PgCtl);
    assert!(controller.restart_obstacle().is_none());
    controller.stop().unwrap();
    controller.start().unwrap();
    let input = fake.inputs.lock().unwrap().concat();
    for variable in ["PGPORT=5433\n", "AWS_SECRET_ACCESS_KEY='it'\\''s geheim'\n"] {
        assert!(input.contains(&format!("export {variable}")), "{input}");
    }
    let stored = serde_json::to_string(controller.plan()).unwrap();
    let shown = format!("{} {:?} {stored}", fake.ran().concat(), controller.plan());
    assert!(!shown.contains("geheim"), "{shown}");

    // As `pgio undo` reads it: a server that runs still has them, of one that is down they are unknown.
    let undoing = || Controller::new(serde_json::from_str(&stored).unwrap(), fake.clone());
    *fake.state.lock().unwrap() = vec!["ready"];
    let running = undoing();
    assert!(running.restart_obstacle().is_none());
    fake.inputs.lock().unwrap().clear();
    running.stop().unwrap();
    running.start().unwrap();
    assert_eq!(fake.inputs.lock().unwrap().concat(), input);
    fake.ran();
    *fake.state.lock().unwrap() = vec!["down"];
    let killed = undoing();
    let message = killed.restart_obstacle().unwrap().to_string();
    assert!(message.contains("AWS_SECRET_ACCESS_KEY"), "{message}");
    assert_eq!(killed.start().unwrap_err().to_string(), message);
    assert!(fake.ran().is_empty());
}

#[test]
fn values_of_settings_are_not_in_command_lines() {
    let fake = Fake { has: "runuser", ..Fake::default() };
    let (controller, fake) = controller(fake, &ControlMethod::PgCtl);
    controller.set_line_while_down("primary_conninfo", Some("password=geheim")).unwrap();
    let [ran] = &fake.ran()[..] else { panic!() };
    assert!(ran.contains("/d/postgresql.auto.conf primary_conninfo replace"), "{ran}");
    assert!(!ran.contains("geheim"), "{ran}");
}

#[test]
fn start_waits_for_a_shutdown_to_finish() {
    let state = Mutex::new(vec!["stopping", "", "down"]);
    let fake = Fake { uid: 26, state, ..Fake::default() };
    let (controller, fake) = controller(fake, &ControlMethod::PgCtl);
    controller.start().unwrap();
    assert_eq!(fake.ran().len(), 1);
}

#[test]
fn a_unit_may_become_ready_late_but_pg_ctl_may_not() {
    let shown = "LoadState=loaded\nActiveState=active\nMainPID=7\n";
    let start = |way: &ControlMethod| {
        let state = Mutex::new(vec!["down"]);
        let fake = Fake { has: "runuser", shown, state, late: true, ..Fake::default() };
        let (controller, fake) = controller(fake, way);
        (controller.start().map_err(|e| e.to_string()), fake.ran().len())
    };
    assert_eq!(start(&systemctl("pg.service")), (Ok(()), 1));
    let (refused, times) = start(&ControlMethod::PgCtl);
    assert!(refused.unwrap_err().contains("down"));
    assert_eq!(times, 1);
}

#[test]
fn a_plan_survives_serialization() {
    let shown = "LoadState=loaded\nActiveState=active\nMainPID=7\n";
    for way in [ControlMethod::PgCtl, systemctl("pg.service")] {
        let fake = Fake { has: "runuser", shown, ..Fake::default() };
        let plan = plan(&session(), "db", &fake, &way).unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}

#[test]
fn systemctl_requires_the_unit_that_runs_the_server() {
    let active = "LoadState=loaded\nActiveState=active\nMainPID=7\n";
    let state = || Mutex::new(vec!["ready"]);
    let fake = Fake { has: "runuser", shown: active, state: state(), ..Fake::default() };
    let (controller, fake) = controller(fake, &systemctl("pg.service"));
    controller.stop().unwrap();
    controller.start().unwrap();
    assert_eq!(fake.ran(), ["systemctl stop -- pg.service", "systemctl start -- pg.service"]);

    let refused = |shown, unit| {
        let fake = Fake { has: "runuser", shown, unit, ..Fake::default() };
        plan(&session(), "db", &fake, &systemctl("pg.service")).unwrap_err().to_string()
    };
    let missing = "LoadState=not-found\nActiveState=inactive\nMainPID=0\n";
    assert!(refused(missing, "").contains("no active unit pg.service (not-found, inactive)"));
    assert!(refused("", "").contains("(no systemd); write control = \"pg_ctl\""));
    let umbrella = "LoadState=loaded\nActiveState=active\nMainPID=0\n";
    let message = refused(umbrella, "postgresql@15-main.service");
    assert_eq!(
        message,
        "systemd unit pg.service does not run the server; the server runs in unit postgresql@15-main.service: write control = \"systemctl postgresql@15-main.service\""
    );
}

#[test]
fn a_unit_that_takes_active_units_down_with_it_is_refused() {
    let found = |units: &[(&'static str, &'static str)]| {
        let shown = "LoadState=loaded\nActiveState=active\nMainPID=7\n";
        let fake = Fake { has: "runuser", shown, units: units.to_vec(), ..Fake::default() };
        let method = systemctl("pg.service");
        let error = plan(&session(), "db", &fake, &method).map(drop).err();
        assert!(fake.ran().is_empty());
        error.map(|error| error.to_string())
    };
    let idle = "ActiveState=inactive\nRequiredBy=\nConsistsOf=pool.service";
    assert_eq!(found(&[]), None);
    let all_idle = [
        ("pg.service", "ActiveState=active\nRequiredBy=app.service\nBoundBy=pg.service"),
        ("app.service", idle),
        ("pool.service", "ActiveState=failed\nRequiredBy=pg.service app.service"),
    ];
    assert_eq!(found(&all_idle), None);
    let message = found(&[
        ("pg.service", "ActiveState=active\nRequiredBy=app.service\nBoundBy=a.mount job.service"),
        ("app.service", idle),
        ("pool.service", "ActiveState=active\nRequiredBy=pg.service"),
        ("job.service", "ActiveState=activating\nPropagatesStopTo=pool.service"),
        ("a.mount", "ActiveState=inactive"),
    ]);
    assert_eq!(
        message.unwrap(),
        "stopping systemd unit pg.service would also stop job.service, pool.service, and starting it would not start them again: stop them yourself for the duration of the experiment, or start the server by pg_ctl outside that unit and write control = \"pg_ctl\""
    );
    let quoted = found(&[
        ("pg.service", r#"ConsistsOf="app@a\\x2db.service""#),
        (r"app@a\x2db.service", "ActiveState=active"),
    ]);
    assert!(quoted.unwrap().contains(r"would also stop app@a\x2db.service,"));
}

#[test]
fn plan_refuses_a_server_that_pgio_cannot_control() {
    let refused = |fake: Fake, session: SessionFacts| {
        plan(&session, "db", &fake, &ControlMethod::PgCtl).unwrap_err().to_string()
    };
    let elsewhere = refused(Fake::default(), SessionFacts { backend: 8, ..session() });
    assert!(elsewhere.contains("is not visible on host db"), "{elsewhere}");
    let message = refused(Fake { uid: 1000, ..Fake::default() }, session());
    assert!(message.contains("`joe ALL=(postgres) NOPASSWD: ALL`"), "{message}");
    let shown = "LoadState=loaded\nActiveState=active\nMainPID=7\n";
    let run_by_systemd = Fake { unit: "postgresql.service", shown, ..Fake::default() };
    let message = refused(run_by_systemd, session());
    assert!(message.contains("control = \"systemctl postgresql.service\""), "{message}");
    let inside = |manager, here| Fake {
        unit: "runner.service",
        shown: "MainPID=3\n",
        has: "su",
        manager,
        here,
        ..Fake::default()
    };
    let message = refused(inside("patroni", "ssh.service"), session());
    assert!(message.contains("runner.service") && message.contains("(patroni)"), "{message}");
    for by_hand in [inside("Runner.Listener", "runner.service"), inside("sshd", "")] {
        assert!(plan(&session(), "db", &by_hand, &ControlMethod::PgCtl).is_ok());
    }
}

#[test]
fn a_program_that_was_replaced_since_is_refused_by_either_method() {
    let (program, shown) =
        ("/b/postgres (deleted)", "LoadState=loaded\nActiveState=active\nMainPID=7\n");
    for method in [ControlMethod::PgCtl, systemctl("pg.service")] {
        let fake = Fake { has: "runuser", program, shown, ..Fake::default() };
        let message = plan(&session(), "db", &fake, &method).unwrap_err().to_string();
        assert!(message.contains("/b/postgres (deleted) was replaced"), "{message}");
        assert!(fake.ran().is_empty());
    }
}

#[test]
fn a_failed_start_is_explained_by_the_last_fatal_message() {
    let log = "LOG:  starting\nFATAL:  terminating connection\nLOG:  starting\n\
               FATAL:  could not access file \"x\": No such file\nLOG:  database system is shut down\n";
    assert_eq!(reason(log), "could not access file \"x\": No such file");
    assert_eq!(reason("pg_ctl: cannot be run as root\n\n"), "pg_ctl: cannot be run as root");
    assert_eq!(reason(""), "no output");
}
