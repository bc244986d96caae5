//! Compiles the program for one target, so that the directory it is compiled in leaves no trace in it.
//!
//! With a standard library for the target from rustup, cargo needs no help. Else `--toolchain` names the directory that
//! packaging/musl-toolchain made, and the standard library is compiled from source with the program. C code (of `ring`)
//! is compiled by the same directory's wrapper, else by what the crate `cc` finds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::dist::{Release, text};

/// Across all crates: the program is a fifth smaller, and its build takes twice the processor time, so only what is
/// released is built this way.
const LTO: &str = "fat";
/// Functions with the same code are one: 3 % of the program. Nothing in it compares addresses of functions. The linker
/// of GNU cannot do that.
const FOLDING: [&str; 2] = ["-C link-arg=-fuse-ld=lld", "-C link-arg=-Wl,--icf=all"];
/// Addresses that the start of the program corrects take 1/40 of the room: 2 % of the program. musl from 1.2.4 on reads
/// that.
const PACKING: &str = "-C link-arg=-Wl,--pack-dyn-relocs=relr";
/// The linker for a foreign processor, unless the environment names one.
const AARCH64_LINKER: &str = "aarch64-linux-gnu-gcc";

/// The path of the compiled program.
pub(crate) fn build(release: &Release, target: &str, toolchain: Option<&Path>) -> Result<PathBuf> {
    let toolchain = match toolchain {
        Some(dir) => Some(dir.canonicalize().with_context(|| format!("open {}", dir.display()))?),
        None => None,
    };
    let (cargo, rustc) = match &toolchain {
        Some(dir) => (dir.join("bin/cargo"), dir.join("bin/rustc")),
        None => (PathBuf::from("cargo"), PathBuf::from("rustc")),
    };
    let sysroot = output(text(&rustc)?, &["--print", "sysroot"])?;
    let library = Path::new(sysroot.trim()).join(format!("lib/rustlib/{target}/lib"));
    if toolchain.is_none() && !library.is_dir() {
        bail!(
            "no standard library for {target}; run `rustup target add {target}`, or make a compiler with \
             packaging/musl-toolchain and pass --toolchain"
        );
    }
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--release", "--locked", "--package", "pgio", "--target", target]);
    cargo.arg("--target-dir").arg(&release.build_dir);
    if toolchain.is_some() {
        cargo.args([
            "-Zbuild-std=std,panic_unwind",
            "-Zbuild-std-features=panic-unwind,optimize_for_size",
        ]);
    }
    let prefixes = prefixes(&release.root, sysroot.trim())?;
    let remap = prefixes.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let others = FOLDING.into_iter().chain([PACKING, "-C target-feature=+crt-static"]);
    let mut flags = remap.chain(others.map(str::to_owned)).collect::<Vec<_>>();
    if target.starts_with("aarch64") {
        flags.push(lld_directory()?);
    }
    let (upper, lower) = (variable(target).to_uppercase(), variable(target));
    cargo
        .current_dir(&release.root)
        .env("RUSTC", &rustc)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", LTO)
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(format!("CARGO_TARGET_{upper}_RUSTFLAGS"), flags.join(" "));
    let linker = format!("CARGO_TARGET_{upper}_LINKER");
    if std::env::var_os(&linker).is_none() {
        let own = if target.starts_with("aarch64") { AARCH64_LINKER } else { "cc" };
        cargo.env(linker, own);
    }
    let maps: Vec<String> =
        prefixes.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    cargo.env(format!("CFLAGS_{lower}"), maps.join(" "));
    if let Some(dir) = &toolchain {
        let processor = target.split('-').next().unwrap_or_default();
        let wrapper = dir.join(format!("bin/{processor}-linux-musl-cc"));
        if !wrapper.is_file() {
            bail!(
                "{} has no {processor}; run packaging/musl-toolchain again with it",
                dir.display()
            );
        }
        cargo.env(format!("CC_{lower}"), wrapper);
    }
    run(&mut cargo)?;
    Ok(release.build_dir.join(target).join("release/pgio"))
}

/// Tells a compiler for a foreign processor where LLVM's linker is: it looks for no linker in PATH without its own
/// prefix, which LLVM's, made for all processors, does not have.
fn lld_directory() -> Result<String> {
    let lld = find("ld.lld").context("ld.lld is not in PATH")?.canonicalize()?;
    let directory = lld.parent().context("ld.lld has no directory")?;
    Ok(format!("-C link-arg=-B{}", text(directory)?))
}

/// Directories that would be found in panic messages, and what stands there instead.
fn prefixes(root: &Path, sysroot: &str) -> Result<Vec<(String, String)>> {
    let cargo_home = match (std::env::var("CARGO_HOME"), std::env::var("HOME")) {
        (Ok(dir), _) => dir,
        (_, Ok(home)) => format!("{home}/.cargo"),
        _ => bail!("neither CARGO_HOME nor HOME is set"),
    };
    let all = [(text(root)?, "/pgio"), (&cargo_home, "/cargo"), (sysroot, "/rust")];
    if let Some((path, _)) = all.iter().find(|(path, _)| path.contains([' ', '='])) {
        bail!("`{path}` has a blank or an equals sign, which compiler flags cannot hold; move it");
    }
    Ok(all.map(|(from, to)| (from.to_owned(), to.to_owned())).to_vec())
}

/// A target in the name of an environment variable.
fn variable(target: &str) -> String {
    target.replace(['-', '.'], "_")
}

// Runs the programs that make a release; each failure names the program and what it was asked. Standard error goes
// to the terminal, because compilers and packagers explain themselves there.

/// Where a program comes from that may be missing.
const PACKAGES: [(&str, &str); 4] =
    [("git", "git"), ("ld.lld", "lld"), ("readelf", "binutils"), ("sha256sum", "coreutils")];
/// Other versions of these programs make other bytes; the third word is for `cargo install`.
const PINNED: [(&str, &str, &str); 3] = [
    ("cargo-about", "0.9.3", " --features cli"),
    ("cargo-deb", "3.8.0", ""),
    ("cargo-sbom", "0.10.0", ""),
];

/// Refuses before anything is built if a program is missing, or of a version other than the pinned one.
pub(crate) fn require(programs: &[&str]) -> Result<()> {
    for program in programs {
        let pinned = PINNED.iter().find(|(name, ..)| name == program);
        let package = PACKAGES.iter().find(|(name, _)| name == program);
        let how = match (pinned, package) {
            (Some((name, version, options)), _) => {
                format!("; try `cargo install --locked {name}@{version}{options}`")
            }
            (None, Some((_, package))) => format!("; try `apt-get install {package}`"),
            (None, None) => String::new(),
        };
        if find(program).is_none() {
            bail!("{program} is not in PATH{how}");
        }
        if let Some((_, version, _)) = pinned {
            let found = output(program, &["--version"])?;
            if !found.split_whitespace().any(|word| word == *version) {
                bail!("{program} is of version {}, not {version}{how}", found.trim());
            }
        }
    }
    Ok(())
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", named(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", named(command));
    }
    Ok(())
}

/// The standard output of a program that succeeds.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    captured(&mut command)
}

pub(crate) fn captured(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {}", named(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", named(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{}: not UTF-8", named(command)))
}

/// The program's name and its arguments.
fn named(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or_else(|| command.get_program());
    let arguments = command.get_args().map(|a| a.to_string_lossy());
    let words: Vec<_> = std::iter::once(program.to_string_lossy()).chain(arguments).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_before_anything_is_built() {
        let error = require(&["sh", "no-such-program"]).unwrap_err().to_string();
        assert_eq!(error, "no-such-program is not in PATH");
    }

    #[test]
    fn a_failure_names_the_program_and_its_arguments() {
        let error = output("sh", &["-c", "exit 3"]).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c exit 3` failed: "), "{error}");
        assert_eq!(output("echo", &["a", "b"]).unwrap(), "a b\n");
    }
}
