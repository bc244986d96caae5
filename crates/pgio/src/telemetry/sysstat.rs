//! iostat.out, vmstat.out, mpstat.out and pgio_diskstats.out, as the original leaves them: the
//! sysstat tools on this machine, every three seconds, until they are killed.
//!
//! They are for eyes and old scripts; nothing of ours reads them. They end with [`Monitors`], and
//! with this process if it is killed. Start them in the main thread: a child's death signal comes
//! with the end of the thread that started it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::files::Directory;
use crate::host::exec::{CommandLine, ExecError, SpawnOptions, spawn};
use crate::results::Warning;

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

/// The tools at work.
#[derive(Debug)]
pub struct Monitors {
    diskstats: (PathBuf, File),
    running: Vec<Child>,
    /// Which do not run, and what to install.
    pub warning: Option<Warning>,
}

impl Monitors {
    /// Starts those that are installed and takes the first look at /proc/diskstats.
    pub fn start(dir: &Path) -> Result<Monitors, FileError> {
        let (first, mut missing) = (dir.join(TOOLS[0].0), Vec::new());
        let directory = Directory::open(dir).map_err(|source| FileError { path: first, source })?;
        // Nobody else's file or link of that name is written to.
        let create = |name: &str| {
            let path = dir.join(name);
            match directory.create_anew(name, 0o644) {
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
            let ties = SpawnOptions {
                stdin: Stdio::null(),
                stderr: out.try_clone().map_err(cannot)?.into(),
                stdout: out.into(),
                // On Ctrl-C they would add averages, while the run is still being ended.
                own_group: true,
                parent_death_signal: Some(Signal::KILL),
            };
            match spawn(&CommandLine::new(program).args(args), ties) {
                Ok(child) => monitors.running.push(child),
                Err(ExecError::Start { source, .. }) => {
                    // An empty file would look like a machine at rest.
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
                format!("without {}", missing.join(", ")),
                "not installed, so the files of the same names are not there",
                "install the packages sysstat and, for vmstat, procps",
            ));
        }
        monitors.diskstats()?;
        Ok(monitors)
    }

    /// Whether all of them run.
    pub fn complete(&self) -> bool {
        self.running.len() == TOOLS.len()
    }

    /// Ends them and takes the last look.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.diskstats()?;
        self.end();
        Ok(())
    }

    fn diskstats(&self) -> Result<(), FileError> {
        let (path, mut file) = (&self.diskstats.0, &self.diskstats.1);
        let mut append = || writeln!(file, "{}", fs::read_to_string("/proc/diskstats")?);
        append().map_err(|source| FileError { path: path.clone(), source })
    }

    fn end(&mut self) {
        for child in &mut self.running {
            // One that has ended by itself cannot be killed, and need not be.
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
    fn the_tools_end_with_their_owner_and_leave_what_the_original_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let monitors = Monitors::start(dir.path()).unwrap();
        assert!(monitors.complete(), "install sysstat to test: {:?}", monitors.warning);
        let pids: Vec<u32> = monitors.running.iter().map(Child::id).collect();
        // The first report comes at once.
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
        let looks: Vec<&str> = diskstats.split("\n\n").filter(|l| !l.is_empty()).collect();
        assert_eq!(looks.len(), 2, "{diskstats}");
        assert_eq!(looks[0].lines().count(), looks[1].lines().count());
    }

    #[test]
    fn a_directory_that_is_gone_is_named() {
        let error = Monitors::start(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nonexistent/iostat.out");
    }
}
