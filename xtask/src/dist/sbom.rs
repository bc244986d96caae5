//! The list of parts (SBOM) in SPDX, from cargo-sbom; times and names made the same for the same sources.
//!
//! cargo-sbom reads Cargo.lock through `cargo metadata`. It writes the present time and a random name of the document,
//! which are replaced here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Release, command};

pub(super) fn make(release: &Release, out: &Path) -> Result<PathBuf> {
    let mut sbom = Command::new("cargo-sbom");
    sbom.args([
        "--cargo-package",
        "pgio",
        "--output-format",
        "spdx_json_2_3",
        "--project-directory",
    ]);
    let text = command::captured(sbom.arg(&release.root).current_dir(&release.root))?;
    let mut document: Value = serde_json::from_str(&text).context("cargo-sbom printed no JSON")?;
    settle(&mut document, release)?;
    let path = out.join(format!("pgio-{}.spdx.json", release.version));
    let text = serde_json::to_string_pretty(&document).context("write the SBOM as JSON")?;
    super::write(&path, &format!("{text}\n"))?;
    Ok(path)
}

/// Replaces what differs from one call to the next: the time, the document's random name, the order of the lists.
fn settle(document: &mut Value, release: &Release) -> Result<()> {
    let second = i64::try_from(release.epoch).context("SOURCE_DATE_EPOCH is too large")?;
    let at = jiff::Timestamp::from_second(second).context("SOURCE_DATE_EPOCH is no date")?;
    for (list, key) in [("packages", "SPDXID"), ("files", "SPDXID")] {
        if let Some(entries) = document[list].as_array_mut() {
            entries.sort_by_key(|entry| entry[key].to_string());
        }
    }
    if let Some(relations) = document["relationships"].as_array_mut() {
        relations.sort_by_key(Value::to_string);
    }
    document["creationInfo"]["created"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let parts = document["packages"].to_string();
    let digest = Sha256::digest(parts.as_bytes());
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    document["documentNamespace"] = json!(format!("urn:pgio:sbom:{}:{name}", release.version));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lists_of_the_same_parts_are_equal() {
        let release =
            Release { root: PathBuf::new(), version: "2.0.0".to_owned(), epoch: 1_700_000_000 };
        let settled = |ids: [&str; 2], time: &str| {
            let packages = ids.map(|id| json!({ "SPDXID": id }));
            let mut document = json!({
                "creationInfo": { "created": time, "creators": ["Tool: cargo-sbom"] },
                "documentNamespace": format!("https://spdx.org/{time}"),
                "packages": packages,
            });
            settle(&mut document, &release).unwrap();
            document
        };
        let first = settled(["a", "b"], "2026-01-01T00:00:00Z");
        assert_eq!(first, settled(["b", "a"], "2027-01-01T00:00:00Z"));
        assert_ne!(first, settled(["a", "c"], "2026-01-01T00:00:00Z"));
        assert_eq!(first["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        assert_eq!(first["creationInfo"]["creators"], json!(["Tool: cargo-sbom"]));
    }
}
