//! Who we are on a host, and the words that let a command run there as root or as another user.
//!
//! Found out once, before anything is changed; a refusal names the capability, or the sudo rule,
//! that would be enough. Nothing is ever asked of the user: a sudo that wants a password is none.
//! Next: `pg::control` and the treatments that mount or format.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exec::{CommandLine, Exec, ExecError};

const LOOK: &str = include_str!("rights/look.sh");

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    #[error(
        "{what} needs root on host {host}: run pgio there as root or log in as root (ssh = \"root@...\"), or let {name} do it without a password by the sudo rule `{name} ALL=(root) NOPASSWD: {programs}`"
    )]
    NotRoot { what: String, host: String, name: String, programs: String },
    #[error("{what} needs the capability {capability}, which root on host {host} does not have")]
    Incapable { what: String, host: String, capability: &'static str },
    #[error(
        "to act as {owner} on host {host}, log in there as {owner} or as root, or let {name} do it without a password by the sudo rule `{name} ALL=({owner}) NOPASSWD: ALL`"
    )]
    NotOwner { host: String, owner: String, name: String },
    #[error(
        "{file} on host {host} cannot be written by {name}, as {what} needs it: be root there, {way}"
    )]
    NotWritable { what: &'static str, file: String, host: String, name: String, way: String },
    #[error(
        "{file} on host {host} cannot be written by root either, as {what} needs it: a container has it read-only; run pgio on the machine itself"
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

/// A capability of root's that containers take away; by its bit.
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

/// Goes before a command: no words where none are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix(Vec<String>);

impl Prefix {
    /// Before the words of a command that is given to another one.
    pub fn words<A: AsRef<str>>(&self, words: impl IntoIterator<Item = A>) -> Vec<String> {
        self.0.iter().cloned().chain(words.into_iter().map(|w| w.as_ref().to_owned())).collect()
    }

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
    has: Vec<String>,
}

impl Rights {
    pub fn find(exec: &dyn Exec) -> Result<Rights, ExecError> {
        let look = CommandLine::new("sh").args(["-c", LOOK, "sh"]).timeout(LIMIT);
        Ok(Rights::parse(&exec.run(&look)?))
    }

    fn parse(text: &str) -> Rights {
        let mut rights =
            Rights { uid: u32::MAX, name: String::new(), capabilities: 0, has: Vec::new() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("uid", uid)) => rights.uid = uid.parse().unwrap_or(u32::MAX),
                Some(("name", name)) => rights.name = name.to_owned(),
                Some(("capabilities", hex)) => {
                    rights.capabilities = u64::from_str_radix(hex, 16).unwrap_or(0);
                }
                Some(("has", program)) => rights.has.push(program.to_owned()),
                _ => {}
            }
        }
        rights
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn has(&self, program: &str) -> bool {
        self.has.iter().any(|has| has == program)
    }

    /// For `programs`, which is all that sudo has to allow. `what` begins the refusal, such as
    /// `to remount /srv`.
    pub fn as_root(
        &self,
        exec: &dyn Exec,
        host: &str,
        what: &str,
        capability: Option<Capability>,
        programs: &[&str],
    ) -> Result<Prefix, RightsError> {
        let (what, host) = (what.to_owned(), host.to_owned());
        if self.uid == 0 {
            let lacks = capability.filter(|c| self.capabilities >> *c as u32 & 1 == 0);
            return match lacks.map(Capability::name) {
                None => Ok(Prefix::default()),
                Some(capability) => Err(RightsError::Incapable { what, host, capability }),
            };
        }
        let sudo = Prefix(["sudo", "-n", "--"].map(str::to_owned).to_vec());
        if self.has("sudo") && sudo_runs(exec, programs)? {
            return Ok(sudo);
        }
        let programs = paths(exec, programs)?.join(", ");
        Err(RightsError::NotRoot { what, host, name: self.name.clone(), programs })
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// For what pgio does itself, or by a shell: the whole of it has to be root.
    pub fn way_to_root(&self) -> String {
        let exe = std::env::current_exe();
        let pgio = exe.map_or_else(|_| "pgio".to_owned(), |path| path.display().to_string());
        let name = &self.name;
        format!(
            "by the sudo rule `{name} ALL=(root) NOPASSWD: {pgio}` or over ssh by ssh = \"root@...\""
        )
    }

    fn not_writable(
        &self,
        host: &str,
        what: &'static str,
        file: String,
        enough: Option<Capability>,
    ) -> RightsError {
        let (host, name) = (host.to_owned(), self.name.clone());
        if self.uid == 0 {
            return RightsError::ReadOnly { what, file, host };
        }
        let or = enough.map_or(String::new(), |c| format!(", or have the capability {}", c.name()));
        let way = self.way_to_root() + &or;
        RightsError::NotWritable { what, file, host, name, way }
    }

    /// Keeps the environment, apart from HOME and the like; sudo keeps none.
    pub fn as_user(&self, exec: &dyn Exec, host: &str, user: &User) -> Result<Prefix, RightsError> {
        let words = |words: &[&str]| Ok(Prefix(words.iter().map(|&w| w.to_owned()).collect()));
        match self.uid {
            uid if uid == user.uid => return Ok(Prefix::default()),
            0 if self.has("runuser") => return words(&["runuser", "-u", &user.name, "--"]),
            0 if self.has("setpriv") => {
                let (uid, gid) = (format!("--reuid={}", user.uid), format!("--regid={}", user.gid));
                return words(&["setpriv", &uid, &gid, "--init-groups", "--"]);
            }
            0 if self.has("su") => {
                let run = "exec \"$0\" \"$@\"";
                return words(&["su", "-s", "/bin/sh", &user.name, "-c", run, "--"]);
            }
            _ if self.has("sudo") => {
                let sudo = ["sudo", "-n", "-u", user.name.as_str(), "--"];
                let attempt = CommandLine::new("sudo").args(&sudo[1..]).arg("true").timeout(LIMIT);
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

/// Whether sudo runs them all, now and later, without a password. Its own answer (`sudo -l`) does not
/// tell: that asks for none as soon as any one rule has NOPASSWD, not the one that fits. So each program
/// is run, and by -k without the password of a moment ago, which is worth nothing some minutes later.
/// A rule with certain arguments allows none of this, and `sudo -l` of the bare program neither.
fn sudo_runs(exec: &dyn Exec, programs: &[&str]) -> Result<bool, ExecError> {
    for program in programs {
        let attempt = CommandLine::new("sudo").args(["-k", "-n", "--", program]);
        let attempt = attempt.args(harmless(program)).timeout(LIMIT);
        if !exec.output(&attempt)?.status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Arguments with which a program tells something about itself, does nothing and succeeds.
fn harmless(program: &str) -> &'static [&'static str] {
    match program.rsplit('/').next().unwrap_or(program) {
        "drbdsetup" => &["help", "show"],
        name if name.starts_with("mkfs.") => &["-V"],
        _ => &["--version"],
    }
}

/// As sudoers wants them: with the whole path, where it is known.
fn paths(exec: &dyn Exec, programs: &[&str]) -> Result<Vec<String>, ExecError> {
    let find = "PATH=$PATH:/usr/sbin:/sbin; for p; do command -v \"$p\" || echo \"$p\"; done";
    let find = CommandLine::new("sh").args(["-c", find, "sh"]).args(programs).timeout(LIMIT);
    let found: Vec<String> = exec.output(&find)?.stdout.lines().map(str::to_owned).collect();
    Ok(match found.len() == programs.len() {
        true => found,
        false => programs.iter().map(|&p| p.to_owned()).collect(),
    })
}

/// For files that are written by pgio itself, or by a shell of its own. `enough` is a capability that
/// does without root: for /proc/sys none does, which asks for the user alone.
pub fn check_writable(
    exec: &dyn Exec,
    host: &str,
    what: &'static str,
    files: &[&Path],
    enough: Option<Capability>,
) -> Result<(), RightsError> {
    let script = "for file; do [ -w \"$file\" ] || { echo \"$file\"; exit; }; done";
    let ask = CommandLine::new("sh").args(["-c", script, "sh"]).args(files).timeout(LIMIT);
    match exec.run(&ask)?.trim_end() {
        "" => Ok(()),
        file => Err(Rights::find(exec)?.not_writable(host, what, file.to_owned(), enough)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::host::exec::{Local, Output};

    /// A sudo that allows what it is given.
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
        Rights { uid, name: "joe".to_owned(), capabilities, has }
    }

    fn postgres() -> User {
        User { uid: 26, gid: 27, name: "postgres".to_owned() }
    }

    #[test]
    fn we_are_found_here() {
        let found = Rights::find(&Local).unwrap();
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert!(!found.name.is_empty());
        let me = User { uid: found.uid, gid: 0, name: found.name.clone() };
        assert_eq!(found.as_user(&Local, "local", &me).unwrap(), Prefix::default());
    }

    #[test]
    fn root_needs_the_capability_and_anyone_else_a_rule() {
        let ask = |rights: Rights, sudo: Sudo| {
            let programs = ["mount", "umount"];
            rights.as_root(&sudo, "db", "to remount /srv", Some(Capability::SysAdmin), &programs)
        };
        assert_eq!(ask(of(0, 1 << 21, &[]), Sudo(&[])).unwrap(), Prefix::default());
        assert_eq!(
            ask(of(0, !(1 << 21), &["sudo"]), Sudo(&[])).unwrap_err().to_string(),
            "to remount /srv needs the capability CAP_SYS_ADMIN, which root on host db does not have"
        );
        let both = Sudo(&["sudo -k -n -- mount --version", "sudo -k -n -- umount --version"]);
        let line = ask(of(7, 0, &["sudo"]), both).unwrap().line(["mount", "-o", "a b"]);
        assert_eq!(line.to_string(), "sudo -n -- mount -o 'a b'");
        // Listed without a password, as some rule has NOPASSWD, but not run without one.
        let listed =
            Sudo(&["sudo -n -l -- mount", "sudo -n -l -- umount", "sudo -k -n -- mount --version"]);
        for (has, sudo) in [(&[][..], Sudo(&[])), (&["sudo"][..], listed)] {
            let refused = ask(of(7, u64::MAX, has), sudo).unwrap_err().to_string();
            assert!(refused.contains("`joe ALL=(root) NOPASSWD: mount, umount`"), "{refused}");
        }
    }

    #[test]
    fn each_program_has_a_way_to_do_nothing() {
        assert_eq!(harmless("/usr/sbin/drbdsetup"), ["help", "show"]);
        assert_eq!(harmless("/usr/sbin/drbdadm"), ["--version"]);
        for program in ["mount", "umount", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "wipefs", "blkid"]
        {
            let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
            let line = CommandLine::new(program).args(harmless(program)).env("PATH", path);
            match Local.output(&line) {
                Ok(said) => assert!(said.status.success(), "{program}: {}", said.stderr),
                Err(error) => eprintln!("skipped: {error}"),
            }
        }
    }

    #[test]
    fn sudoers_wants_whole_paths() {
        let [sh, none] = &paths(&Local, &["sh", "pgio-none"]).unwrap()[..] else { panic!() };
        assert!(sh.starts_with('/') && sh.ends_with("/sh"), "{sh}");
        assert_eq!(none, "pgio-none");
    }

    #[test]
    fn who_may_not_write_hears_what_would_be_enough() {
        let file = Path::new("/nonexistent/limit");
        let said = check_writable(&Local, "db", "a throttle", &[file], None).unwrap_err();
        assert!(
            said.to_string().starts_with("/nonexistent/limit on host db cannot be written by ")
        );
        assert!(
            check_writable(&Local, "db", "a throttle", &[Path::new("/dev/null")], None).is_ok()
        );
        let of = |uid, enough| {
            of(uid, 0, &[]).not_writable("db", "a throttle", "/f".to_owned(), enough).to_string()
        };
        let said = of(7, Some(Capability::DacOverride));
        assert!(said.contains("by the sudo rule `joe ALL=(root) NOPASSWD: /"), "{said}");
        assert!(said.ends_with(", or have the capability CAP_DAC_OVERRIDE"), "{said}");
        assert!(!of(7, None).contains("CAP_"));
        assert!(of(0, None).contains("by root either"));
    }

    #[test]
    fn ways_to_become_the_owner() {
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
}
