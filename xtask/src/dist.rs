//! `cargo xtask dist`: what users install, made from this checkout.
//!
//! For each target: a static binary, checked for size and for needing nothing; an archive and a Debian package with the
//! manual pages, completions, examples and compatibility scripts. Then the release notes from the changelog, a list of
//! all parts (SBOM), and the checksums. Everything is the same for the same sources and compiler: times come from the
//! last commit, or from SOURCE_DATE_EPOCH. docs/RELEASING.md has the steps around it. One file here for each kind of
//! output; `files` names what is installed where.

mod archive;
mod binary;
mod build;
pub(crate) mod command;
mod debian;
mod files;
mod notes;
mod notices;
mod sbom;
mod sums;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

pub use binary::MAX_BYTES;

const DEFAULT_TARGET: &str = "x86_64-unknown-linux-musl";

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Target to build for; repeat for several [default: x86_64-unknown-linux-musl]
    #[arg(long = "target", value_name = "TRIPLE")]
    targets: Vec<String>,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    /// Directory for the build; one of its own, so that flags of the release do not rebuild everything else
    #[arg(long, value_name = "DIR", default_value = "target/dist-build")]
    build_dir: PathBuf,
    /// Compiler made by packaging/musl-toolchain, where rustup has no standard library for the target
    #[arg(long, value_name = "DIR")]
    toolchain: Option<PathBuf>,
    /// Checkout to release, if not the one that this program was compiled in
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
    /// Package this program, built for the target before, instead of building it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["toolchain", "build_dir"])]
    program: Option<PathBuf>,
    /// Stop after the binaries
    #[arg(long)]
    binary_only: bool,
}

/// A program and what every copy of it contains.
#[derive(Debug, Clone, Copy)]
struct Program<'a> {
    target: &'a str,
    binary: &'a Path,
    /// The license texts of what is linked into it.
    notices: &'a Path,
}

/// What all parts of a release share.
#[derive(Debug, Clone)]
pub struct Release {
    /// The root of the workspace.
    pub root: PathBuf,
    /// As in Cargo.toml.
    pub version: String,
    /// Seconds since 1970 that every file gets.
    pub epoch: u64,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let checkout = match &options.checkout {
        Some(dir) => dir.canonicalize().with_context(|| format!("open {}", dir.display()))?,
        None => root.to_owned(),
    };
    let root = checkout.as_path();
    let release = release(root)?;
    let stale = crate::stale(root, &crate::artifacts()?)?;
    if let Some(path) = stale.first() {
        bail!("{} is stale; run `cargo xtask generate`", path.display());
    }
    // Before the build, which takes minutes.
    let notes = notes::extract(&read(root, "CHANGELOG.md")?, &release.version)?;
    let programs = if options.binary_only {
        &["cargo", "git"][..]
    } else {
        &["cargo", "git", "tar", "gzip", "dpkg-deb", "cargo-sbom"]
    };
    command::require(programs)?;
    if options.program.is_none() {
        command::require(&["ld.lld"])?;
    }
    let default = [DEFAULT_TARGET.to_owned()];
    let targets = if options.targets.is_empty() { &default[..] } else { &options.targets };
    let out = root.join(&options.out);
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    if options.program.is_some() && targets.len() > 1 {
        bail!("--program is for one target, and {} were named", targets.len());
    }
    let mut made = Vec::new();
    for target in targets {
        let build_dir = root.join(&options.build_dir);
        let built = match &options.program {
            Some(program) => program.clone(),
            None => build::build(&release, target, options.toolchain.as_deref(), &build_dir)?,
        };
        let size = binary::check(&built)?;
        let binary = out.join(format!("pgio-{target}"));
        fs::copy(&built, &binary).with_context(|| format!("copy {}", built.display()))?;
        println!("{}: static, {size} bytes", binary.display());
        made.push(binary.clone());
        if options.binary_only {
            continue;
        }
        let notices = notices::make(&release, target, &out)?;
        let program = Program { target, binary: &binary, notices: &notices };
        for path in
            [archive::make(&release, &program, &out)?, debian::make(&release, &program, &out)?]
        {
            println!("{}", path.display());
            made.push(path);
        }
        made.push(notices);
    }
    if options.binary_only {
        return Ok(());
    }
    made.extend([out.join("RELEASE-NOTES.md"), sbom::make(&release, &out)?]);
    write(&out.join("RELEASE-NOTES.md"), &notes)?;
    made.sort();
    made.dedup();
    println!("{}", sums::make(&out, &made)?.display());
    Ok(())
}

/// The release that the checkout is at.
pub fn release(root: &Path) -> Result<Release> {
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => command::output("git", &["-C", text(root)?, "log", "-1", "--format=%ct"])?,
    };
    let epoch = epoch.trim();
    let epoch = epoch
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH: `{epoch}` is not a number of seconds"))?;
    Ok(Release { root: root.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), epoch })
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
