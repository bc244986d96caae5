//! Recorded looks, what they allow, and one look at this machine.

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
        Found::Block(device) => device,
        other => panic!("no device: {other:?}"),
    }
}

/// A device that nothing uses, with these lines.
fn idle(lines: &str) -> BlockDevice {
    let head: Vec<&str> = HELD.lines().take(7).collect();
    device(&format!("{}\n{lines}", head.join("\n")))
}

fn refused(device: &BlockDevice, confirmed: &[&str]) -> String {
    device.refusal(confirmed).map_or_else(String::new, |r| r.to_string())
}

#[test]
fn a_device_with_all_that_uses_it() {
    let found = device(HELD);
    assert_eq!((found.bytes, found.sector), (64 << 20, Some(512)));
    assert_eq!(found.backing, Some("/var/tmp/a b.image".into()));
    assert_eq!(found.uses, ["mounted on /mnt/a b"]);
    assert_eq!(found.signatures[0].to_string(), "ext4 `data` (UUID 11aa)");
    assert_eq!(
        refused(&found, &["11aa"]),
        "/dev/loop3 is in use (mounted on /mnt/a b): nothing is written to it; unmount or release it, or name another"
    );
}

#[test]
fn an_empty_device_may_be_written_to() {
    assert_eq!(idle("").refusal(&[]), None);
}

#[test]
fn what_it_holds_must_be_named_by_its_uuid() {
    let both = idle(
        "signature ext4,filesystem,11aa,\nsignature ext4,filesystem,11aa,\nsignature dos,partition-table,,\n",
    );
    assert_eq!(
        refused(&both, &["11aa"]),
        "/dev/loop3 holds dos (without a UUID), which would be lost"
    );
    let one = idle("signature xfs,filesystem,22bb,\n");
    assert_eq!(refused(&one, &[]), "/dev/loop3 holds xfs (UUID 22bb), which would be lost");
    assert_eq!(refused(&one, &["33cc"]), refused(&one, &[]));
    assert_eq!(one.refusal(&["33cc", "22bb"]), None);
}

#[test]
fn what_drbd_keeps_is_never_written_to() {
    let text = "signature ext4,filesystem,11aa,\nsignature drbd,raid,44dd,v08\nbusy x: Device or resource busy\n";
    let found = idle(text);
    assert!(refused(&found, &["11aa", "44dd"]).contains("metadata of DRBD"));
    assert_eq!(found.uses, ["the kernel or a program has it open"]);
}

#[test]
fn what_cannot_be_read_is_not_taken_for_empty() {
    let said = "wipefs: error: /dev/loop3: probing initialization failed: Permission denied";
    for kind in ["busy", "unreadable"] {
        let found = idle(&format!("{kind} {said}\n"));
        let expected =
            format!("what is on /dev/loop3 cannot be read: {said}; be root, or of the group");
        assert!(refused(&found, &[]).starts_with(&expected));
    }
    assert_eq!(refused(&idle("read-only 1\n"), &[]), "/dev/loop3 is read-only");
    assert!(refused(&idle("holder dm-0\nswap\n"), &[]).contains("(below dm-0, swap)"));
}

#[test]
fn what_is_no_device_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a 'file'");
    std::fs::write(&path, "12345").unwrap();
    let look = |path: &std::path::Path| look(&Local, path.to_str().unwrap()).unwrap();
    let real = path.canonicalize().unwrap();
    let Found::File { image, .. } = look(&path) else { panic!("{:?}", look(&path)) };
    assert_eq!((image.path.as_path(), image.bytes), (real.as_path(), 5));
    assert_eq!(image.refusal(&[]), None);
    assert!(matches!(look(dir.path()), Found::Directory { free: Some(1..), .. }));
    assert_eq!(look(&dir.path().join("none")), Found::Nothing);
    assert!(matches!(look("/dev/null".as_ref()), Found::Other { .. }));
}
