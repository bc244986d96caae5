//! What starts drivers: processes here, or an engine that the user has. pgio places nothing itself.
//!
//! Each engine hands the coordinator's addresses and the token to its drivers in their environment, never
//! in arguments. Drivers end by themselves when the run is over or the coordinator is gone. `local:N` starts
//! processes on this machine; `slurm:N` and `run:COMMAND` one command that stays until its drivers have ended;
//! `kubernetes:N` is in [`super::launch`].

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use pgio_link::{COORDINATOR_VARIABLE, LinkError, TOKEN_VARIABLE, Token};
use rustix::process::{Pid, Signal, kill_process_group};

use super::messages::{DriverError, RANKS_VARIABLE, SLURM_RANK_VARIABLE};
use super::spec::{DriverEngine, DriverSpec};
use crate::host::command::CommandLine;
use crate::host::exec::{Exec, Local, SpawnOptions, own_stderr, spawn};
use crate::host::proc;

/// Returns the engine that the user names.
pub(super) fn launcher(spec: &DriverSpec) -> Box<dyn Launcher> {
    match &spec.engine {
        DriverEngine::Local => Box::new(LocalLauncher::default()),
        DriverEngine::Slurm => Box::new(CommandLauncher::slurm()),
        DriverEngine::Run(line) => Box::new(CommandLauncher::user_command(line.clone())),
        DriverEngine::Kubernetes => Box::new(Kubernetes::new(spec)),
    }
}

/// What drivers need to find the coordinator and to be let in.
#[derive(Debug, Clone)]
pub(super) struct Invitation {
    pub coordinator: String,
    pub token: Token,
    pub run_id: String,
}

/// An engine that starts drivers.
pub(super) trait Launcher: Send {
    /// Refuses, before anything is started, what cannot work.
    fn check(&self) -> Result<(), DriverError>;

    /// Returns the token that the user has given to the drivers already, if any.
    fn token(&self) -> Result<Option<Token>, LinkError> {
        match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => Token::parse(&text).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether drivers are on this machine, so that nobody else need reach the coordinator.
    fn is_on_this_machine(&self) -> bool {
        false
    }

    fn invite(&mut self, invitation: Invitation);

    /// Starts drivers of these ranks; some may have run before and be lost.
    fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError>;

    /// Returns why drivers of these ranks will not come any more, if that is known.
    fn why_missing(&mut self, missing: &[u32]) -> Option<String>;

    /// How long drivers may take to connect.
    fn timeout(&self) -> Duration;

    /// Ends what is left of the engine's processes; drivers know that the run is over.
    fn end(&mut self);
}

/// The environment of drivers.
pub(super) fn with_invitation(
    command: CommandLine,
    invitation: &Invitation,
    ranks: &[u32],
) -> CommandLine {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    command
        .env(COORDINATOR_VARIABLE, &invitation.coordinator)
        .env(TOKEN_VARIABLE, invitation.token.expose())
        .env(RANKS_VARIABLE, ranks.join(","))
}

/// Ctrl-C on the terminal is for the coordinator, which tells the drivers.
pub(super) fn background_options() -> SpawnOptions {
    SpawnOptions {
        stdin: Stdio::null(),
        stdout: Stdio::null(),
        stderr: own_stderr(),
        parent_death_signal: None,
    }
}

const LOCAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a driver to end after it was ordered to.
const LOCAL_END_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct LocalLauncher {
    invitation: Option<Invitation>,
    children: BTreeMap<u32, Child>,
}

impl Launcher for LocalLauncher {
    fn check(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn is_on_this_machine(&self) -> bool {
        true
    }

    fn invite(&mut self, invitation: Invitation) {
        self.invitation = Some(invitation);
    }

    fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError> {
        let Some(invitation) = &self.invitation else { return Ok(()) };
        for rank in ranks {
            if let Some(mut lost) = self.children.remove(rank) {
                // A stopped process would come back when it is continued.
                let _ = lost.kill();
                let _ = lost.wait();
            }
            // The link leads to the running program even after an upgrade.
            let drive = CommandLine::new("/proc/self/exe").arg("drive");
            // A driver that is still dialing would not notice the coordinator's end. The run's own thread,
            // which lasts as long as the run, starts all of them.
            let options =
                SpawnOptions { parent_death_signal: Some(Signal::TERM), ..background_options() };
            let child = spawn(&with_invitation(drive, invitation, &[*rank]), options)?;
            self.children.insert(*rank, child);
        }
        Ok(())
    }

    fn why_missing(&mut self, missing: &[u32]) -> Option<String> {
        let ended = |(rank, child): (&u32, &mut Child)| {
            let status = child.try_wait().ok().flatten().filter(|_| missing.contains(rank))?;
            Some(format!("driver {rank} ended with {status}"))
        };
        self.children.iter_mut().find_map(ended)
    }

    fn timeout(&self) -> Duration {
        LOCAL_TIMEOUT
    }

    fn end(&mut self) {
        let begun = Instant::now();
        for child in self.children.values_mut() {
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < LOCAL_END_TIMEOUT {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
    }
}

/// Time for drivers to connect: the allocation exists already, but the program may be read over a network.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for the command to end after its drivers were ordered to end.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Placeholders in the user's command: the driver's command and the number of drivers.
const DRIVE_PLACEHOLDER: &str = "{drive}";
const COUNT_PLACEHOLDER: &str = "{n}";

enum Kind {
    /// Inside salloc or sbatch.
    Slurm,
    /// A line for the shell.
    User(String),
}

pub(super) struct CommandLauncher {
    kind: Kind,
    invitation: Option<Invitation>,
    /// The newest one last.
    started: Vec<Child>,
}

impl CommandLauncher {
    pub(super) fn slurm() -> CommandLauncher {
        CommandLauncher { kind: Kind::Slurm, invitation: None, started: Vec::new() }
    }

    pub(super) fn user_command(line: String) -> CommandLauncher {
        CommandLauncher { kind: Kind::User(line), invitation: None, started: Vec::new() }
    }
}

/// The program of the drivers: this one, by the path that other hosts know it under.
fn program() -> Result<String, DriverError> {
    let exe = std::env::current_exe();
    let exe = exe.map_err(|e| {
        DriverError::Refused(format!(
            "cannot find the program file of pgio in /proc/self/exe ({e}): mount /proc"
        ))
    })?;
    Ok(exe.display().to_string())
}

fn command_line(kind: &Kind, program: &str, count: usize) -> CommandLine {
    match kind {
        Kind::Slurm => {
            let count = count.to_string();
            // A lost driver must not end the others; a replacement shares the processors of the one
            // that it replaces.
            let options = ["--kill-on-bad-exit=0", "--overlap", "--export=ALL", "--label"];
            CommandLine::new("srun").args(options).args(["--ntasks", &count, program, "drive"])
        }
        Kind::User(line) => {
            let quoted = format!("'{}'", program.replace('\'', "'\\''"));
            let line = line
                .replace(COUNT_PLACEHOLDER, &count.to_string())
                .replace(DRIVE_PLACEHOLDER, &format!("{quoted} drive"));
            // All drivers would inherit the number that this process has in a Slurm job.
            let line = format!("unset {SLURM_RANK_VARIABLE}\n{line}");
            CommandLine::new("sh").args(["-c", &line])
        }
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

impl Launcher for CommandLauncher {
    fn check(&self) -> Result<(), DriverError> {
        match &self.kind {
            Kind::Slurm if !is_on_path("srun") => Err(DriverError::NoProgram {
                engine: "Slurm",
                program: "srun".to_owned(),
                hint: "install slurm-client, or run pgio where it is",
            }),
            Kind::Slurm if std::env::var_os("SLURM_JOB_ID").is_none() => {
                let why = "slurm: needs an allocation: run pgio inside salloc or sbatch, such as `salloc -N 4 pgio compare ...`";
                Err(DriverError::Refused(why.to_owned()))
            }
            Kind::Slurm => Ok(()),
            Kind::User(line) => {
                let first = line.split_whitespace().next().unwrap_or_default();
                let plain = !first.contains(['/', '=', '$', '(', '"', '\'', '{']);
                if plain && !is_on_path(first) && !is_builtin(first) {
                    Err(DriverError::NoProgram {
                        engine: "run:",
                        program: first.to_owned(),
                        hint: "install it, or give its path",
                    })
                } else {
                    Ok(())
                }
            }
        }
    }

    fn invite(&mut self, invitation: Invitation) {
        self.invitation = Some(invitation);
    }

    fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError> {
        let Some(invitation) = &self.invitation else { return Ok(()) };
        self.started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let command = command_line(&self.kind, &program()?, ranks.len());
        let child = spawn(&with_invitation(command, invitation, ranks), background_options())?;
        self.started.push(child);
        Ok(())
    }

    fn why_missing(&mut self, _missing: &[u32]) -> Option<String> {
        let newest = self.started.last_mut()?;
        let status = newest.try_wait().ok().flatten()?;
        // A command that puts its drivers in the background may succeed before they connect.
        (!status.success())
            .then(|| format!("the command that starts the drivers ended with {status}"))
    }

    fn timeout(&self) -> Duration {
        COMMAND_TIMEOUT
    }

    fn end(&mut self) {
        let begun = Instant::now();
        for child in &mut self.started {
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < COMMAND_END_TIMEOUT {
                thread::sleep(Duration::from_millis(10));
            }
            if let Ok(None) = child.try_wait() {
                let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
                let asked = Instant::now();
                while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < COMMAND_END_TIMEOUT
                {
                    thread::sleep(Duration::from_millis(10));
                }
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            }
            let _ = child.wait();
        }
        self.started.clear();
    }
}

fn is_builtin(word: &str) -> bool {
    ["for", "if", "while", "exec", "export", "set", "cd", "eval", "case"].contains(&word)
}

/// The subcommand that makes a process a driver.
const DRIVE: &[u8] = b"drive";

/// Returns whether a driver is among the descendants of this process, which telemetry counts as its own load.
/// Drivers of `local:N` are, drivers of Slurm descend from its daemon, and a user's command may start either.
pub(super) fn is_driver_descendant() -> bool {
    let Ok(own) = i32::try_from(std::process::id()) else { return false };
    let is_driver = |pid: &i32| {
        // A process that has ended meanwhile is no driver.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(DRIVE)
    };
    descendants_of(own, &parents()).iter().any(is_driver)
}

/// The parent of each process.
fn parents() -> BTreeMap<i32, i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| fs::read(entry.path().join("stat")).ok());
    stats
        .filter_map(|stat| proc::parse_process(&String::from_utf8_lossy(&stat)))
        .map(|process| (process.pid, process.parent))
        .collect()
}

/// The descendants of a process.
fn descendants_of(root: i32, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        let children = parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid);
        pending.extend(children.filter(|pid| found.insert(*pid)));
    }
    found
}

// `kubernetes:N`: an Indexed Job, by kubectl as the user has configured it. The Job starts a lost driver again by
// itself (`backoffLimitPerIndex`), with the same rank. The token is in a Secret of the run; both are deleted at its
// end.

const TEMPLATE: &str = include_str!("job.yaml");
/// Time for nodes to pull the image.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time for the Job to complete once its drivers have been ordered to end.
const END_TIMEOUT_OPTION: &str = "--timeout=20s";
/// Time for one command of kubectl.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Kubernetes {
    spec: DriverSpec,
    invitation: Option<Invitation>,
    applied: bool,
}

impl Kubernetes {
    pub(super) fn new(spec: &DriverSpec) -> Kubernetes {
        Kubernetes { spec: spec.clone(), invitation: None, applied: false }
    }
}

/// Returns the manifest of Secret and Job, for a run or for the user to read.
pub(super) fn manifest(spec: &DriverSpec, run_id: &str, coordinator: &str, token: &str) -> String {
    // A JSON string is a YAML scalar that nothing can break out of.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let values = [
        ("{name}", name_of(run_id)),
        ("{count}", spec.count.to_string()),
        ("{image}", quoted(spec.image.as_deref().unwrap_or_default())),
        ("{cpu}", quoted(&spec.cpu)),
        ("{coordinator}", quoted(coordinator)),
        ("{token}", quoted(token)),
        ("{coordinator_variable}", COORDINATOR_VARIABLE.to_owned()),
        ("{token_variable}", TOKEN_VARIABLE.to_owned()),
    ];
    values.iter().fold(TEMPLATE.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns a name that Kubernetes accepts: lower case, digits and hyphens.
fn name_of(run_id: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let id: String = run_id.chars().map(allowed).take(48).collect();
    format!("pgio-{}", id.trim_matches('-'))
}

fn kubectl() -> CommandLine {
    CommandLine::new("kubectl").timeout(KUBECTL_TIMEOUT)
}

/// Gives the manifest to kubectl on stdin: a token in arguments would be visible to every user. A Ctrl-C is for
/// this process, which then deletes what was applied.
fn apply(kubectl: CommandLine, manifest: &str) -> Result<(), DriverError> {
    Local.run(&kubectl.args(["apply", "-f", "-"]).input(manifest))?;
    Ok(())
}

impl Launcher for Kubernetes {
    fn check(&self) -> Result<(), DriverError> {
        match Local.output(&kubectl().args(["version", "--client"])) {
            Ok(_) => Ok(()),
            Err(_) => Err(DriverError::NoProgram {
                engine: "Kubernetes",
                program: "kubectl".to_owned(),
                hint: "install it and configure access to the cluster",
            }),
        }
    }

    fn invite(&mut self, invitation: Invitation) {
        self.invitation = Some(invitation);
    }

    /// The Job starts lost drivers again by itself.
    fn start(&mut self, _ranks: &[u32]) -> Result<(), DriverError> {
        let Some(Invitation { coordinator, token, run_id }) = &self.invitation else {
            return Ok(());
        };
        if !self.applied {
            self.applied = true;
            apply(kubectl(), &manifest(&self.spec, run_id, coordinator, token.expose()))?;
        }
        Ok(())
    }

    fn why_missing(&mut self, _missing: &[u32]) -> Option<String> {
        None
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn end(&mut self) {
        let Some(invitation) = self.invitation.as_ref().filter(|_| self.applied) else { return };
        let name = name_of(&invitation.run_id);
        let ended = ["wait", "--for=condition=complete", "job", &name, END_TIMEOUT_OPTION];
        // Drivers have been ordered to end. One that does not is deleted with its Job.
        let _ = Local.run(&kubectl().args(ended));
        let delete = ["delete", "job,secret", &name, "--ignore-not-found", "--wait=false"];
        // A Job that cannot be deleted ends with its drivers, which were ordered to end.
        let _ = Local.run(&kubectl().args(delete));
        self.applied = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::drivers::spec::{DriverEngine, Spread};
    use std::process::Command;

    #[test]
    fn a_users_command_gets_the_number_and_the_drivers_command() {
        let kind = Kind::User("mpirun -np {n} {drive}".to_owned());
        let shown = command_line(&kind, "/opt/it's/pgio", 3).to_string();
        assert!(shown.contains("mpirun -np 3 "), "{shown}");
        assert!(shown.contains("drive"), "{shown}");
        assert!(shown.contains("unset SLURM_PROCID"), "{shown}");
        let slurm = command_line(&Kind::Slurm, "/usr/bin/pgio", 4).to_string();
        assert!(slurm.starts_with("srun --kill-on-bad-exit=0 "), "{slurm}");
        assert!(slurm.ends_with("--ntasks 4 /usr/bin/pgio drive"), "{slurm}");
    }

    #[test]
    fn an_engine_that_is_not_there_is_named_with_what_to_install() {
        let absent =
            CommandLauncher::user_command("no-such-launcher-of-drivers {drive}".to_owned());
        let text = absent.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "run: starts the drivers, but `no-such-launcher-of-drivers` is not installed here: install it, or give its path"
        );
        assert!(CommandLauncher::user_command("sh -c '{drive}'".to_owned()).check().is_ok());
        assert!(
            CommandLauncher::user_command("for i in 1 2; do {drive} & done; wait".to_owned())
                .check()
                .is_ok()
        );
    }

    #[test]
    fn a_process_descends_from_its_parents() {
        let parents = BTreeMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(descendants_of(10, &parents), BTreeSet::from([11, 12]));
        assert_eq!(descendants_of(20, &parents), BTreeSet::new());
    }

    #[test]
    fn a_driver_that_was_started_here_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("drive"), "sleep 60 & wait\n").unwrap();
        // As a user's command may start it.
        let mut command = Command::new("sh");
        command.args(["-c", "sh drive & wait"]).current_dir(dir.path()).stdin(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while !is_driver_descendant() && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(is_driver_descendant());
        let group = Pid::from_child(&child);
        kill_process_group(group, Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    fn spec(count: u32, image: &str, cpu: &str) -> DriverSpec {
        let (image, cpu) = (Some(image.to_owned()), cpu.to_owned());
        let (engine, spread) = (DriverEngine::Kubernetes, Spread::Sessions);
        DriverSpec { engine, count, image, cpu, spread, listen: None }
    }

    #[test]
    fn the_manifest_has_a_secret_an_indexed_job_and_nothing_left_to_fill_in() {
        let spec = spec(4, "registry/pgio:2\"\nkind: evil", "500m");
        let text = manifest(&spec, "20261125T011500Z-7", "10.0.0.1:7,host:7", "secret");
        let documents: Vec<&str> = text.split("---\n").collect();
        assert_eq!(documents.len(), 2);
        assert!(documents[0].contains("kind: Secret") && !documents[1].contains("\"secret\""));
        for line in [
            "  name: pgio-20261125t011500z-7",
            "  completions: 4",
            "  completionMode: Indexed",
            "  backoffLimitPerIndex: 6",
            "        podAntiAffinity:",
            "          value: \"10.0.0.1:7,host:7\"",
            "          requests: {cpu: \"500m\", memory: 256Mi}",
            "        image: \"registry/pgio:2\\\"\\nkind: evil\"",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
        let open =
            ["{name}", "{count}", "{image}", "{cpu}", "{token}", "{coordinator}", "_variable}"];
        assert!(open.iter().all(|placeholder| !text.contains(placeholder)), "{text}");
    }

    #[test]
    fn a_kubectl_that_hangs_is_an_error_and_does_not_show_the_token() {
        let hangs = CommandLine::new("sh").args(["-c", "exec sleep 600"]);
        let error = apply(hangs.timeout(Duration::from_millis(50)), "token: secret").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did not finish within 0.05 s"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let fails = CommandLine::new("sh").args(["-c", "echo no cluster >&2; exit 1"]);
        let text = apply(fails, "token: secret").unwrap_err().to_string();
        assert!(text.ends_with(": no cluster") && !text.contains("secret"), "{text}");
        assert!(apply(CommandLine::new("sh").args(["-c", "grep -q secret"]), "secret").is_ok());
    }
}
