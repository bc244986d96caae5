//! The Debian package, made by dpkg-deb from a staged tree and the files in packaging/debian.
//!
//! The program is static, so the package depends on nothing. lintian has to find nothing, where it is installed; what it
//! would find by nature (a static program) is in packaging/debian/lintian-overrides with its reason. dpkg-deb takes
//! times from SOURCE_DATE_EPOCH, so the same tree gives the same package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Program, Release, command, files, read, write};

/// The revision of the package, not of the program: counted up if only packaging changes.
const REVISION: u32 = 1;
const DOC: &str = "usr/share/doc/pgio";

pub(super) fn make(release: &Release, program: &Program<'_>, out: &Path) -> Result<PathBuf> {
    let architecture = architecture(program.target)?;
    let stage = tempfile::tempdir().context("make a temporary directory")?;
    let tree = stage.path().join("tree");
    files::copy(&files::installed(&release.root)?, &tree.join("usr"))?;
    files::copy_file(program.binary, &tree.join("usr/bin/pgio"))?;
    files::copy_into(program.notices, &tree.join(DOC))?;
    let version = version(&release.version);
    documents(release, &version, &tree)?;
    compress(&tree)?;
    control(release, &version, architecture, &tree)?;
    directories(&tree)?;
    let package = out.join(format!("pgio_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&package);
    dpkg.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).stdout(std::process::Stdio::null());
    command::run(&mut dpkg)?;
    lint(&package)?;
    Ok(package)
}

fn architecture(target: &str) -> Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("Debian has no name here for the processor of {target}"),
    }
}

/// `2.0.0~alpha.1-1`: a tilde sorts before the end, so that the release follows its pre-releases.
fn version(version: &str) -> String {
    format!("{}-{REVISION}", version.replacen('-', "~", 1))
}

/// Copyright, both changelogs, and the overrides of lintian.
fn documents(release: &Release, version: &str, tree: &Path) -> Result<()> {
    let own = release.root.join("packaging/debian");
    let doc = tree.join(DOC);
    files::copy_file(&own.join("copyright"), &doc.join("copyright"))?;
    files::copy_file(&release.root.join("CHANGELOG.md"), &doc.join("changelog"))?;
    let overrides = tree.join("usr/share/lintian/overrides/pgio");
    files::copy_file(&own.join("lintian-overrides"), &overrides)?;
    let control = read(&release.root, "packaging/debian/control")?;
    let maintainer =
        field(&control, "Maintainer").context("packaging/debian/control: no Maintainer")?;
    let second = i64::try_from(release.epoch).context("SOURCE_DATE_EPOCH is too large")?;
    let date = jiff::Timestamp::from_second(second).context("SOURCE_DATE_EPOCH is no date")?;
    let date = date.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let changelog = format!(
        "pgio ({version}) unstable; urgency=medium\n\n  * Release {}; changelog.gz has the changes.\n\n -- {maintainer}  \
         {date}\n",
        release.version
    );
    write(&doc.join("changelog.Debian"), &changelog)
}

fn field<'a>(control: &'a str, name: &str) -> Option<&'a str> {
    let line = control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.map(str::trim)
}

/// Manual pages and changelogs are compressed, as Debian's policy asks (12.1, 12.7).
fn compress(tree: &Path) -> Result<()> {
    let mut all = list_files(&tree.join("usr/share/man/man1"))?;
    all.extend(["changelog", "changelog.Debian"].map(|name| tree.join(DOC).join(name)));
    all.sort();
    command::run(Command::new("gzip").args(["-9", "--no-name"]).args(&all))
}

/// DEBIAN/control and DEBIAN/md5sums.
fn control(release: &Release, version: &str, architecture: &str, tree: &Path) -> Result<()> {
    let mut all = list_files(&tree.join("usr"))?;
    all.sort();
    let mut bytes = 0;
    for file in &all {
        bytes += file.metadata().with_context(|| format!("look at {}", file.display()))?.len();
    }
    let names = all.iter().map(|f| f.strip_prefix(tree).expect("it is below"));
    let sums = command::captured(Command::new("md5sum").args(names).current_dir(tree))?;
    let dir = tree.join("DEBIAN");
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    let text = read(&release.root, "packaging/debian/control")?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@KIB@", &bytes.div_ceil(1024).to_string());
    for (name, text) in [("control", &text), ("md5sums", &sums)] {
        write(&dir.join(name), text)?;
        files::set_mode(&dir.join(name), 0o644)?;
    }
    Ok(())
}

/// All files, at any depth.
fn list_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            let path = entry?.path();
            let kind = if path.is_dir() { &mut dirs } else { &mut files };
            kind.push(path);
        }
    }
    Ok(files)
}

/// Whatever the umask is, and whatever mode the stage got, everyone may enter.
fn directories(tree: &Path) -> Result<()> {
    let mut dirs = vec![tree.to_owned()];
    while let Some(dir) = dirs.pop() {
        files::set_mode(&dir, 0o755)?;
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            dirs.extend(Some(entry?.path()).filter(|path| path.is_dir()));
        }
    }
    for file in list_files(&tree.join(DOC))? {
        let is_script = fs::read(&file).is_ok_and(|text| text.starts_with(b"#!"));
        files::set_mode(&file, if is_script { 0o755 } else { 0o644 })?;
    }
    Ok(())
}

fn lint(package: &Path) -> Result<()> {
    if command::find("lintian").is_none() {
        eprintln!("{} is not checked: lintian is not installed", package.display());
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--display-info", "--tag-display-limit", "0"]);
    // Root is refused otherwise in some settings; lintian only reads here.
    command::run(lintian.arg("--allow-root").arg(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_follows_its_pre_releases() {
        assert_eq!(version("2.0.0-alpha.1"), "2.0.0~alpha.1-1");
        assert_eq!(version("2.0.0"), "2.0.0-1");
    }

    #[test]
    fn the_processor_has_debians_name() {
        assert_eq!(architecture("x86_64-unknown-linux-musl").unwrap(), "amd64");
        assert_eq!(architecture("aarch64-unknown-linux-musl").unwrap(), "arm64");
        assert!(architecture("s390x-unknown-linux-gnu").is_err());
    }

    /// A package of the real files around a small stand-in for the program.
    #[test]
    fn the_same_tree_gives_the_same_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let release = Release {
            root: root.to_owned(),
            version: "2.0.0-alpha.1".to_owned(),
            epoch: 1_700_000_000,
        };
        let binary = Path::new("/bin/true");
        let made = || {
            let dir = tempfile::tempdir().unwrap();
            let stage = dir.path().join("tree");
            files::copy(&files::installed(root).unwrap(), &stage.join("usr")).unwrap();
            files::copy_file(binary, &stage.join("usr/bin/pgio")).unwrap();
            documents(&release, "2.0.0~alpha.1-1", &stage).unwrap();
            compress(&stage).unwrap();
            control(&release, "2.0.0~alpha.1-1", "amd64", &stage).unwrap();
            directories(&stage).unwrap();
            let package = dir.path().join("pgio.deb");
            let mut dpkg = Command::new("dpkg-deb");
            // Without compression: xz takes longer than all the rest.
            dpkg.args(["--root-owner-group", "-Znone", "--build"]).arg(&stage).arg(&package);
            dpkg.env("SOURCE_DATE_EPOCH", "1700000000").stdout(std::process::Stdio::null());
            command::run(&mut dpkg).unwrap();
            let list =
                command::output("dpkg-deb", &["--contents", package.to_str().unwrap()]).unwrap();
            (fs::read(package).unwrap(), list)
        };
        let (first, list) = made();
        assert_eq!(first, made().0);
        for line in
            ["./usr/bin/pgio", "./usr/share/man/man1/pgio.1.gz", "./usr/share/doc/pgio/copyright"]
        {
            assert!(list.contains(line), "{line} in {list}");
        }
        assert!(list.lines().all(|line| line.contains("root/root")), "{list}");
    }
}
