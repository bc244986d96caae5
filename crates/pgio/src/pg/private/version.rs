//! PostgreSQL version numbers: of a server, and as requested by the user.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::find::Binaries;
use super::{Error, at};
use crate::config::experiment::initdb_option_name;
use crate::host::exec::{CommandLine, Exec, Local};

/// Major versions whose statistics views pgio supports.
pub const SUPPORTED: RangeInclusive<u32> = 13..=18;

/// Version of a server, e.g. 18.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    pub major: u32,
    pub minor: u32,
}

impl ServerVersion {
    /// Parses the output of `postgres --version`, e.g. `postgres (PostgreSQL) 15.14 (Debian
    /// 15.14-0)`. A development or beta version counts as minor 0.
    pub(super) fn from_banner(banner: &str) -> Option<Self> {
        let text = banner.split_once("(PostgreSQL)")?.1.split_whitespace().next()?;
        let digits = |s: &str| s.chars().take_while(char::is_ascii_digit).collect::<String>();
        let major = digits(text);
        let minor = text[major.len()..].strip_prefix('.').map(digits).unwrap_or_default();
        Some(Self { major: major.parse().ok()?, minor: minor.parse().unwrap_or(0) })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The argument of `--pg`: a major version or one of its releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRequest {
    pub major: u32,
    pub minor: Option<u32>,
}

impl VersionRequest {
    pub fn major(major: u32) -> Self {
        Self { major, minor: None }
    }

    pub fn accepts(self, version: ServerVersion) -> bool {
        self.major == version.major && self.minor.is_none_or(|m| m == version.minor)
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a PostgreSQL version that pgio supports; use {first} to {last}, or a release such as {last}.6",
    first = SUPPORTED.start(),
    last = SUPPORTED.end()
)]
pub struct InvalidVersion(String);

impl FromStr for VersionRequest {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidVersion(text.to_owned());
        let number = |s: &str| {
            let plain = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            if plain { s.parse().map_err(|_| invalid()) } else { Err(invalid()) }
        };
        let (major, minor) = match text.split_once('.') {
            Some((major, minor)) => (number(major)?, Some(number(minor)?)),
            None => (number(text)?, None),
        };
        if SUPPORTED.contains(&major) { Ok(Self { major, minor }) } else { Err(invalid()) }
    }
}

impl fmt::Display for VersionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}", self.major),
        }
    }
}

// Checks that a version of initdb has the options that a target asks for. The list of known options comes from
// `initdb --help`, so that a missing one is refused with its version before a directory is created.
// `config::experiment` refuses those that pgio sets itself.

/// Whether the help text of initdb lists the option.
fn is_listed(help: &str, name: &str) -> bool {
    let words = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    words.flat_map(|line| line.split([' ', ',', '=', '['])).any(|word| word == name)
}

/// Refuses options that this version of initdb does not know.
pub fn check_version_options(binaries: &Binaries, arguments: &[String]) -> Result<(), Error> {
    if arguments.is_empty() {
        return Ok(());
    }
    let program = std::path::absolute(binaries.directory.join("initdb"));
    let program = program.map_err(at(&binaries.directory))?;
    let help = Local.run(&CommandLine::new(program).arg("--help").env("LC_ALL", "C"))?;
    let mut names = arguments.iter().filter_map(|argument| initdb_option_name(argument));
    match names.find(|name| !is_listed(&help, name)) {
        Some(option) => {
            Err(Error::UnknownOption { option: option.to_owned(), version: binaries.version })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_banners_of_packages_and_betas() {
        let parse = |text| ServerVersion::from_banner(text).map(|v| v.to_string());
        assert_eq!(parse("postgres (PostgreSQL) 18.6"), Some("18.6".into()));
        let debian = "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n";
        assert_eq!(parse(debian), Some("15.14".into()));
        assert_eq!(parse("postgres (PostgreSQL) 19devel"), Some("19.0".into()));
        assert_eq!(parse("postgres (PostgreSQL) 18beta2"), Some("18.0".into()));
        assert_eq!(parse("mysqld 8"), None);
    }

    #[test]
    fn a_request_is_a_major_version_or_a_release() {
        let parse = |text: &str| text.parse::<VersionRequest>();
        assert_eq!(parse("18"), Ok(VersionRequest::major(18)));
        assert_eq!(parse("15.19"), Ok(VersionRequest { major: 15, minor: Some(19) }));
        for invalid in ["12", "19", "", "18.", "+18", "18.6.0", "latest"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_release_accepts_only_itself() {
        let have = ServerVersion { major: 15, minor: 14 };
        assert!("15".parse::<VersionRequest>().unwrap().accepts(have));
        assert!("15.14".parse::<VersionRequest>().unwrap().accepts(have));
        assert!(!"15.1".parse::<VersionRequest>().unwrap().accepts(have));
        assert!(!"14".parse::<VersionRequest>().unwrap().accepts(have));
    }

    const HELP: &str = "Usage:\n  initdb [OPTION]... [DATADIR]\n\nOptions:\n  \
        -A, --auth=METHOD         default authentication method\n      \
        --auth-host=METHOD    with --no-such thing\n  \
        -g, --allow-group-access  allow group read/execute\n  \
        -k, --data-checksums      use data page checksums\n      \
        --wal-segsize=SIZE    size of WAL segments, in megabytes\n";

    #[test]
    fn the_help_text_names_the_options() {
        for known in ["-g", "--allow-group-access", "-k", "--data-checksums", "--wal-segsize"] {
            assert!(is_listed(HELP, known), "{known}");
        }
        for unknown in ["--no-data-checksums", "-z", "--data", "DATADIR", "initdb"] {
            assert!(!is_listed(HELP, unknown), "{unknown}");
        }
    }
}
