//! Runs the programs that make a release; each failure names the program and what it was asked.
//!
//! Standard error goes to the terminal, because compilers and packagers explain themselves there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// How to get a program that may be missing.
const SOURCES: [(&str, &str); 6] = [
    ("cargo-sbom", "cargo install cargo-sbom --locked"),
    ("dpkg-deb", "apt-get install dpkg"),
    ("gzip", "apt-get install gzip"),
    ("tar", "apt-get install tar"),
    ("git", "apt-get install git"),
    ("ld.lld", "apt-get install lld"),
];

/// Refuses before anything is built if a program is missing.
pub(super) fn require(programs: &[&str]) -> Result<()> {
    for program in programs {
        if find(program).is_none() {
            let source = SOURCES.iter().find(|(name, _)| name == program);
            let hint = source.map_or_else(String::new, |(_, how)| format!("; try `{how}`"));
            bail!("{program} is not in PATH{hint}");
        }
    }
    Ok(())
}

pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

pub(super) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", named(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", named(command));
    }
    Ok(())
}

/// The standard output of a program that succeeds.
pub(super) fn output(program: &str, arguments: &[&str]) -> Result<String> {
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
