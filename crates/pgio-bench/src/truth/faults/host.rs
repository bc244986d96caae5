//! Faults of the machine's own settings, which belong to everybody on it. They are replaced by files of this
//! process's mount namespace, so that pgio reads another value and the kernel keeps its own. Needs root.
//!
//! Next: [`super::device`] changes what really belongs to this process, the queue of a loop device.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::failed;
use super::server::{COMMIT, text};
use crate::truth::server::private;
use pgio::cli::exit::{Failure, Outcome};
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio_report::analysis::Analysis;

const DIRTY: &str = "/proc/sys/vm/dirty_background_ratio";
const PROCESSORS: &str = "/sys/devices/system/cpu";
const EXPECTED: Expected = Expected::invalid("environment-differs", Some("b"));

pub(super) const OTHER_WRITE_BACK: Fault = Fault {
    rule: 1,
    needs: Needs::Namespace,
    what: "vm.dirty_background_ratio, which no condition declares, changes before each trial of `b`",
    expected: EXPECTED,
    run: |case| {
        let dirty = Replaced::file(DIRTY)?;
        around(case, |is_b| dirty.write(if is_b { "50" } else { "10" }))
    },
};

pub(super) const SAME_WRITE_BACK: Fault = Fault {
    what: "vm.dirty_background_ratio changes before each trial of `b` and is set back before the trial",
    run: |case| {
        let dirty = Replaced::file(DIRTY)?;
        around(case, |is_b| {
            dirty.write(if is_b { "50" } else { "10" })?;
            dirty.write("10")
        })
    },
    ..OTHER_WRITE_BACK
};

/// Two processors, because a governor may change on one of them only.
pub(super) const OTHER_GOVERNOR: Fault = Fault {
    rule: 1,
    needs: Needs::Namespace,
    what: "the frequency governor of one processor of two changes before each trial of `b`",
    expected: EXPECTED,
    run: |case| {
        let processors = Governors::new()?;
        around(case, |is_b| processors.set(1, if is_b { "powersave" } else { "performance" }))
    },
};

/// The environment names how many processors have which governor, not which one.
pub(super) const SAME_GOVERNORS: Fault = Fault {
    what: "the same governors on as many processors, exchanged before each trial of `b`",
    run: |case| {
        let processors = Governors::new()?;
        around(case, |is_b| {
            let names = ["powersave", "performance"];
            processors.set(0, names[usize::from(is_b)])?;
            processors.set(1, names[usize::from(!is_b)])
        })
    },
    ..OTHER_GOVERNOR
};

/// Runs two conditions; `change` runs before each trial and gets whether it is one of `b`.
fn around(case: &Case<'_>, change: impl FnMut(bool) -> Outcome) -> Result<Analysis, Failure> {
    let cluster = private(case.round.pg, None, &[])?;
    let text = text(case, &cluster, "blocks = 2\nduration = \"1s\"", COMMIT, &["a", "b"]);
    case.with_b_changed(&text, change)
}

/// A path below which this namespace sees something of its own until this is dropped.
#[derive(Debug)]
struct Replaced {
    path: PathBuf,
    /// What is seen in its place.
    own: TempDir,
}

impl Replaced {
    /// A file with the content that it has.
    fn file(path: &str) -> Result<Replaced, Failure> {
        let own = tempfile::tempdir().map_err(failed)?;
        let file = own.path().join("file");
        fs::write(&file, fs::read(path).map_err(failed)?).map_err(failed)?;
        Replaced::by(Path::new(path), &file, own)
    }

    /// An empty directory.
    fn directory(path: &str) -> Result<Replaced, Failure> {
        let own = tempfile::tempdir().map_err(failed)?;
        let directory = own.path().to_owned();
        Replaced::by(Path::new(path), &directory, own)
    }

    fn by(path: &Path, own: &Path, dir: TempDir) -> Result<Replaced, Failure> {
        let mount = CommandLine::new("mount").args(["--bind"]).arg(own).arg(path);
        Local.run(&mount).map_err(failed)?;
        Ok(Replaced { path: path.to_owned(), own: dir })
    }

    fn write(&self, value: &str) -> Outcome {
        fs::write(self.own.path().join("file"), format!("{value}\n")).map_err(failed)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // If this fails, the mount ends with the namespace.
        let _ = Local.run(&CommandLine::new("umount").arg(&self.path));
    }
}

/// Processors with a governor each: most virtual machines have none.
#[derive(Debug)]
struct Governors(Replaced);

impl Governors {
    fn new() -> Result<Governors, Failure> {
        let governors = Governors(Replaced::directory(PROCESSORS)?);
        for number in 0..2 {
            let directory = governors.directory(number);
            fs::create_dir_all(&directory).map_err(failed)?;
            governors.set(number, "performance")?;
        }
        Ok(governors)
    }

    fn directory(&self, number: usize) -> PathBuf {
        self.0.own.path().join(format!("cpu{number}/cpufreq"))
    }

    fn set(&self, number: usize, governor: &str) -> Outcome {
        let file = self.directory(number).join("scaling_governor");
        fs::write(file, format!("{governor}\n")).map_err(failed)
    }
}
