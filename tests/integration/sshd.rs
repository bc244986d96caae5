//! A real sshd in a directory of its own: port, host key, user key, known_hosts.
//!
//! Reached by the name `box` through an ssh configuration file. Needs Debian's openssh-server;
//! its service need not run.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgio::config::experiment::HostSpec;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use pgio_tests::timing::wait_until;

const SSHD: &str = "/usr/sbin/sshd";

/// Start-up files of a login shell may print anything, with what pgio's own scripts answer in it.
const NOISY_SHELL: &str = "printf 'Welcome to box\\nready /tmp/evil '; (eval \\\"$SSH_ORIGINAL_COMMAND\\\"); \
                           status=$?; echo bye; exit $status";

pub(crate) struct Sshd {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Sshd {
    pub(crate) fn start() -> Sshd {
        assert!(Path::new(SSHD).exists(), "install openssh-server");
        if geteuid().is_root() {
            // Where sshd runs without rights; Debian's service makes it at boot.
            fs::DirBuilder::new().recursive(true).mode(0o755).create("/run/sshd").unwrap();
        }
        let directory = tempfile::Builder::new().prefix("sshd").tempdir().unwrap();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(directory.path().join(key))
                .status();
            assert!(made.unwrap().success());
        }
        // Another process may take the port before sshd does; then the next one is tried.
        let started = (0..10).find_map(|_| listen(directory.path()));
        let (port, child) = started.expect("sshd listens");
        let sshd = Sshd { directory, port, child };
        let key = fs::read_to_string(sshd.path("user_key.pub")).unwrap();
        fs::write(sshd.path("authorized_keys"), format!("command=\"{NOISY_SHELL}\" {key}"))
            .unwrap();
        let key = fs::read_to_string(sshd.path("host_key.pub")).unwrap();
        fs::write(sshd.path("known_hosts"), format!("[127.0.0.1]:{port} {key}")).unwrap();
        let dir = sshd.directory.path().display();
        let text = format!(
            "Host box\n HostName 127.0.0.1\n Port {port}\n IdentityFile {dir}/user_key\n \
             IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {dir}/known_hosts\n \
             StrictHostKeyChecking yes\n"
        );
        fs::write(sshd.config(), text).unwrap();
        sshd
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("ssh_config")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn spec(&self) -> HostSpec {
        spec(&self.config())
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// One process each, the children of the one that listens.
    pub(crate) fn connections(&self) -> Vec<i32> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children.unwrap_or_default().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    pub(crate) fn drop_connections(&self) {
        for pid in self.connections() {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
    }

    pub(crate) fn wait_until_idle(&self) {
        wait_until("no connection is open", || self.connections().is_empty());
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn spec(config: &Path) -> HostSpec {
    HostSpec { ssh: Some("box".to_owned()), ssh_config: Some(config.to_owned()) }
}

/// `None` if the port was taken.
fn listen(directory: &Path) -> Option<(u16, Child)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = directory.display();
    // StrictModes would refuse keys below a world-writable /tmp.
    // Start-up files of the user who runs the tests would run for each command.
    let text = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/host_key\n\
         AuthorizedKeysFile {dir}/authorized_keys\nStrictModes no\nUsePAM no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PidFile none\nSetEnv HOME={dir}\n"
    );
    fs::write(directory.join("sshd_config"), text).unwrap();
    let mut child = Command::new(SSHD)
        .args(["-D", "-e", "-f"])
        .arg(directory.join("sshd_config"))
        .stderr(Stdio::from(fs::File::create(directory.join("log")).unwrap()))
        .spawn()
        .unwrap();
    let log = directory.join("log");
    wait_until("sshd listens or has ended", || {
        child.try_wait().unwrap().is_some()
            || fs::read_to_string(&log).unwrap().contains("Server listening")
    });
    if child.try_wait().unwrap().is_some() {
        return None;
    }
    Some((port, child))
}
