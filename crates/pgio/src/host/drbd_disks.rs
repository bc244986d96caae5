//! Whether DRBD is configured for a disk of a host, up or down.
//!
//! With its metadata on another device such a disk shows nothing of DRBD while that is down, so whoever
//! would write over a disk asks here and then [`BlockDevice::refusal`]. Only the configuration knows, and
//! where that cannot be read nobody may write. `drbdadm` is asked to tell, never to change anything.

use std::time::Duration;

use super::exec::{CommandLine, Exec, ExecError, Output};
use super::signature::{BlockDevice, Refusal};

const LIST: &str = include_str!("drbd_disks/list.sh");

const LIMIT: Duration = Duration::from_secs(30);

/// What drbdadm fails with where nothing is configured for this host, which is no failure here.
const NO_RESOURCES: [&str; 2] =
    ["no resources defined", "no normal resources defined for this host"];

/// Why nothing may be written to the device as far as DRBD is concerned. `host` is for the message.
pub fn refusal(
    exec: &dyn Exec,
    host: &str,
    device: &BlockDevice,
) -> Result<Option<Refusal>, ExecError> {
    let device = device.path.display().to_string();
    let ask = CommandLine::new("sh").args(["-c", LIST, "sh"]).timeout(LIMIT);
    let Output { status, stdout, stderr } = exec.output(&ask)?;
    if !status.success() && !NO_RESOURCES.iter().any(|none| stderr.contains(none)) {
        let said: Vec<&str> = stderr.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let why = format!("`drbdadm sh-ll-dev all` ended with {status}: {}", said.join("; "));
        return Ok(Some(Refusal::DrbdUnknown { device, host: host.to_owned(), why }));
    }
    let is_one = stdout.lines().any(|disk| disk == device.as_str());
    Ok(is_one.then_some(Refusal::Drbd { device }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::host::exec::Local;

    /// This machine with a program in front of all others.
    struct With(PathBuf);

    impl Exec for With {
        fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
            let path = std::env::var("PATH").unwrap_or_default();
            Local.output(&command.clone().env("PATH", format!("{}:{path}", self.0.display())))
        }
    }

    /// What is said of a device with a drbdadm that does this.
    fn said(dir: &Path, script: &str, device: &str) -> Option<String> {
        let program = dir.join("drbdadm");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let device = BlockDevice { path: device.into(), ..BlockDevice::default() };
        refusal(&With(dir.to_owned()), "db", &device).unwrap().map(|why| why.to_string())
    }

    #[test]
    fn a_disk_is_known_by_any_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("/dev/null", &link).unwrap();
        let script =
            format!("[ \"$*\" = 'sh-ll-dev all' ] && echo /dev/zero && echo {}", link.display());
        for disk in ["/dev/zero", "/dev/null"] {
            let said = said(dir.path(), &script, disk).unwrap();
            assert!(said.starts_with(&format!("{disk} carries metadata of DRBD")), "{said}");
        }
        assert_eq!(said(dir.path(), &script, "/dev/full"), None);
    }

    #[test]
    fn a_drbdadm_that_fails_is_not_taken_for_no_drbd() {
        let dir = tempfile::tempdir().unwrap();
        let broken = "echo 'x.res:1: parse error' >&2; echo >&2; exit 10";
        let told = said(dir.path(), broken, "/dev/sdx").unwrap();
        assert!(told.starts_with("whether /dev/sdx is a disk of DRBD's"), "{told}");
        assert!(
            told.contains("on host db: `drbdadm sh-ll-dev all` ended with exit status: 10"),
            "{told}"
        );
        assert!(told.contains("10: x.res:1: parse error; mend that"), "{told}");
        for none in
            ["no resources defined!", "WARN: no normal resources defined for this host (a)!?"]
        {
            let script = format!("echo '{none}' >&2; exit 3");
            assert_eq!(said(dir.path(), &script, "/dev/sdx"), None);
        }
    }
}
