//! What is generated and checked in: schemas, manual pages, completions, docs/KEYS.md, docs/FORMAT.md.
//!
//! `cargo xtask generate` writes, `cargo xtask check` compares and names what is stale, as `.ci/run` does. Everything comes from tables and types of the program, so that nothing
//! is listed twice, and the same sources always give the same bytes. One file here for each
//! family of artifacts. [`dist`] makes a release of them.

mod build;
mod command;
pub mod count;
pub mod dist;
mod format;
mod keys;
mod manual;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories that hold generated files and nothing else.
const DIRS: &[&str] = &[schema::DIR, manual::MAN_DIR, manual::COMPLETIONS_DIR];

/// Content by path below the root of the workspace.
pub type Artifacts = BTreeMap<PathBuf, String>;

pub fn artifacts() -> Result<Artifacts> {
    let mut all = Artifacts::new();
    let schemas = schema::schemas()?;
    all.extend(schemas.iter().map(schema::artifact).collect::<Result<Vec<_>>>()?);
    all.extend([format::artifact(&schemas)]);
    all.extend(manual::artifacts()?);
    all.extend(keys::artifacts());
    Ok(all)
}

/// Writes what differs and removes what is generated no more.
pub fn generate(root: &Path, artifacts: &Artifacts) -> Result<()> {
    for path in stale(root, artifacts)? {
        let file = root.join(&path);
        match artifacts.get(&path) {
            Some(text) => {
                let dir = file.parent().expect("every artifact lies below the root");
                fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
                fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
            }
            None => fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?,
        }
        println!("{}", path.display());
    }
    Ok(())
}

/// Files that differ from what would be generated, are missing, or are generated no more.
pub fn stale(root: &Path, artifacts: &Artifacts) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for (path, text) in artifacts {
        match fs::read_to_string(root.join(path)) {
            Ok(found) if found == *text => {}
            Ok(_) => stale.push(path.clone()),
            Err(e) if e.kind() == ErrorKind::NotFound => stale.push(path.clone()),
            Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
        }
    }
    for dir in DIRS {
        let entries = match fs::read_dir(root.join(dir)) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(|| format!("list {dir}")),
        };
        for entry in entries {
            let path = Path::new(dir).join(entry?.file_name());
            if !artifacts.contains_key(&path) {
                stale.push(path);
            }
        }
    }
    stale.sort();
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_missing_and_surplus_artifacts_are_stale_until_generated() {
        let root = std::env::temp_dir().join(format!("pgio-xtask-{}", std::process::id()));
        let artifacts = Artifacts::from([
            (Path::new(schema::DIR).join("a.json"), "{}\n".to_owned()),
            (PathBuf::from("docs/KEYS.md"), "keys\n".to_owned()),
        ]);
        fs::create_dir_all(root.join(schema::DIR)).unwrap();
        fs::write(root.join(schema::DIR).join("old.json"), "").unwrap();
        fs::write(root.join("docs/KEYS.md"), "old keys\n").unwrap();
        let names = stale(&root, &artifacts).unwrap();
        let named: Vec<_> = names.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(named, ["docs/KEYS.md", "docs/schema/a.json", "docs/schema/old.json"]);
        generate(&root, &artifacts).unwrap();
        assert!(stale(&root, &artifacts).unwrap().is_empty());
        assert_eq!(fs::read_to_string(root.join("docs/KEYS.md")).unwrap(), "keys\n");
        fs::remove_dir_all(&root).unwrap();
    }
}
