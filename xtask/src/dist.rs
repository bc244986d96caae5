//! `cargo xtask dist`: what users install, made from the commit of a checkout.
//!
//! The parts are made by programs that others keep: the license texts by cargo-about (packaging/about.toml), the Debian
//! package by cargo-deb (its table is in crates/pgio/Cargo.toml), the archive by git, the list of all parts (SBOM) by
//! cargo-sbom. What is ours is their order, and that the same sources and compiler always give the same bytes: every file
//! gets the commit's time. [`build`](super::build) compiles the program; docs/RELEASING.md has the steps around this.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::build;

/// The largest program that is released.
pub const MAX_BYTES: u64 = 16_000_000;
const DEFAULT_TARGET: &str = "x86_64-unknown-linux-musl";
const LICENSES: &str = "THIRD-PARTY-LICENSES.txt";
/// The revision of the Debian package, not of the program: counted up if only packaging changes.
const DEBIAN_REVISION: &str = "1";
/// What the archive has of the checkout, besides the program and the license texts.
const ARCHIVED: [&str; 10] = [
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "examples",
    "compat",
    "completions",
];

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Target to build for; repeat for several [default: x86_64-unknown-linux-musl]
    #[arg(long = "target", value_name = "TRIPLE")]
    targets: Vec<String>,
    /// Compiler made by packaging/musl-toolchain, where rustup has no standard library for the target
    #[arg(long, value_name = "DIR")]
    toolchain: Option<PathBuf>,
    /// Checkout to release, if not the one that this program was compiled in; the results are in its target/dist
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
    /// Stop after the binaries
    #[arg(long)]
    binary_only: bool,
}

/// What all parts of a release share.
#[derive(Debug, Clone)]
pub struct Release {
    /// The root of the workspace.
    pub root: PathBuf,
    /// As in Cargo.toml.
    pub version: String,
    /// The commit's time in seconds since 1970, which every file gets.
    pub epoch: i64,
    /// Where the results are.
    pub out: PathBuf,
    /// The build has a directory of its own, so that flags of the release do not rebuild everything else.
    pub build_dir: PathBuf,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let checkout = match &options.checkout {
        Some(dir) => dir.canonicalize().with_context(|| format!("open {}", dir.display()))?,
        None => root.to_owned(),
    };
    let release = release(&checkout)?;
    let stale = crate::stale(&release.root, &crate::artifacts()?)?;
    if let Some(path) = stale.first() {
        bail!("{} is stale; run `cargo xtask generate`", path.display());
    }
    // Before the build, which takes minutes.
    let changelog =
        fs::read_to_string(release.root.join("CHANGELOG.md")).context("read CHANGELOG.md")?;
    let notes = release_notes(&changelog, &release.version)?;
    build::require(&["cargo", "git", "ld.lld", "readelf"])?;
    if !options.binary_only {
        build::require(&["cargo-about", "cargo-deb", "cargo-sbom", "sha256sum"])?;
        // What comes after the build downloads nothing.
        let manifest = release.root.join("Cargo.toml");
        let metadata = ["metadata", "--frozen", "--format-version=1", "--manifest-path"];
        build::output("cargo", &[&metadata[..], &[text(&manifest)?]].concat())
            .context("run `cargo fetch --locked` first")?;
        let changed = build::output("git", &["-C", text(&release.root)?, "status", "--porcelain"])?;
        if !changed.is_empty() {
            bail!("a release is made of a commit, and these differ from it:\n{changed}");
        }
    }
    let default = [DEFAULT_TARGET.to_owned()];
    let targets = if options.targets.is_empty() { &default[..] } else { &options.targets };
    fs::create_dir_all(&release.out).with_context(|| format!("make {}", release.out.display()))?;
    let mut made = Vec::new();
    for target in targets {
        let built = build::build(&release, target, options.toolchain.as_deref())?;
        let size = check_program(&built)?;
        let program = release.out.join(format!("pgio-{target}"));
        fs::copy(&built, &program).with_context(|| format!("copy {}", built.display()))?;
        println!("{}: static, {size} bytes", program.display());
        made.push(program);
        if !options.binary_only {
            make_licenses(&release, target)?;
            made.push(make_archive(&release, target, &built)?);
            made.push(make_debian_package(&release, target)?);
        }
    }
    if options.binary_only {
        return Ok(());
    }
    made.extend([release.out.join(LICENSES), make_sbom(&release)?]);
    made.push(release.out.join("RELEASE-NOTES.md"));
    write(&release.out.join("RELEASE-NOTES.md"), &notes)?;
    made.sort();
    let mut sums = Command::new("sha256sum");
    sums.args(made.iter().filter_map(|path| path.file_name())).current_dir(&release.out);
    write(&release.out.join("SHA256SUMS"), &build::captured(&mut sums)?)?;
    made.iter().for_each(|path| println!("{}", path.display()));
    Ok(())
}

/// The release that the checkout is at.
fn release(root: &Path) -> Result<Release> {
    let committed = build::output("git", &["-C", text(root)?, "log", "-1", "--format=%ct"])?;
    Ok(Release {
        root: root.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: committed.trim().parse().context("git printed no seconds")?,
        out: root.join("target/dist"),
        build_dir: root.join("target/dist-build"),
    })
}

/// The size of a program that needs no other file, is stripped, and is small enough.
fn check_program(path: &Path) -> Result<u64> {
    let size = path.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--program-headers", "--sections"]).arg(path).env("LC_ALL", "C");
    let headers = build::captured(&mut readelf)?;
    match problem(&headers, size) {
        Some(problem) => bail!("{} {problem}", path.display()),
        None => Ok(size),
    }
}

fn problem(headers: &str, size: u64) -> Option<String> {
    if !headers.contains("LOAD ") {
        return Some("is not a program".to_owned());
    }
    if headers.contains("INTERP ") {
        return Some("is linked dynamically; release targets are static (musl)".to_owned());
    }
    if headers.contains(" .symtab ") {
        return Some("has symbols; the release profile strips them".to_owned());
    }
    (size > MAX_BYTES)
        .then(|| format!("has {size} bytes, more than {MAX_BYTES}; `cargo bloat` finds what grew"))
}

/// The license texts of what is linked into the program; most licenses ask that copies contain them.
fn make_licenses(release: &Release, target: &str) -> Result<()> {
    let packaging = release.root.join("packaging");
    let mut about = Command::new("cargo-about");
    about.args(["about", "generate", "--frozen", "--fail", "--target", target, "--config"]);
    about.arg(packaging.join("about.toml")).arg("--output-file").arg(release.out.join(LICENSES));
    about.arg("--manifest-path").arg(release.root.join("crates/pgio/Cargo.toml"));
    build::run(about.arg(packaging.join("licenses.hbs")))
}

/// `pgio-VERSION-TARGET.tar.gz`, with one directory of that name.
fn make_archive(release: &Release, target: &str, program: &Path) -> Result<PathBuf> {
    let name = format!("pgio-{}-{target}", release.version);
    let archive = release.out.join(format!("{name}.tar.gz"));
    let mut git = Command::new("git");
    git.args(["-c", "tar.umask=0022", "archive", "-9", "--format=tar.gz"]);
    git.arg(format!("--prefix={name}/"));
    for file in [program, &release.out.join(LICENSES)] {
        git.arg(format!("--add-file={}", text(file)?));
    }
    git.arg("--output").arg(&archive).arg("HEAD").args(ARCHIVED);
    build::run(git.current_dir(&release.root))?;
    Ok(archive)
}

/// `pgio_DEBVERSION_ARCHITECTURE.deb`. The program is static, so the package depends on nothing. lintian has to find
/// nothing, where it is installed; what it would find by nature is in packaging/debian/lintian-overrides with its reason.
fn make_debian_package(release: &Release, target: &str) -> Result<PathBuf> {
    let version = debian_version(&release.version);
    let package = release.out.join(format!("pgio_{version}_{}.deb", debian_architecture(target)?));
    write(&release.build_dir.join("changelog.Debian"), &debian_changelog(release, &version)?)?;
    fs::copy(release.out.join(LICENSES), release.build_dir.join(LICENSES))
        .context("copy the license texts")?;
    let mut deb = Command::new("cargo-deb");
    deb.args(["--package", "pgio", "--no-build", "--no-strip", "--quiet", "--locked", "--offline"]);
    deb.args(["--target", target, "--deb-version", &version, "--output"]).arg(&package);
    deb.env("CARGO_TARGET_DIR", &release.build_dir);
    deb.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    build::run(deb.current_dir(&release.root))?;
    if build::find("lintian").is_some() {
        let mut lintian = Command::new("lintian");
        lintian.args(["--fail-on", "error,warning", "--display-info", "--tag-display-limit", "0"]);
        // Root is refused otherwise in some settings; lintian only reads here.
        build::run(lintian.arg("--allow-root").arg(&package))?;
    } else {
        eprintln!("{} is not checked: lintian is not installed", package.display());
    }
    Ok(package)
}

fn debian_architecture(target: &str) -> Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("Debian has no name here for the processor of {target}"),
    }
}

/// `2.0.0~alpha.1-1`: a tilde sorts before the end, so that the release follows its pre-releases.
fn debian_version(version: &str) -> String {
    format!("{}-{DEBIAN_REVISION}", version.replacen('-', "~", 1))
}

fn debian_changelog(release: &Release, version: &str) -> Result<String> {
    let manifest = fs::read_to_string(release.root.join("crates/pgio/Cargo.toml"))
        .context("read crates/pgio/Cargo.toml")?;
    let maintainer = manifest.lines().find_map(|line| line.strip_prefix("maintainer = "));
    let maintainer =
        maintainer.context("crates/pgio/Cargo.toml names no maintainer")?.trim_matches('"');
    let date = time(release)?.strftime("%a, %d %b %Y %H:%M:%S +0000");
    Ok(format!(
        "pgio ({version}) unstable; urgency=medium\n\n  * Release {}; changelog.gz has the changes.\n\n -- {maintainer}  \
         {date}\n",
        release.version
    ))
}

/// The list of all crates with version and license, in SPDX.
fn make_sbom(release: &Release) -> Result<PathBuf> {
    let mut sbom = Command::new("cargo-sbom");
    sbom.args(["--cargo-package", "pgio", "--output-format", "spdx_json_2_3"]);
    sbom.arg("--project-directory").arg(&release.root);
    let printed = build::captured(sbom.current_dir(&release.root))?;
    let mut document: Value =
        serde_json::from_str(&printed).context("cargo-sbom printed no JSON")?;
    settle_sbom(&mut document, release)?;
    let path = release.out.join(format!("pgio-{}.spdx.json", release.version));
    write(&path, &format!("{document:#}\n"))?;
    Ok(path)
}

/// Replaces what differs from one call of cargo-sbom to the next: the time, the document's random name, the order of
/// the lists.
fn settle_sbom(document: &mut Value, release: &Release) -> Result<()> {
    for list in ["packages", "files", "relationships"] {
        if let Some(entries) = document[list].as_array_mut() {
            entries.sort_by_key(|entry| entry["SPDXID"].to_string() + &entry.to_string());
        }
    }
    let created = time(release)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    document["documentNamespace"] = json!(format!("urn:pgio:sbom:{}:{created}", release.version));
    document["creationInfo"]["created"] = json!(created);
    Ok(())
}

fn time(release: &Release) -> Result<jiff::Timestamp> {
    jiff::Timestamp::from_second(release.epoch).context("the commit has no date")
}

/// The text under the heading that names the version, without the heading.
///
/// A heading is `## [Unreleased]: 2.0.0-alpha.1` or `## [2.0.0] - 2027-01-31`.
fn release_notes(changelog: &str, version: &str) -> Result<String> {
    let names_it = |line: &str| {
        let words = line.split([' ', '[', ']', ':']);
        line.starts_with("## ") && words.into_iter().any(|word| word == version)
    };
    let mut lines = changelog.lines().skip_while(|line| !names_it(line));
    if lines.next().is_none() {
        bail!("CHANGELOG.md has no heading `## [{version}]`; write what users see of this release");
    }
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = section.join("\n");
    if text.trim().is_empty() {
        bail!("CHANGELOG.md has nothing under {version}");
    }
    // Headings one level higher: the notes stand alone.
    let text = text.trim().replace("\n### ", "\n## ");
    let text = text.strip_prefix("### ").map_or(text.clone(), |rest| format!("## {rest}"));
    Ok(format!("# pgio {version}\n\n{text}\n"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_small_static_stripped_program_is_released() {
        let load = "  LOAD           0x000000 0x0000000000000000 0x0000000000000000\n";
        assert_eq!(problem(load, MAX_BYTES), None);
        for (headers, size, expected) in [
            (format!("{load}  INTERP         0x000318\n"), 1, "linked dynamically"),
            (format!("{load}  [28] .symtab           SYMTAB\n"), 1, "has symbols"),
            (load.to_owned(), MAX_BYTES + 1, "more than 16000000"),
            (String::new(), 1, "is not a program"),
        ] {
            let found = problem(&headers, size).unwrap();
            assert!(found.contains(expected), "{found}");
        }
        let own = std::env::current_exe().unwrap();
        assert!(check_program(&own).unwrap_err().to_string().contains("linked dynamically"));
    }

    #[test]
    fn debian_has_its_own_names_for_processor_and_version() {
        assert_eq!(debian_version("2.0.0-alpha.1"), "2.0.0~alpha.1-1");
        assert_eq!(debian_version("2.0.0"), "2.0.0-1");
        assert_eq!(debian_architecture("x86_64-unknown-linux-musl").unwrap(), "amd64");
        assert_eq!(debian_architecture("aarch64-unknown-linux-musl").unwrap(), "arm64");
        assert!(debian_architecture("s390x-unknown-linux-gnu").is_err());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let release = Release { epoch: 1_700_000_000, ..release(root).unwrap() };
        let changelog = debian_changelog(&release, "2.0.0-1").unwrap();
        assert!(changelog.starts_with("pgio (2.0.0-1) unstable; "), "{changelog}");
        let end =
            " -- pgio maintainers <maintainers@pgio.example>  Tue, 14 Nov 2023 22:13:20 +0000\n";
        assert!(changelog.ends_with(end), "{changelog}");
    }

    #[test]
    fn two_lists_of_the_same_parts_are_equal() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let release = Release { epoch: 1_700_000_000, ..release(root).unwrap() };
        let settled = |ids: [&str; 2], time: &str| {
            let mut document = json!({
                "creationInfo": { "created": time, "creators": ["Tool: cargo-sbom"] },
                "documentNamespace": format!("https://spdx.org/{time}"),
                "packages": ids.map(|id| json!({ "SPDXID": id })),
                "relationships": ids.map(|id| json!({ "relatedSpdxElement": id })),
            });
            settle_sbom(&mut document, &release).unwrap();
            document
        };
        let first = settled(["a", "b"], "2026-01-01T00:00:00Z");
        assert_eq!(first, settled(["b", "a"], "2027-01-01T00:00:00Z"));
        assert_ne!(first, settled(["a", "c"], "2026-01-01T00:00:00Z"));
        assert_eq!(first["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        assert_eq!(first["creationInfo"]["creators"], json!(["Tool: cargo-sbom"]));
    }

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]: 2.0.0\n\n### Added\n\n- new\n\n### Fixed\n\n- old\n\n\
                             ## [1.9.0] - 2026-01-01\n\n- older\n\n## [1.8.0]\n";

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        let notes = release_notes(CHANGELOG, "2.0.0").unwrap();
        assert_eq!(notes, "# pgio 2.0.0\n\n## Added\n\n- new\n\n## Fixed\n\n- old\n");
        assert_eq!(release_notes(CHANGELOG, "1.9.0").unwrap(), "# pgio 1.9.0\n\n- older\n");
        for (version, problem) in [("2.0", "no heading `## [2.0]`"), ("1.8.0", "nothing under")] {
            let error = release_notes(CHANGELOG, version).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        let own = include_str!("../../CHANGELOG.md");
        assert!(release_notes(own, env!("CARGO_PKG_VERSION")).unwrap().contains("pgio demo"));
    }
}
