//! The archive: `pgio-VERSION-TARGET.tar.gz`, with one directory of that name.
//!
//! Options of GNU tar and gzip fix what would differ from machine to machine: order, owners, times and names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Program, Release, files};

pub(super) fn make(release: &Release, program: &Program<'_>, out: &Path) -> Result<PathBuf> {
    let name = format!("pgio-{}-{}", release.version, program.target);
    let stage = tempfile::tempdir().context("make a temporary directory")?;
    let tree = stage.path().join(&name);
    files::copy(&files::archived(&release.root)?, &tree)?;
    files::copy_file(program.binary, &tree.join("pgio"))?;
    files::copy_into(program.notices, &tree)?;
    let archive = out.join(format!("{name}.tar.gz"));
    pack(stage.path(), &name, release.epoch, &archive)?;
    Ok(archive)
}

/// Packs one directory.
fn pack(stage: &Path, name: &str, epoch: u64, archive: &Path) -> Result<()> {
    let file =
        std::fs::File::create(archive).with_context(|| format!("write {}", archive.display()))?;
    let mut tar = Command::new("tar")
        .args(["--create", "--sort=name", "--format=ustar", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--mode=u=rwX,go=rX", &format!("--mtime=@{epoch}"), name])
        .current_dir(stage)
        .stdout(Stdio::piped())
        .spawn()
        .context("start tar")?;
    let tape = tar.stdout.take().expect("it is piped");
    let gzip = Command::new("gzip").args(["-9", "--no-name"]).stdin(tape).stdout(file).status();
    let (tar, gzip) = (tar.wait().context("wait for tar")?, gzip.context("start gzip")?);
    if !tar.success() || !gzip.success() {
        bail!("{}: tar {tar}, gzip {gzip}", archive.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let packed = |order: [&str; 2]| {
            let stage = tempfile::tempdir().unwrap();
            fs::create_dir(stage.path().join("tree")).unwrap();
            for name in order {
                fs::write(stage.path().join("tree").join(name), name).unwrap();
            }
            let archive = stage.path().join("tree.tar.gz");
            pack(stage.path(), "tree", 1_700_000_000, &archive).unwrap();
            fs::read(archive).unwrap()
        };
        assert_eq!(packed(["a", "b"]), packed(["b", "a"]));
    }
}
