//! The user on a host, and the command prefix to run a command as root or as another user.
//!
//! pgio determines the rights before it changes anything. A refusal names the capability or the sudo
//! rule that would be sufficient. pgio never prompts: a sudo that requires a password is not used.
//! Next: `pg::control` and the treatments that mount or format.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exec::{CommandLine, Exec, ExecError};

const SCRIPT: &str = include_str!("rights/look.sh");

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    #[error(
        "root on host {host} is required {purpose}; run pgio there as root, log in as root (ssh = \"root@...\"), or allow {name} to do it without a password with the sudo rule `{name} ALL=(root) NOPASSWD: {programs}`"
    )]
    NotRoot { purpose: String, host: String, name: String, programs: String },
    #[error(
        "root on host {host} lacks the capability {capability}, which is required {purpose}; grant it, or run pgio outside the container"
    )]
    LacksCapability { purpose: String, host: String, capability: &'static str },
    #[error(
        "cannot run commands as {owner} on host {host}; log in there as {owner} or as root, or allow {name} to do it without a password with the sudo rule `{name} ALL=({owner}) NOPASSWD: ALL`"
    )]
    NotOwner { host: String, owner: String, name: String },
    #[error(
        "{file} on host {host} is not writable by {name}, but {what} requires it; run as root there, {hint}"
    )]
    NotWritable { what: &'static str, file: String, host: String, name: String, hint: String },
    #[error(
        "{file} on host {host} is not writable by root, but {what} requires it; it is read-only in a container, so run pgio on the machine itself"
    )]
    ReadOnly { what: &'static str, file: String, host: String },
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// A user of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
}

/// A capability of root that containers may drop; the value is its bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    DacOverride = 1,
    NetAdmin = 12,
    SysAdmin = 21,
}

impl Capability {
    fn name(self) -> &'static str {
        match self {
            Capability::DacOverride => "CAP_DAC_OVERRIDE",
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
        }
    }
}

/// Words to prepend to a command; empty if not required.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix(Vec<String>);

impl Prefix {
    /// Prepends the prefix to the words of a command.
    pub fn words<A: AsRef<str>>(&self, words: impl IntoIterator<Item = A>) -> Vec<String> {
        self.0.iter().cloned().chain(words.into_iter().map(|w| w.as_ref().to_owned())).collect()
    }

    /// Prepends the prefix and returns a command line.
    pub fn line<A: AsRef<str>>(&self, words: impl IntoIterator<Item = A>) -> CommandLine {
        let mut all = self.words(words).into_iter();
        CommandLine::new(all.next().unwrap_or_default()).args(all)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    uid: u32,
    name: String,
    capabilities: u64,
    programs: Vec<String>,
}

impl Rights {
    pub fn find(exec: &dyn Exec) -> Result<Rights, ExecError> {
        let script = CommandLine::new("sh").args(["-c", SCRIPT, "sh"]).timeout(TIMEOUT);
        Ok(Rights::parse(&exec.run(&script)?))
    }

    fn parse(text: &str) -> Rights {
        let mut rights =
            Rights { uid: u32::MAX, name: String::new(), capabilities: 0, programs: Vec::new() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("uid", uid)) => rights.uid = uid.parse().unwrap_or(u32::MAX),
                Some(("name", name)) => rights.name = name.to_owned(),
                Some(("capabilities", hex)) => {
                    rights.capabilities = u64::from_str_radix(hex, 16).unwrap_or(0);
                }
                Some(("has", program)) => rights.programs.push(program.to_owned()),
                _ => {}
            }
        }
        rights
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn has_program(&self, program: &str) -> bool {
        self.programs.iter().any(|known| known == program)
    }

    /// Returns the prefix to run `programs` as root; sudo must allow only these. `purpose` is used in the
    /// refusal, such as `to remount /srv`.
    pub fn as_root(
        &self,
        exec: &dyn Exec,
        host: &str,
        purpose: &str,
        capability: Option<Capability>,
        programs: &[&str],
    ) -> Result<Prefix, RightsError> {
        let (purpose, host) = (purpose.to_owned(), host.to_owned());
        if self.uid == 0 {
            let missing = capability.filter(|c| self.capabilities >> *c as u32 & 1 == 0);
            return match missing.map(Capability::name) {
                None => Ok(Prefix::default()),
                Some(capability) => Err(RightsError::LacksCapability { purpose, host, capability }),
            };
        }
        let sudo = Prefix(["sudo", "-n", "--"].map(str::to_owned).to_vec());
        if self.has_program("sudo") && sudo_runs(exec, programs)? {
            return Ok(sudo);
        }
        let programs = full_paths(exec, programs)?.join(", ");
        Err(RightsError::NotRoot { purpose, host, name: self.name.clone(), programs })
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Returns a hint how to run all of pgio as root, for work that pgio does itself or in a shell.
    pub fn root_hint(&self) -> String {
        let exe = std::env::current_exe();
        let pgio = exe.map_or_else(|_| "pgio".to_owned(), |path| path.display().to_string());
        let name = &self.name;
        format!(
            "with the sudo rule `{name} ALL=(root) NOPASSWD: {pgio}` or with ssh = \"root@...\""
        )
    }

    fn not_writable(
        &self,
        host: &str,
        what: &'static str,
        file: String,
        sufficient: Option<Capability>,
    ) -> RightsError {
        let (host, name) = (host.to_owned(), self.name.clone());
        if self.uid == 0 {
            return RightsError::ReadOnly { what, file, host };
        }
        let or =
            sufficient.map_or(String::new(), |c| format!(", or have the capability {}", c.name()));
        let hint = self.root_hint() + &or;
        RightsError::NotWritable { what, file, host, name, hint }
    }

    /// Returns the prefix to run commands as a user. Most prefixes keep the environment except HOME and
    /// similar variables; sudo clears it.
    pub fn as_user(&self, exec: &dyn Exec, host: &str, user: &User) -> Result<Prefix, RightsError> {
        let words = |words: &[&str]| Ok(Prefix(words.iter().map(|&w| w.to_owned()).collect()));
        match self.uid {
            uid if uid == user.uid => return Ok(Prefix::default()),
            0 if self.has_program("runuser") => return words(&["runuser", "-u", &user.name, "--"]),
            0 if self.has_program("setpriv") => {
                let (uid, gid) = (format!("--reuid={}", user.uid), format!("--regid={}", user.gid));
                return words(&["setpriv", &uid, &gid, "--init-groups", "--"]);
            }
            0 if self.has_program("su") => {
                let run = "exec \"$0\" \"$@\"";
                return words(&["su", "-s", "/bin/sh", &user.name, "-c", run, "--"]);
            }
            _ if self.has_program("sudo") => {
                let sudo = ["sudo", "-n", "-u", user.name.as_str(), "--"];
                let attempt =
                    CommandLine::new("sudo").args(&sudo[1..]).arg("true").timeout(TIMEOUT);
                if exec.output(&attempt)?.status.success() {
                    return words(&sudo);
                }
            }
            _ => {}
        }
        let (host, owner, name) = (host.to_owned(), user.name.clone(), self.name.clone());
        Err(RightsError::NotOwner { host, owner, name })
    }
}

/// Returns whether sudo runs all programs without a password. `sudo -l` does not show that: it needs no
/// password if any rule has NOPASSWD, even if the matching rule has not. Therefore each program is run
/// with harmless arguments; -k ignores cached credentials, which expire after some minutes. A rule with
/// specific arguments does not allow this, nor `sudo -l` for the program without arguments.
fn sudo_runs(exec: &dyn Exec, programs: &[&str]) -> Result<bool, ExecError> {
    for program in programs {
        let attempt = CommandLine::new("sudo").args(["-k", "-n", "--", program]);
        let attempt = attempt.args(harmless_arguments(program)).timeout(TIMEOUT);
        if !exec.output(&attempt)?.status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns arguments with which a program only prints information and succeeds.
fn harmless_arguments(program: &str) -> &'static [&'static str] {
    match program.rsplit('/').next().unwrap_or(program) {
        "drbdsetup" => &["help", "show"],
        name if name.starts_with("mkfs.") => &["-V"],
        _ => &["--version"],
    }
}

/// Resolves programs to full paths, which sudoers requires; unknown programs stay unchanged.
fn full_paths(exec: &dyn Exec, programs: &[&str]) -> Result<Vec<String>, ExecError> {
    let find =
        "PATH=$PATH:/usr/sbin:/sbin; for p; do command -v \"$p\" || printf '%s\\n' \"$p\"; done";
    let find = CommandLine::new("sh").args(["-c", find, "sh"]).args(programs).timeout(TIMEOUT);
    let found: Vec<String> = exec.output(&find)?.stdout.lines().map(str::to_owned).collect();
    Ok(if found.len() == programs.len() {
        found
    } else {
        programs.iter().map(|&p| p.to_owned()).collect()
    })
}

/// Checks that files are writable by pgio itself or by its shell. `sufficient` is a capability that
/// makes root unnecessary; there is none for /proc/sys, which checks only the user.
pub fn check_writable(
    exec: &dyn Exec,
    host: &str,
    what: &'static str,
    files: &[&Path],
    sufficient: Option<Capability>,
) -> Result<(), RightsError> {
    let script = "for file; do [ -w \"$file\" ] || { printf '%s\\n' \"$file\"; exit; }; done";
    let ask = CommandLine::new("sh").args(["-c", script, "sh"]).args(files).timeout(TIMEOUT);
    match exec.run(&ask)?.trim_end() {
        "" => Ok(()),
        file => Err(Rights::find(exec)?.not_writable(host, what, file.to_owned(), sufficient)),
    }
}

#[cfg(test)]
mod tests {
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

    fn rights(uid: u32, capabilities: u64, has: &[&str]) -> Rights {
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
        assert_eq!(ask(rights(0, 1 << 21, &[]), Sudo(&[])).unwrap(), Prefix::default());
        assert_eq!(
            ask(rights(0, !(1 << 21), &["sudo"]), Sudo(&[])).unwrap_err().to_string(),
            "root on host db lacks the capability CAP_SYS_ADMIN, which is required to remount /srv; grant it, or run pgio outside the container"
        );
        let both = Sudo(&["sudo -k -n -- mount --version", "sudo -k -n -- umount --version"]);
        let line = ask(rights(7, 0, &["sudo"]), both).unwrap().line(["mount", "-o", "a b"]);
        assert_eq!(line.to_string(), "sudo -n -- mount -o 'a b'");
        // `sudo -l` needs no password because some rule has NOPASSWD, but running umount does.
        let listed =
            Sudo(&["sudo -n -l -- mount", "sudo -n -l -- umount", "sudo -k -n -- mount --version"]);
        for (has, sudo) in [(&[][..], Sudo(&[])), (&["sudo"][..], listed)] {
            let refused = ask(rights(7, u64::MAX, has), sudo).unwrap_err().to_string();
            assert!(refused.contains("`joe ALL=(root) NOPASSWD: mount, umount`"), "{refused}");
        }
    }

    #[test]
    fn every_program_has_harmless_arguments() {
        assert_eq!(harmless_arguments("/usr/sbin/drbdsetup"), ["help", "show"]);
        assert_eq!(harmless_arguments("/usr/sbin/drbdadm"), ["--version"]);
        for program in ["mount", "umount", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "wipefs", "blkid"]
        {
            let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
            let line =
                CommandLine::new(program).args(harmless_arguments(program)).env("PATH", path);
            match Local.output(&line) {
                Ok(output) => assert!(output.status.success(), "{program}: {}", output.stderr),
                Err(error) => pgio_tests::skipped(&format!("{error}")),
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
        assert!(
            check_writable(&Local, "db", "a throttle", &[Path::new("/dev/null")], None).is_ok()
        );
        let refusal = |uid, sufficient| {
            rights(uid, 0, &[])
                .not_writable("db", "a throttle", "/f".to_owned(), sufficient)
                .to_string()
        };
        let error = refusal(7, Some(Capability::DacOverride));
        assert!(error.contains("with the sudo rule `joe ALL=(root) NOPASSWD: /"), "{error}");
        assert!(error.ends_with(", or have the capability CAP_DAC_OVERRIDE"), "{error}");
        assert!(!refusal(7, None).contains("CAP_"));
        assert!(refusal(0, None).contains("is not writable by root"));
    }

    #[test]
    fn as_user_chooses_runuser_setpriv_su_or_sudo() {
        let line = |rights: Rights, sudo: &'static [&'static str]| {
            let prefix = rights.as_user(&Sudo(sudo), "db", &postgres());
            prefix.map(|p| p.line(["pg_ctl", "stop"]).to_string()).map_err(|e| e.to_string())
        };
        assert_eq!(line(rights(26, 0, &[]), &[]).unwrap(), "pg_ctl stop");
        let runuser = line(rights(0, 0, &["runuser", "su"]), &[]).unwrap();
        assert_eq!(runuser, "runuser -u postgres -- pg_ctl stop");
        let setpriv = line(rights(0, 0, &["setpriv", "su"]), &[]).unwrap();
        assert_eq!(setpriv, "setpriv --reuid=26 --regid=27 --init-groups -- pg_ctl stop");
        let su = line(rights(0, 0, &["su"]), &[]).unwrap();
        assert_eq!(su, "su -s /bin/sh postgres -c 'exec \"$0\" \"$@\"' -- pg_ctl stop");
        let sudo = line(rights(7, 0, &["su", "sudo"]), &["sudo -n -u postgres -- true"]).unwrap();
        assert_eq!(sudo, "sudo -n -u postgres -- pg_ctl stop");
        let refused = line(rights(7, 0, &["runuser", "su", "sudo"]), &[]).unwrap_err();
        assert!(refused.contains("`joe ALL=(postgres) NOPASSWD: ALL`"), "{refused}");
    }
}
