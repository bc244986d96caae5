//! Recorded script output, the resulting refusals, and an inspection of this machine.

use super::*;
use crate::host::exec::Local;

const HELD: &str = "\
path /dev/loop3
is block
number 7:3
name loop3
sectors 131072
read-only 0
sector 512
backing /var/tmp/a b.image
mount 40 31 7:3 / /mnt/a\\040b rw,relatime - ext4 /dev/loop3 rw
mount 41 31 7:4 / /mnt/other rw,relatime - ext4 /dev/loop4 rw
busy wipefs: error: /dev/loop3: probing initialization failed: Device or resource busy
signature ext4,filesystem,11aa,data
";

fn device(text: &str) -> BlockDevice {
    match parse(text) {
        PathKind::Block(device) => device,
        other => panic!("no device: {other:?}"),
    }
}

/// An unused device with these additional lines.
fn idle(lines: &str) -> BlockDevice {
    let head: Vec<&str> = HELD.lines().take(7).collect();
    device(&format!("{}\n{lines}", head.join("\n")))
}

fn refused(device: &BlockDevice, confirmed: &[&str]) -> String {
    device.refusal(confirmed).map_or_else(String::new, |r| r.to_string())
}

#[test]
fn uses_and_signatures_of_a_device() {
    let found = device(HELD);
    assert_eq!((found.bytes, found.sector), (64 << 20, Some(512)));
    assert_eq!(found.backing, Some("/var/tmp/a b.image".into()));
    assert_eq!(found.uses, ["mounted on /mnt/a b"]);
    assert_eq!(found.signatures[0].to_string(), "ext4 `data` (UUID 11aa)");
    assert_eq!(
        refused(&found, &["11aa"]),
        "/dev/loop3 is in use (mounted on /mnt/a b); unmount or release it, or use another device"
    );
}

#[test]
fn empty_devices_may_be_written() {
    assert_eq!(idle("").refusal(&[]), None);
}

#[test]
fn signatures_must_be_confirmed_by_uuid() {
    let both = idle(
        "signature ext4,filesystem,11aa,\nsignature ext4,filesystem,11aa,\nsignature dos,partition-table,,\n",
    );
    assert_eq!(refused(&both, &["11aa"]), "/dev/loop3 contains dos (no UUID), which would be lost");
    let one = idle("signature xfs,filesystem,22bb,\n");
    assert_eq!(refused(&one, &[]), "/dev/loop3 contains xfs (UUID 22bb), which would be lost");
    assert_eq!(refused(&one, &["33cc"]), refused(&one, &[]));
    assert_eq!(one.refusal(&["33cc", "22bb"]), None);
}

#[test]
fn devices_with_drbd_metadata_are_never_written() {
    let text = "signature ext4,filesystem,11aa,\nsignature drbd,raid,44dd,v08\nbusy x: Device or resource busy\n";
    let found = idle(text);
    assert!(refused(&found, &["11aa", "44dd"]).contains("contains DRBD metadata"));
    assert_eq!(found.uses, ["opened by the kernel or a program"]);
}

#[test]
fn unreadable_devices_are_refused() {
    let message = "wipefs: error: /dev/loop3: probing initialization failed: Permission denied";
    for kind in ["busy", "unreadable"] {
        let found = idle(&format!("{kind} {message}\n"));
        let expected = format!(
            "cannot read the contents of /dev/loop3: {message}; run as root, or as a member"
        );
        assert!(refused(&found, &[]).starts_with(&expected));
    }
    assert_eq!(refused(&idle("read-only 1\n"), &[]), "/dev/loop3 is read-only; use another device");
    assert!(refused(&idle("holder dm-0\nswap\n"), &[]).contains("(used by dm-0, swap)"));
}

#[test]
fn types_of_paths_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a 'file'");
    std::fs::write(&path, "12345").unwrap();
    let inspect = |path: &std::path::Path| inspect(&Local, path.to_str().unwrap()).unwrap();
    let real = path.canonicalize().unwrap();
    let PathKind::File { image, .. } = inspect(&path) else { panic!("{:?}", inspect(&path)) };
    assert_eq!((image.path.as_path(), image.bytes), (real.as_path(), 5));
    assert_eq!(image.refusal(&[]), None);
    assert!(matches!(inspect(dir.path()), PathKind::Directory { free: Some(1..), .. }));
    let PathKind::Directory { file_system, .. } = inspect("/proc".as_ref()) else {
        panic!("/proc is no directory");
    };
    assert_eq!(file_system, "proc");
    assert_eq!(inspect(&dir.path().join("none")), PathKind::Nothing);
    assert!(matches!(inspect("/dev/null".as_ref()), PathKind::Other { .. }));
}
