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
mod tests;
