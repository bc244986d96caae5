//! Determines whether DRBD is configured for a disk of a host, even if the resource is down.
//!
//! A disk with external metadata shows no sign of DRBD while the resource is down; only the
//! configuration lists it. If the configuration cannot be read, the disk must not be written. This
//! module only reads from `drbdadm`.

use std::time::Duration;

use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::host::signature::{BlockDevice, Claim, Refusal, Signature};

const LIST: &str = include_str!("disks.sh");

const TIMEOUT: Duration = Duration::from_secs(30);

/// Error messages of drbdadm if nothing is configured for this host, which is not an error here.
const NO_RESOURCES: [&str; 2] =
    ["no resources defined", "no normal resources defined for this host"];

pub(super) const CLAIM: Claim = Claim {
    why: "contains DRBD metadata; writes that bypass DRBD would make its peer differ silently, so use the DRBD device instead, or a volume without DRBD",
    signs: |signature: &Signature| signature.kind.starts_with("drbd"),
    refusal,
};

fn refusal(
    exec: &dyn Exec,
    host: &str,
    device: &BlockDevice,
) -> Result<Option<Refusal>, ExecError> {
    let device = device.path.display().to_string();
    let ask = CommandLine::new("sh").args(["-c", LIST, "sh"]).timeout(TIMEOUT);
    let Output { status, stdout, stderr } = exec.output(&ask)?;
    if !status.success() && !NO_RESOURCES.iter().any(|none| stderr.contains(none)) {
        let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let why = format!("`drbdadm sh-ll-dev all` failed with {status}: {}", lines.join("; "));
        return Ok(Some(Refusal::Unknown(format!(
            "cannot determine whether {device} is a DRBD disk on host {host}: {why}; fix this, or log in there as a user who may read DRBD's configuration"
        ))));
    }
    let is_drbd_disk = stdout.lines().any(|disk| disk == device.as_str());
    Ok(is_drbd_disk.then_some(Refusal::Claimed { device, why: CLAIM.why }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::host::exec::Local;

    /// This machine with a directory prepended to PATH.
    struct WithPath(PathBuf);

    impl Exec for WithPath {
        fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
            let path = std::env::var("PATH").unwrap_or_default();
            Local.output(&command.clone().env("PATH", format!("{}:{path}", self.0.display())))
        }
    }

    /// Returns the refusal for a device if drbdadm is this script.
    fn refused(dir: &Path, script: &str, device: &str) -> Option<String> {
        let program = dir.join("drbdadm");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let device = BlockDevice { path: device.into(), ..BlockDevice::default() };
        refusal(&WithPath(dir.to_owned()), "db", &device).unwrap().map(|why| why.to_string())
    }

    #[test]
    fn devices_with_drbd_metadata_are_never_written() {
        let signature = |kind: &str, uuid: &str| Signature {
            kind: kind.to_owned(),
            uuid: Some(uuid.to_owned()),
            ..Signature::default()
        };
        let device = BlockDevice {
            path: "/dev/loop3".into(),
            uses: vec!["opened by the kernel or a program".to_owned()],
            signatures: vec![signature("ext4", "11aa"), signature("drbd", "44dd")],
            ..BlockDevice::default()
        };
        let refused = device.refusal(&["11aa", "44dd"]).unwrap().to_string();
        assert!(refused.contains("contains DRBD metadata"), "{refused}");
    }

    #[test]
    fn disks_are_recognized_through_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("/dev/null", &link).unwrap();
        let script =
            format!("[ \"$*\" = 'sh-ll-dev all' ] && echo /dev/zero && echo {}", link.display());
        for disk in ["/dev/zero", "/dev/null"] {
            let error = refused(dir.path(), &script, disk).unwrap();
            assert!(error.starts_with(&format!("{disk} contains DRBD metadata")), "{error}");
        }
        assert_eq!(refused(dir.path(), &script, "/dev/full"), None);
    }

    #[test]
    fn a_failing_drbdadm_does_not_mean_that_drbd_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let broken = "echo 'x.res:1: parse error' >&2; echo >&2; exit 10";
        let error = refused(dir.path(), broken, "/dev/sdx").unwrap();
        assert!(
            error.starts_with("cannot determine whether /dev/sdx is a DRBD disk on host db: "),
            "{error}"
        );
        assert!(error.contains("`drbdadm sh-ll-dev all` failed with exit status: 10"), "{error}");
        assert!(error.contains("10: x.res:1: parse error; fix this"), "{error}");
        for none in
            ["no resources defined!", "WARN: no normal resources defined for this host (a)!?"]
        {
            let script = format!("echo '{none}' >&2; exit 3");
            assert_eq!(refused(dir.path(), &script, "/dev/sdx"), None);
        }
    }
}
