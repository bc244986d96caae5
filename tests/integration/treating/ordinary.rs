//! For an ordinary user, each treatment names the right it needs, before anything is started or changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::in_namespace_or_rerun;
use crate::disk::LoopDevice;
use crate::examples;
use pgio_tests::fixture::{INSTALLED, pgio_exe};
use pgio_tests::workdir::Workdir;

/// pgio as `nobody`, in a directory of its own that `nobody` may write to.
fn as_nobody(dir: &Workdir, arguments: &[&str]) -> (Option<i32>, String) {
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let result = Command::new("runuser")
        .args(["-u", "nobody", "--"])
        .arg(pgio_exe())
        .args(arguments)
        .current_dir(dir.path())
        .env("PGIO_STATE_DIR", dir.path().join("state"))
        .env("HOME", dir.path())
        // Whatever starts a server fails otherwise.
        .env("PGIO_BINDIR", "/nonexistent")
        .output()
        .unwrap();
    (result.status.code(), String::from_utf8_lossy(&result.stderr).into_owned())
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let dir = Workdir::new();
    dir.write("e.toml", text);
    let (code, result) = as_nobody(&dir, &["compare", "e.toml", "--out", "out"]);
    assert_eq!(code, Some(4), "{result}");
    for text in expected {
        assert!(result.contains(text), "no `{text}` in {result}");
    }
    assert!(!dir.out().exists() && dir.journals().is_empty());
}

fn experiment(target: &str, treatment: &str) -> String {
    format!(
        "[experiment]\nblocks = 1\nduration = \"1s\"\n[target]\nprivate = true\npg = {INSTALLED}\n{target}\n\
         [workload]\nkind = \"commit\"\n[[condition]]\nname = \"a\"\n{treatment}\n"
    )
}

const PGIO: &str = "sudo rule `nobody ALL=(root) NOPASSWD: /";

#[test]
fn each_treatment_names_the_right_it_needs() {
    if !in_namespace_or_rerun("ordinary::each_treatment_names_the_right_it_needs", true) {
        return;
    }
    for (treatment, expected) in [
        (
            "throttle = { device = \"/dev/loop0\", write_iops = 500 }",
            &[
                "write_iops_device on host local is not writable by nobody",
                PGIO,
                "CAP_DAC_OVERRIDE",
            ][..],
        ),
        (
            "filesystem = { options = \"sync\" }",
            &[
                "root on host local is required",
                "`nobody ALL=(root) NOPASSWD: /",
                "/mount, /",
                "/umount`",
            ],
        ),
        (
            "filesystem = { device = \"/dev/loop0\", type = \"ext4\", allow_format = true }",
            &["root on host local is required", "NOPASSWD: /", "/wipefs, /", "/mkfs.ext4`"],
        ),
        ("ballast = \"1G\"", &["nr_hugepages on host local is not writable by nobody", PGIO]),
        (
            "ballast = { leave = \"1G\", way = \"cgroup\" }",
            &["drop_caches on host local is not writable by nobody", PGIO],
        ),
        ("cache = \"cold\"", &["drop_caches on host local is not writable by nobody", PGIO]),
        (
            "link = { interface = \"lo\", delay = \"1ms\" }",
            &["no netem on host local", PGIO, "CAP_NET_ADMIN"],
        ),
    ] {
        refused(&experiment("", treatment), expected);
    }
}

#[test]
fn the_directory_of_a_private_cluster_must_have_a_safe_owner() {
    if !in_namespace_or_rerun(
        "ordinary::the_directory_of_a_private_cluster_must_have_a_safe_owner",
        false,
    ) {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let mode = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
    let text = experiment(&format!("directory = {:?}", place.path()), "");
    mode(0o755);
    let path = place.path().display();
    refused(
        &text,
        &[&format!("nobody cannot write to {path}"), &format!("`sudo chown nobody {path}`")],
    );
    mode(0o700);
    refused(&text, &["cannot enter", &path.to_string()]);
    refused(&experiment("directory = \"/nonexistent\"", ""), &["/nonexistent is not a directory"]);
}

#[test]
fn examples_that_need_root_say_so() {
    if !in_namespace_or_rerun("ordinary::examples_that_need_root_say_so", true) {
        return;
    }
    for (example, expected) in [
        ("io-throttle.toml", "is not writable by nobody"),
        ("ext4-options.toml", "root on host local is required"),
        ("page-cache.toml", "is not writable by nobody"),
    ] {
        let text = examples::example(example);
        refused(&text, &[expected, "ALL=(root) NOPASSWD: "]);
    }
    let dir = Workdir::new();
    let (code, result) = as_nobody(&dir, &["ballast", "1G"]);
    assert!(code == Some(4) && result.contains(PGIO), "{code:?}: {result}");
    let device = LoopDevice::new(16 << 20);
    let (code, result) = as_nobody(&dir, &["device", &device.path, "--destroy"]);
    assert!(
        code == Some(4) && result.contains("run as root, or as a member of the group"),
        "{code:?}: {result}"
    );
}
