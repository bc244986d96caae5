//! The workload `mail` with a real Dovecot. Servers that do not keep to what is expected are tested in-process, in
//! `experiment::trial::mail_tests`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::disk::{self, LoopDevice};
use crate::examples::{self, libpq_environment};
use crate::sshd::Sshd;
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{self, Workdir, check, failed_checks, metric, wait_until};

/// Runs one short trial.
fn delivered(dir: &Workdir, workload: &str, more: &str) -> workdir::CommandResult {
    let keys = "blocks = 1\nduration = \"300ms\"\naa = false\nrepeats = 0";
    dir.compare(&experiment(keys, workload, more))
}

fn experiment(keys: &str, workload: &str, more: &str) -> String {
    let target = format!("dsn = {:?}\n{more}", fresh_database(shared_primary(INSTALLED)));
    let text = workdir::experiment_on(&target, keys, "", &[("a", "")]);
    text.replace("kind = \"commit\"", &format!("kind = \"mail\"\n{workload}"))
}

/// Complete, and everything that was accepted is there once, as it was.
fn assert_all_there(trial: &Value) {
    assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
    assert_eq!(check(trial, "mail-lost")["verdict"], "ok", "{}", check(trial, "mail-lost"));
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let messages = trial["histograms"]["delivery"]["count"].as_f64().unwrap();
    assert!(messages > 0.0);
    assert!((metric(trial, "messages_per_minute") * seconds / 60.0 - messages).abs() < 1e-3);
}

/// The check is a warning and the trial counts: it is the condition's behavior.
fn assert_behaved_badly(trial: &Value, id: &str) {
    assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial:#}");
    assert!(failed_checks(trial, "warning").contains(&id.to_owned()), "{trial:#}");
}

#[test]
fn dovecot_loses_and_alters_nothing() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let dir = Workdir::new();
    let workload = format!(
        "{}\nmessage_size = \"20K\"\nsize_distribution = \"lognormal\"\nrecipients_per_message = 3\n\
         warmup = \"300ms\"",
        dovecot.workload()
    );
    dovecot.leave_foreign_mail("user1");
    delivered(&dir, &workload, "").expect(0, &["messages/min"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert_eq!(trial["workload"]["keys"]["threads"], 12);
    assert_eq!(trial["workload"]["primary_metric"], "messages_per_minute");
    assert_eq!(failed_checks(trial, "invalid"), [""; 0]);
    assert_eq!(metric(trial, "mail_refused"), 0.0);
    // Warm-up and window are both looked up: three copies of each message.
    let message = check(trial, "mail-lost")["message"].as_str().unwrap();
    let numbers: Vec<f64> = message.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [sent, copies] = numbers[..] else { panic!("{message}") };
    assert!(sent > trial["histograms"]["delivery"]["count"].as_f64().unwrap());
    assert_eq!(copies, 3.0 * sent, "{message}");
    assert_eq!(dovecot.files(), 1, "only what was there before is left");
}

#[test]
fn dovecot_asks_postgresql_for_its_users_and_refuses_others() {
    let server = shared_primary(INSTALLED);
    let conninfo = fresh_database(server);
    let Some(dovecot) = Dovecot::start(Some(&conninfo)) else { return };
    let dir = Workdir::new();
    let all = dovecot.small();
    delivered(&dir, &all, "").expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
    // user101 is not in the table: 1 of 101 is just under the limit, 1 of 3 is over it.
    let dir = Workdir::new();
    let some = all.replace("user{1..100}@localhost", "user{100..102}@localhost");
    delivered(&dir, &some, "");
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert!(metric(trial, "mail_refused") > 0.0);
    assert_behaved_badly(trial, "mail-refused");
    let dir = Workdir::new();
    let none = all.replace("user{1..100}@localhost", "user{101..109}@localhost");
    delivered(&dir, &none, "")
        .expect(5, &["refuses every message, for example with 550", "; see its log"]);
    assert_eq!(dovecot.files(), 0);
}

#[test]
fn mail_is_delivered_by_socket_with_one_connection_per_message() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let dir = Workdir::new();
    let workload = format!(
        "server = {:?}\nmaildir = {:?}\nthreads = 3\nmessages_per_connection = 1",
        dovecot.socket(),
        dovecot.maildir()
    );
    delivered(&dir, &workload, "").expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
}

#[test]
fn mail_on_another_host_is_looked_up_there() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let (dir, sshd) = (Workdir::new(), Sshd::start());
    let spec = sshd.spec();
    let hosts = format!(
        "[hosts.box]\nssh = {:?}\nssh_config = {:?}",
        spec.ssh.unwrap(),
        spec.ssh_config.unwrap()
    );
    let workload = format!("{}\nmail_host = \"box\"\nmessage_size = \"4K\"", dovecot.workload());
    delivered(&dir, &workload, &hosts).expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
    assert_eq!(dovecot.files(), 0);
    sshd.wait_until_idle();
}

/// Follows the comment of the example, on a device of the test.
#[test]
fn the_example_of_ext4() {
    if !disk::is_root("mail") || !is_installed(false) {
        return;
    }
    let device = LoopDevice::new(2 << 30);
    device.format();
    let point = device.mount();
    let dovecot = Dovecot::start_in(&point, None);
    let short = [
        ("blocks", "1"),
        ("warmup", "\"100ms\""),
        ("duration", "\"400ms\""),
        ("threads", "3"),
        ("message_size", "\"3K\""),
    ];
    let text = examples::bare(&examples::example("mail-ext4.toml"));
    let text = examples::replace_keys(&text, &short)
        .replace("/srv/mail", point.to_str().unwrap())
        .replace("127.0.0.1:2424", &dovecot.address());
    let (_dir, results) = examples::compare(&text, "");
    let trials = examples::stored(&results);
    let all = ["barrier=0", "default", "max_batch_time=0", "max_batch_time=30000"];
    assert_eq!(examples::conditions(&trials), BTreeSet::from(all));
    trials.iter().for_each(assert_all_there);
    assert_eq!(dovecot.files(), 0);
}

#[test]
fn delivered_mail_is_removed_after_an_interrupt_or_by_the_next_run() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let dir = Workdir::new();
    let text = experiment("blocks = 1\nduration = \"600s\"\naa = false", &dovecot.small(), "");
    let mut running = dir.start_compare(&text);
    running.wait_until("delivering", || dovecot.files() > 20);
    running.signal(rustix::process::Signal::INT);
    running.wait().expect(130, &[]);
    assert_eq!(dovecot.files(), 0);
    assert_eq!(dir.trials()[0]["outcome"]["state"], "interrupted");
    // The next run removes leftovers of a killed one.
    let dir = Workdir::new();
    let mut running = dir.start_compare(&text);
    running.wait_until("delivering", || dovecot.files() > 20);
    running.kill();
    assert!(dovecot.files() > 20);
    let dir = Workdir::new();
    delivered(&dir, &dovecot.small(), "").expect(0, &[]);
    assert_all_there(&dir.trials()[0]);
    assert_eq!(dovecot.files(), 0);
}

/// What each value must be is tested in `config::mail`.
#[test]
fn contradictions_are_refused_before_anything() {
    let dir = Workdir::new();
    for (workload, text) in [
        ("", "has no server"),
        (
            "server = \"m:24\"\nmaildir = \"/m/{user}\"\nmail_host = \"x\"",
            "names host `x`, which is not in [hosts]",
        ),
        ("server = \"m:24\"\nsessions = 3", "does not apply to the workload `mail`"),
    ] {
        delivered(&dir, workload, "").expect(2, &[text]);
        assert!(!dir.out().exists(), "{workload}");
    }
}

/// A Dovecot of the test's own, started by the script that pgio ships for that.
#[derive(Debug)]
pub(crate) struct Dovecot {
    dir: PathBuf,
    port: u16,
    /// Absent where the directory is the test's.
    _temporary: Option<TempDir>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dovecot.sh")
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Says so where it is missing, instead of passing in silence.
pub(crate) fn is_installed(sql: bool) -> bool {
    let module = "/usr/lib/dovecot/modules/auth/libdriver_pgsql.so";
    let needed = ["/usr/sbin/dovecot", "/usr/lib/dovecot/lmtp", module];
    let needed = &needed[..if sql { 3 } else { 2 }];
    let missing = needed.iter().find(|path| !Path::new(path).exists());
    if let Some(missing) = missing {
        eprintln!(
            "mail: skipped, {missing} is missing: apt-get install dovecot-core dovecot-lmtpd dovecot-pgsql"
        );
    }
    missing.is_none()
}

impl Dovecot {
    /// With its users in a file, or in a table of this database.
    pub(crate) fn start(conninfo: Option<&str>) -> Option<Dovecot> {
        if !is_installed(conninfo.is_some()) {
            return None;
        }
        let temporary = tempfile::tempdir_in("/var/tmp").unwrap();
        // It runs as another user than root.
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut dovecot = Dovecot::start_in(temporary.path(), conninfo);
        dovecot._temporary = Some(temporary);
        Some(dovecot)
    }

    pub(crate) fn start_in(dir: &Path, conninfo: Option<&str>) -> Dovecot {
        let port = free_port();
        let mut arguments = vec![script(), "start".into(), dir.to_owned(), port.to_string().into()];
        arguments.extend(conninfo.map(PathBuf::from));
        let mut command = Command::new("sh");
        command.args(arguments);
        if let Some(owner) = conninfo.and_then(owner_of_socket) {
            command.env("MAIL_RUN_AS", owner);
        }
        let result = command.output().unwrap();
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        wait_until("dovecot listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Dovecot { dir: dir.to_owned(), port, _temporary: None }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn workload(&self) -> String {
        format!(
            "server = \"127.0.0.1:{}\"\nmaildir = {:?}\nrecipients = \"user{{1..100}}@localhost\"",
            self.port,
            self.maildir()
        )
    }

    fn small(&self) -> String {
        format!("{}\nthreads = 3\nmessage_size = \"3K\"", self.workload())
    }

    pub(crate) fn maildir(&self) -> String {
        self.dir.join("mail/{user}").to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("dovecot/run/lmtp")
    }

    pub(crate) fn leave_foreign_mail(&self, user: &str) {
        let new = self.dir.join("mail").join(user).join("new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("1.foreign"), "Subject: not yours\n\nX-Pgio-Sha256: 1\n").unwrap();
        // As Dovecot would have made it.
        disk::run("chmod", &["-R", "a+rwX", self.dir.join("mail").to_str().unwrap()]);
    }

    pub(crate) fn files(&self) -> usize {
        files(&self.dir.join("mail"))
    }
}

/// Nobody else may enter the directory of a private cluster's socket.
fn owner_of_socket(conninfo: &str) -> Option<String> {
    let environment = libpq_environment(conninfo);
    let (_, host) =
        environment.iter().find(|(name, value)| *name == "PGHOST" && value.starts_with('/'))?;
    Some(disk::run("stat", &["-c", "%U", host]).trim().to_owned())
}

/// Messages in all mail directories below.
pub(crate) fn files(base: &Path) -> usize {
    let users = fs::read_dir(base).into_iter().flatten().flatten();
    let parts = users.flat_map(|user| ["new", "cur"].map(|part| user.path().join(part)));
    parts.filter_map(|part| fs::read_dir(part).ok()).map(Iterator::count).sum()
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        let _ = Command::new("sh").arg(script()).arg("stop").arg(&self.dir).status();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("dovecot/log")).unwrap_or_default();
            let last = log.lines().rev().take(15).collect::<Vec<_>>();
            eprintln!("dovecot's log, the last line first:\n{}", last.join("\n"));
        }
    }
}
