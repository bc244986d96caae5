//! Writes iostat.out, vmstat.out, mpstat.out and pgio_diskstats.out, as the original pgio does:
//! runs the sysstat tools on this machine, every three seconds, until they are killed.
//!
//! The files are for people and old scripts; pgio does not read them. The tools end when
//! [`Monitors`] is dropped, and with this process if it is killed. Start them in the main thread:
//! the kernel sends a child its death signal when the thread that started it ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::exit_code::{FILES, HasExitCode};
use crate::host::exec::{CommandLine, ExecError, SpawnOptions, spawn};
use pgio_results::Warning;
use pgio_results::files::Directory;

/// File, program, arguments.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    ("iostat.out", "iostat", &["-xm", "3"]),
    ("vmstat.out", "vmstat", &["3"]),
    ("mpstat.out", "mpstat", &["-P", "ALL", "3"]),
];

#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct FileError {
    path: PathBuf,
    source: io::Error,
}

impl HasExitCode for FileError {
    fn code(&self) -> u8 {
        FILES
    }
}

/// The running tools.
#[derive(Debug)]
pub struct Monitors {
    diskstats: (PathBuf, File),
    running: Vec<Child>,
    /// Names the tools that do not run and what to install.
    pub warning: Option<Warning>,
}

impl Monitors {
    /// Starts the installed tools and saves the first copy of /proc/diskstats.
    pub fn start(dir: &Path) -> Result<Monitors, FileError> {
        let (first, mut missing) = (dir.join(TOOLS[0].0), Vec::new());
        let directory =
            Directory::open_to_write(dir).map_err(|source| FileError { path: first, source })?;
        // Never write to an existing file or link of that name.
        let create = |name: &str| {
            let path = dir.join(name);
            match directory.replace(name, 0o644) {
                Ok(file) => Ok((path, file)),
                Err(source) => Err(FileError { path, source }),
            }
        };
        let mut monitors = Monitors {
            diskstats: create("pgio_diskstats.out")?,
            running: Vec::new(),
            warning: None,
        };
        for (file, program, args) in TOOLS {
            let (path, out) = create(file)?;
            let cannot = |source| FileError { path: path.clone(), source };
            let options = SpawnOptions {
                stdin: Stdio::null(),
                stderr: out.try_clone().map_err(cannot)?.into(),
                stdout: out.into(),
                // On Ctrl-C they would print averages while the run is still ending.
                parent_death_signal: Some(Signal::KILL),
            };
            match spawn(&CommandLine::new(program).args(args), options) {
                Ok(child) => monitors.running.push(child),
                Err(ExecError::Start { source, .. }) => {
                    // An empty file would look like an idle machine.
                    let _ = directory.remove(file);
                    missing.push(match source.kind() {
                        io::ErrorKind::NotFound => program.to_owned(),
                        _ => format!("{program} ({source})"),
                    });
                }
                Err(other) => missing.push(format!("{program} ({other})")),
            }
        }
        if !missing.is_empty() {
            monitors.warning = Some(Warning::new(
                format!("cannot run {}", missing.join(", ")),
                "not installed, so the files of the same names are missing",
                "install the packages sysstat and, for vmstat, procps",
            ));
        }
        monitors.append_diskstats()?;
        Ok(monitors)
    }

    /// Whether all tools run.
    pub fn complete(&self) -> bool {
        self.running.len() == TOOLS.len()
    }

    /// Saves the last copy of /proc/diskstats and ends the tools.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.append_diskstats()?;
        self.end();
        Ok(())
    }

    fn append_diskstats(&self) -> Result<(), FileError> {
        let (path, mut file) = (&self.diskstats.0, &self.diskstats.1);
        let mut append = || writeln!(file, "{}", fs::read_to_string("/proc/diskstats")?);
        append().map_err(|source| FileError { path: path.clone(), source })
    }

    fn end(&mut self) {
        for child in &mut self.running {
            // `kill` fails for a tool that has already ended; that is harmless.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.clear();
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_end_with_their_owner_and_write_the_same_files_as_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let monitors = Monitors::start(dir.path()).unwrap();
        if let Some(warning) = &monitors.warning {
            pgio_tests::skipped(&format!("{}: {}", warning.what, warning.try_this));
            return;
        }
        let pids: Vec<u32> = monitors.running.iter().map(Child::id).collect();
        // The tools print their first report immediately.
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while ["iostat.out", "vmstat.out", "mpstat.out"].iter().any(|f| read(f).is_empty()) {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        monitors.finish().unwrap();
        for pid in pids {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
        }
        assert!(read("iostat.out").contains("avg-cpu"));
        let diskstats = read("pgio_diskstats.out");
        let copies: Vec<&str> = diskstats.split("\n\n").filter(|l| !l.is_empty()).collect();
        assert_eq!(copies.len(), 2, "{diskstats}");
        assert_eq!(copies[0].lines().count(), copies[1].lines().count());
    }

    #[test]
    fn the_error_names_a_missing_directory() {
        let error = Monitors::start(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nonexistent/iostat.out");
    }
}
