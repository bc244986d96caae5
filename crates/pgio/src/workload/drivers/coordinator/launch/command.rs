//! `slurm:N` and `run:COMMAND`: one command starts the drivers and stays until they have ended.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::contract::{Invitation, Launcher, background_options, with_invitation};
use crate::host::command::CommandLine;
use crate::host::exec::spawn;
use crate::workload::drivers::environment::SLURM_RANK_VARIABLE;
use crate::workload::drivers::error::DriverError;

/// Time for drivers to connect: the allocation exists already, but the program may be read over a network.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time for the command to end after its drivers were ordered to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Placeholders in the user's command: the driver's command and the number of drivers.
const DRIVE_PLACEHOLDER: &str = "{drive}";
const COUNT_PLACEHOLDER: &str = "{n}";

enum Kind {
    /// Inside salloc or sbatch.
    Slurm,
    /// A line for the shell.
    User(String),
}

pub(super) struct Command {
    kind: Kind,
    invitation: Option<Invitation>,
    /// The newest one last.
    started: Vec<Child>,
}

impl Command {
    pub(super) fn slurm() -> Command {
        Command { kind: Kind::Slurm, invitation: None, started: Vec::new() }
    }

    pub(super) fn user_command(line: String) -> Command {
        Command { kind: Kind::User(line), invitation: None, started: Vec::new() }
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

impl Launcher for Command {
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
        TIMEOUT
    }

    fn end(&mut self) {
        let begun = Instant::now();
        for child in &mut self.started {
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < END_TIMEOUT {
                thread::sleep(Duration::from_millis(10));
            }
            if let Ok(None) = child.try_wait() {
                let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
                let asked = Instant::now();
                while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_TIMEOUT {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let absent = Command::user_command("no-such-launcher-of-drivers {drive}".to_owned());
        let text = absent.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "run: starts the drivers, but `no-such-launcher-of-drivers` is not installed here: install it, or give its path"
        );
        assert!(Command::user_command("sh -c '{drive}'".to_owned()).check().is_ok());
        assert!(
            Command::user_command("for i in 1 2; do {drive} & done; wait".to_owned())
                .check()
                .is_ok()
        );
    }
}
