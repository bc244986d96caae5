//! The license texts of everything that is linked into the program. Most licenses ask that copies contain them.
//!
//! A crate's texts are the files in its package whose names say so. Equal texts are printed once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Release, command};

const FILE: &str = "THIRD-PARTY-LICENSES.txt";
const NAMES: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];
/// Also of the standard library, which has no package.
const HEAD: &str = "\
pgio contains the crates below, each under the license named with it, the standard library of Rust (Copyright (c) The
Rust Project Contributors, MIT OR Apache-2.0), musl (Copyright (c) 2005-2020 Rich Felker, et al., MIT), and in its pages
uPlot (Copyright (c) 2022 Leon Sorokin, MIT). Their texts follow.
";

pub(super) fn make(release: &Release, target: &str, out: &Path) -> Result<PathBuf> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", target];
    let mut cargo = std::process::Command::new("cargo");
    let text = command::captured(cargo.args(arguments).current_dir(&release.root))?;
    let metadata: Value =
        serde_json::from_str(&text).context("read what cargo metadata printed")?;
    let mut texts = String::from(HEAD);
    let crates = linked(&metadata)?;
    for package in &crates {
        let _ = writeln!(texts, "  {} {} ({})", package.name, package.version, package.license);
    }
    for (body, names) in grouped(&crates)? {
        let _ = write!(texts, "\n{}\n{}\n\n{body}\n", "-".repeat(100), names.join(", "));
    }
    let path = out.join(FILE);
    super::write(&path, &texts)?;
    Ok(path)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    license: String,
    directory: PathBuf,
}

/// The crates of others that the program is linked with, in order of their names.
fn linked(metadata: &Value) -> Result<Vec<Package>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let packages = list(&metadata["packages"]);
    let root = packages.iter().find(|p| p["name"] == "pgio").context("no package pgio")?;
    let (mut found, mut next) = (BTreeSet::new(), vec![text(&root["id"])]);
    while let Some(id) = next.pop() {
        // Kinds other than null are build and development.
        let is_linked = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|k| k["kind"].is_null());
        let deps = nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default();
        if found.insert(id) {
            next.extend(deps.iter().filter(is_linked).map(|dep| text(&dep["pkg"])));
        }
    }
    let others =
        packages.iter().filter(|p| !p["source"].is_null() && found.contains(&text(&p["id"])));
    let mut all: Vec<Package> = others
        .map(|p| Package {
            name: text(&p["name"]),
            version: text(&p["version"]),
            license: text(&p["license"]),
            directory: Path::new(&text(&p["manifest_path"]))
                .parent()
                .unwrap_or(Path::new(""))
                .into(),
        })
        .collect();
    all.sort();
    Ok(all)
}

/// Each text once, with the crates that have it.
fn grouped(crates: &[Package]) -> Result<Vec<(String, Vec<String>)>> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for package in crates {
        for file in files(&package.directory)? {
            let body =
                fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let body = body.replace("\r\n", "\n").trim().to_owned();
            match all.iter_mut().find(|(known, _)| *known == body) {
                Some((_, names)) if names.contains(&package.name) => {}
                Some((_, names)) => names.push(package.name.clone()),
                None => all.push((body, vec![package.name.clone()])),
            }
        }
    }
    Ok(all)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|known| name.starts_with(known)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dir: &Path) -> Value {
        let manifest = dir.join(name).join("Cargo.toml");
        json!({ "name": name, "version": "1.0.0", "id": name, "license": "MIT", "source": "registry",
                "manifest_path": manifest })
    }

    #[test]
    fn notices_contain_each_license_text_of_linked_crates_once() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file) in [("a", "LICENSE"), ("b", "LICENSE-MIT"), ("tool", "COPYING")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join(file), "MIT\r\nas is\n").unwrap();
        }
        fs::write(dir.path().join("b/NOTICE"), "by b").unwrap();
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let node = |id: &str, deps: Vec<Value>| json!({ "id": id, "deps": deps });
        let mut own = package("pgio", dir.path());
        own["source"] = Value::Null;
        let metadata = json!({
            "packages": [own, package("b", dir.path()), package("a", dir.path()), package("tool", dir.path())],
            "resolve": { "nodes": [
                node("pgio", vec![dep("a", Value::Null), dep("tool", json!("build"))]),
                node("a", vec![dep("b", Value::Null)]),
                node("b", vec![dep("a", Value::Null)]),
            ] },
        });
        let crates = linked(&metadata).unwrap();
        assert_eq!(crates.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let both = ("MIT\nas is".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(grouped(&crates).unwrap(), [both, ("by b".to_owned(), vec!["b".to_owned()])]);
    }
}
