//! Checked-in generated files match what the program generates.

use std::path::Path;

#[test]
fn generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let stale = xtask::stale(&root, &xtask::artifacts().unwrap()).unwrap();
    assert!(stale.is_empty(), "run `cargo xtask generate`: {stale:?}");
}
