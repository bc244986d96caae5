//! What is installed where: one list for the archive and the Debian package.
//!
//! A directory stands for the files in it. What a package must name by itself (copyright, changelog) is in `debian`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A file or the files of a directory in the checkout, and their directories in the archive and below `/usr`.
struct Rule {
    from: &'static str,
    archive: &'static str,
    usr: &'static str,
}

const RULES: [Rule; 19] = [
    Rule { from: "LICENSE", archive: "", usr: "" },
    Rule { from: "README.md", archive: "", usr: "share/doc/pgio" },
    Rule { from: "CHANGELOG.md", archive: "", usr: "" },
    Rule { from: "ARCHITECTURE.md", archive: "", usr: "share/doc/pgio" },
    Rule { from: "CONTRIBUTING.md", archive: "", usr: "share/doc/pgio" },
    Rule { from: "SECURITY.md", archive: "", usr: "share/doc/pgio" },
    Rule {
        from: "docs/decisions",
        archive: "docs/decisions",
        usr: "share/doc/pgio/docs/decisions",
    },
    Rule { from: "docs/evidence", archive: "docs/evidence", usr: "share/doc/pgio/docs/evidence" },
    Rule { from: "docs", archive: "docs", usr: "share/doc/pgio/docs" },
    Rule { from: "docs/man", archive: "docs/man", usr: "share/man/man1" },
    Rule { from: "examples", archive: "examples", usr: "share/doc/pgio/examples" },
    Rule { from: "examples/ci", archive: "examples/ci", usr: "share/doc/pgio/examples/ci" },
    Rule {
        from: "examples/published",
        archive: PUBLISHED,
        usr: "share/doc/pgio/examples/published",
    },
    Rule { from: "examples/results", archive: RESULTS, usr: "share/doc/pgio/examples/results" },
    Rule { from: "compat", archive: "compat", usr: "share/pgio/compat" },
    Rule { from: "completions/pgio.bash", archive: "completions", usr: BASH },
    Rule { from: "completions/_pgio", archive: "completions", usr: "share/zsh/vendor-completions" },
    Rule { from: "completions/pgio.fish", archive: "completions", usr: FISH },
    Rule { from: "docs/schema", archive: "docs/schema", usr: "share/doc/pgio/docs/schema" },
];
const PUBLISHED: &str = "examples/published";
const RESULTS: &str = "examples/results";
const BASH: &str = "share/bash-completion/completions";
const FISH: &str = "share/fish/vendor_completions.d";

/// A file of the checkout and its place in the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
}

/// For the archive.
pub(super) fn archived(root: &Path) -> Result<Vec<Installed>> {
    all(root, |rule| Some(rule.archive))
}

/// For a package, below `/usr`.
pub(super) fn installed(root: &Path) -> Result<Vec<Installed>> {
    let mut files = all(root, |rule| Some(rule.usr).filter(|place| !place.is_empty()))?;
    for file in &mut files {
        // Bash looks a completion up by the command's name.
        if file.to == Path::new(BASH).join("pgio.bash") {
            file.to = Path::new(BASH).join("pgio");
        }
    }
    Ok(files)
}

fn all(root: &Path, place: impl Fn(&Rule) -> Option<&'static str>) -> Result<Vec<Installed>> {
    let mut files = Vec::new();
    for rule in &RULES {
        let Some(place) = place(rule) else { continue };
        for from in expanded(&root.join(rule.from))? {
            let name = from.file_name().expect("files have names");
            files.push(Installed { to: Path::new(place).join(name), from });
        }
    }
    Ok(files)
}

/// The file, or the files of the directory in order of their names.
fn expanded(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("{} has no files to release", path.display());
    }
    files.sort();
    Ok(files)
}

/// Copies the files below a directory, with the modes that packages have.
pub(super) fn copy(files: &[Installed], below: &Path) -> Result<()> {
    for file in files {
        copy_file(&file.from, &below.join(&file.to))?;
    }
    Ok(())
}

/// Copies one file into a directory, under its own name.
pub(super) fn copy_into(from: &Path, dir: &Path) -> Result<()> {
    copy_file(from, &dir.join(from.file_name().expect("files have names")))
}

/// Copies one file; scripts and programs can be executed.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let dir = to.parent().expect("a file lies in a directory");
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    let text = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    let is_program = text.starts_with(b"#!") || text.starts_with(b"\x7fELF");
    set_mode(to, if is_program { 0o755 } else { 0o644 })
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    fn places(files: &[Installed]) -> Vec<&str> {
        files.iter().map(|f| f.to.to_str().unwrap()).collect()
    }

    #[test]
    fn everything_that_users_need_is_installed_once() {
        let installed = installed(root()).unwrap();
        let places = places(&installed);
        for place in [
            "share/man/man1/pgio.1",
            "share/man/man1/pgio-compare.1",
            "share/bash-completion/completions/pgio",
            "share/zsh/vendor-completions/_pgio",
            "share/fish/vendor_completions.d/pgio.fish",
            "share/doc/pgio/examples/demo.toml",
            "share/doc/pgio/docs/GUIDE.md",
            "share/pgio/compat/runit.sh",
        ] {
            assert!(places.contains(&place), "{place}");
        }
        let mut once = places.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), places.len());
    }

    #[test]
    fn the_archive_has_the_license_and_each_manual_page() {
        let archived = archived(root()).unwrap();
        let places = places(&archived);
        assert!(
            places.contains(&"LICENSE") && places.contains(&"docs/schema/pgio.trial.1.json"),
            "{places:?}"
        );
        assert!(places.contains(&"examples/published/trials.jsonl"), "the tutorial reports on it");
        let pages = places.iter().filter(|p| p.starts_with("docs/man/")).count();
        assert_eq!(pages, fs::read_dir(root().join("docs/man")).unwrap().count());
    }
}
