//! Runs the programs that make a release; each failure names the program and what it was asked.
//!
//! Standard error goes to the terminal, because compilers and packagers explain themselves there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where a program comes from that may be missing.
const PACKAGES: [(&str, &str); 4] =
    [("git", "git"), ("ld.lld", "lld"), ("readelf", "binutils"), ("sha256sum", "coreutils")];
/// Of other versions these make other bytes; the third is for `cargo install`.
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
