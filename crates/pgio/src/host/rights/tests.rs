//! Tests of privileges: which commands a user may run as root, and the hints.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;
use crate::host::exec::{Local, Output};

/// A fake sudo that allows exactly these commands.
struct Sudo(&'static [&'static str]);

impl Exec for Sudo {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        let allowed = self.0.contains(&command.to_string().as_str());
        let status = ExitStatus::from_raw(if allowed { 0 } else { 256 });
        Ok(Output { status, stdout: String::new(), stderr: String::new() })
    }
}

fn of(uid: u32, capabilities: u64, has: &[&str]) -> Rights {
    let has = has.iter().map(|&p| p.to_owned()).collect();
    Rights { uid, name: "joe".to_owned(), capabilities, programs: has }
}

fn postgres() -> User {
    User { uid: 26, gid: 27, name: "postgres".to_owned() }
}

#[test]
fn finds_the_current_user() {
    let found = Rights::find(&Local).unwrap();
    assert_eq!(found.uid, rustix::process::geteuid().as_raw());
    assert!(!found.name.is_empty());
    let me = User { uid: found.uid, gid: 0, name: found.name.clone() };
    assert_eq!(found.as_user(&Local, "local", &me).unwrap(), Prefix::default());
}

#[test]
fn root_requires_the_capability_and_other_users_a_sudo_rule() {
    let ask = |rights: Rights, sudo: Sudo| {
        let programs = ["mount", "umount"];
        rights.as_root(&sudo, "db", "to remount /srv", Some(Capability::SysAdmin), &programs)
    };
    assert_eq!(ask(of(0, 1 << 21, &[]), Sudo(&[])).unwrap(), Prefix::default());
    assert_eq!(
        ask(of(0, !(1 << 21), &["sudo"]), Sudo(&[])).unwrap_err().to_string(),
        "root on host db lacks the capability CAP_SYS_ADMIN, which is required to remount /srv; grant it, or run pgio outside the container"
    );
    let both = Sudo(&["sudo -k -n -- mount --version", "sudo -k -n -- umount --version"]);
    let line = ask(of(7, 0, &["sudo"]), both).unwrap().line(["mount", "-o", "a b"]);
    assert_eq!(line.to_string(), "sudo -n -- mount -o 'a b'");
    // `sudo -l` needs no password because some rule has NOPASSWD, but running umount does.
    let listed =
        Sudo(&["sudo -n -l -- mount", "sudo -n -l -- umount", "sudo -k -n -- mount --version"]);
    for (has, sudo) in [(&[][..], Sudo(&[])), (&["sudo"][..], listed)] {
        let refused = ask(of(7, u64::MAX, has), sudo).unwrap_err().to_string();
        assert!(refused.contains("`joe ALL=(root) NOPASSWD: mount, umount`"), "{refused}");
    }
}

#[test]
fn every_program_has_harmless_arguments() {
    assert_eq!(harmless_arguments("/usr/sbin/drbdsetup"), ["help", "show"]);
    assert_eq!(harmless_arguments("/usr/sbin/drbdadm"), ["--version"]);
    for program in ["mount", "umount", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "wipefs", "blkid"] {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let line = CommandLine::new(program).args(harmless_arguments(program)).env("PATH", path);
        match Local.output(&line) {
            Ok(output) => assert!(output.status.success(), "{program}: {}", output.stderr),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
}

#[test]
fn sudo_rules_contain_full_paths() {
    let [sh, none] = &full_paths(&Local, &["sh", "pgio-none"]).unwrap()[..] else { panic!() };
    assert!(sh.starts_with('/') && sh.ends_with("/sh"), "{sh}");
    assert_eq!(none, "pgio-none");
}

#[test]
fn errors_name_the_sufficient_rights() {
    let file = Path::new("/nonexistent/limit");
    let error = check_writable(&Local, "db", "a throttle", &[file], None).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/limit on host db is not writable "));
    assert!(check_writable(&Local, "db", "a throttle", &[Path::new("/dev/null")], None).is_ok());
    let of = |uid, sufficient| {
        of(uid, 0, &[]).not_writable("db", "a throttle", "/f".to_owned(), sufficient).to_string()
    };
    let error = of(7, Some(Capability::DacOverride));
    assert!(error.contains("with the sudo rule `joe ALL=(root) NOPASSWD: /"), "{error}");
    assert!(error.ends_with(", or have the capability CAP_DAC_OVERRIDE"), "{error}");
    assert!(!of(7, None).contains("CAP_"));
    assert!(of(0, None).contains("is not writable by root"));
}

#[test]
fn as_user_chooses_runuser_setpriv_su_or_sudo() {
    let line = |rights: Rights, sudo: &'static [&'static str]| {
        let prefix = rights.as_user(&Sudo(sudo), "db", &postgres());
        prefix.map(|p| p.line(["pg_ctl", "stop"]).to_string()).map_err(|e| e.to_string())
    };
    assert_eq!(line(of(26, 0, &[]), &[]).unwrap(), "pg_ctl stop");
    let runuser = line(of(0, 0, &["runuser", "su"]), &[]).unwrap();
    assert_eq!(runuser, "runuser -u postgres -- pg_ctl stop");
    let setpriv = line(of(0, 0, &["setpriv", "su"]), &[]).unwrap();
    assert_eq!(setpriv, "setpriv --reuid=26 --regid=27 --init-groups -- pg_ctl stop");
    let su = line(of(0, 0, &["su"]), &[]).unwrap();
    assert_eq!(su, "su -s /bin/sh postgres -c 'exec \"$0\" \"$@\"' -- pg_ctl stop");
    let sudo = line(of(7, 0, &["su", "sudo"]), &["sudo -n -u postgres -- true"]).unwrap();
    assert_eq!(sudo, "sudo -n -u postgres -- pg_ctl stop");
    let refused = line(of(7, 0, &["runuser", "su", "sudo"]), &[]).unwrap_err();
    assert!(refused.contains("`joe ALL=(postgres) NOPASSWD: ALL`"), "{refused}");
}
