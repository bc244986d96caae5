//! Checked-in generated files match what the program generates.

use std::path::Path;
use std::process::Command;

#[test]
fn generated_files_are_up_to_date() {
    // The target directory of this very build: its dependencies are compiled already, and its
    // lock is free, since cargo gives it back before it runs tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked", "--package", "xtask", "--target-dir"]).arg(target);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo
        .args(["--", "check"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
