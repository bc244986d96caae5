//! Checks that a version of initdb has the options that a target asks for.
//!
//! The list of known options comes from `initdb --help`, so that a missing one is refused with its
//! version before a directory is created. `config::experiment` refuses those that pgio sets itself.

use super::find::Binaries;
use super::{Error, at};
use crate::config::experiment::initdb_option_name;
use crate::host::exec::{CommandLine, Exec, Local};

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
