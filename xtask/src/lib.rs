//! What is generated and checked in: schemas, manual pages, completions, docs/KEYS.md, docs/FORMAT.md.
//!
//! `cargo xtask generate` writes, `cargo xtask check` compares and names what is stale, as `.ci/run` does. Everything comes from tables and types of the program, so that nothing
//! is listed twice, and the same sources always give the same bytes. One file here for each
//! family of artifacts. [`dist`] makes a release of them.

mod build;
pub mod count;
pub mod dist;
pub mod features;
mod format;
mod keys;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Directories that hold generated files and nothing else.
const DIRS: &[&str] = &[format::DIR, MAN_DIR, COMPLETIONS_DIR];

/// Content by path below the root of the workspace.
pub type Artifacts = BTreeMap<PathBuf, String>;

pub fn artifacts() -> Result<Artifacts> {
    let mut all = Artifacts::new();
    let schemas = format::schemas()?;
    all.extend(schemas.iter().map(format::schema_artifact).collect::<Result<Vec<_>>>()?);
    all.extend([format::artifact(&schemas)]);
    all.extend(manual()?);
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

const MAN_DIR: &str = "docs/man";
const COMPLETIONS_DIR: &str = "completions";

fn manual() -> Result<Vec<(PathBuf, String)>> {
    let command = shown(&pgio::cli::command());
    let mut all = Vec::new();
    pages(&command, "pgio", &mut all)?;
    for (shell, name) in
        [(Shell::Bash, "pgio.bash"), (Shell::Zsh, "_pgio"), (Shell::Fish, "pgio.fish")]
    {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "pgio", &mut script);
        all.push((Path::new(COMPLETIONS_DIR).join(name), text(script)?));
    }
    Ok(all)
}

/// The command without the subcommands that are not for people, and without `help`, which would
/// list them all once more: neither generator leaves out what is hidden.
fn shown(full: &Command) -> Command {
    let mut command = Command::new("pgio").disable_help_subcommand(true).subcommand_required(true);
    if let Some(about) = full.get_about() {
        command = command.about(about.clone());
    }
    if let Some(version) = full.get_version() {
        command = command.version(version.to_owned());
    }
    if let Some(more) = full.get_after_help() {
        command = command.after_help(more.clone());
    }
    command.subcommands(full.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned())
}

/// Adds the pages of a command and of all subcommands below it, named as the pages refer to each other, such as
/// pgio-bench-load.
fn pages(command: &Command, name: &str, all: &mut Vec<(PathBuf, String)>) -> Result<()> {
    all.push(page(command, name)?);
    command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .try_for_each(|sub| pages(sub, &format!("{name}-{}", sub.get_name()), all))
}

fn page(command: &Command, name: &str) -> Result<(PathBuf, String)> {
    let mut command = command.clone().name(name.to_owned()).bin_name(name.replace('-', " "));
    // The generator's own synopsis lists options without their arguments.
    let usage = command.render_usage().to_string();
    if let Some(usage) = usage.strip_prefix("Usage: ") {
        command = command.override_usage(usage.to_owned());
    }
    let mut roff = Vec::new();
    clap_mangen::Man::new(command)
        .manual("pgio")
        .source(format!("pgio {}", env!("CARGO_PKG_VERSION")))
        .title(name)
        .render(&mut roff)?;
    Ok((Path::new(MAN_DIR).join(format!("{name}.1")), text(roff)?))
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).context("generators write UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_missing_and_surplus_artifacts_are_stale_until_generated() {
        let root = std::env::temp_dir().join(format!("pgio-xtask-{}", std::process::id()));
        let artifacts = Artifacts::from([
            (Path::new(format::DIR).join("a.json"), "{}\n".to_owned()),
            (PathBuf::from("docs/KEYS.md"), "keys\n".to_owned()),
        ]);
        fs::create_dir_all(root.join(format::DIR)).unwrap();
        fs::write(root.join(format::DIR).join("old.json"), "").unwrap();
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
