//! Checks that the host has the programs and files of a command's lines. Known programs are checked for
//! the files that their arguments name. The checks change nothing on the host.
//!
//! Only words whose placeholders are parameters of the file are checked: other values are known only in
//! a trial, and a text for `sh` can contain anything.

use std::collections::BTreeSet;

use super::CommandError;
use crate::config::command::{CommandSpec, Line, Template};
use crate::host::exec::{CommandLine, Exec};
use crate::host::{Host, called};

/// The search path of a command's programs, including PostgreSQL's programs outside PATH.
pub(super) const SEARCH_PATH: &str = include_str!("paths.sh");
/// Prints whether a `program` is executable, or a `file` readable.
const EXISTS_SCRIPT: &str = r#"
case $1 in
program)
    case $2 in
    */*) [ -f "$2" ] && [ -x "$2" ] ;;
    *) command -v "$2" >/dev/null ;;
    esac ;;
file) [ -f "$2" ] && [ -r "$2" ] ;;
esac && echo yes || echo no
"#;

/// The lines of a command that one process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    All,
    /// A driver warms up and generates the load.
    Driver,
    /// The coordinator of drivers makes the data and cleans up.
    Coordinator,
}

impl Lines {
    /// Returns the lines that the process of the experiment runs itself.
    pub fn for_experiment(has_drivers: bool) -> Lines {
        if has_drivers { Lines::Coordinator } else { Lines::All }
    }

    /// Returns these lines with their keys.
    fn with_keys(self, spec: &CommandSpec) -> Vec<(&'static str, Option<&Line>)> {
        let load = [("run", Some(&spec.run)), ("warm_up", spec.warm_up.as_ref())];
        let data = [("setup", spec.setup.as_ref()), ("cleanup", spec.cleanup.as_ref())];
        match self {
            Lines::All => [load, data].concat(),
            Lines::Driver => load.to_vec(),
            Lines::Coordinator => data.to_vec(),
        }
    }
}

/// Refuses a missing program or file.
pub fn check(spec: &CommandSpec, lines: Lines, host: &Host) -> Result<(), CommandError> {
    let mut seen = BTreeSet::new();
    // The shell that runs the lines needs it to create process groups.
    if !exists_on(host, "program", "setsid")? {
        return Err(missing_program("setsid", host));
    }
    for (key, line) in lines.with_keys(spec) {
        let Some(Line::Words(words)) = line else { continue };
        let words: Vec<Option<String>> =
            words.iter().map(|word| resolve_word(word, spec)).collect();
        let words = without_shell(&words, |word| word.as_deref());
        let Some(Some(program)) = words.first() else { continue };
        if seen.insert(program.clone()) && !exists_on(host, "program", program)? {
            return Err(missing_program(program, host));
        }
        for file in named_files(program, &words[1..]) {
            if seen.insert(file.clone()) && !exists_on(host, "file", &file)? {
                return Err(CommandError::Refused(format!(
                    "file {file}, which `{program}` ({key}) is to read, is not on {} or cannot be read there: put it there, or correct its path",
                    called(host.name())
                )));
            }
        }
    }
    Ok(())
}

/// Returns the words of the program that `sh -c TEXT PROGRAM ARGUMENT…` is to run.
pub(super) fn without_shell<T>(words: &[T], word: fn(&T) -> Option<&str>) -> &[T] {
    match words {
        [sh, option, _, rest @ ..]
            if !rest.is_empty() && word(sh) == Some("sh") && word(option) == Some("-c") =>
        {
            rest
        }
        _ => words,
    }
}

fn missing_program(program: &str, host: &Host) -> CommandError {
    CommandError::Missing { program: program.to_owned(), host: host.name().to_owned() }
}

fn exists_on(host: &Host, what: &str, name: &str) -> Result<bool, CommandError> {
    let script = format!("{SEARCH_PATH}{EXISTS_SCRIPT}");
    let line = CommandLine::new("sh").args(["-c", &script, "sh", what, name]);
    Ok(host.run(&line)?.trim() == "yes")
}

/// Returns the text if it is known before a trial.
fn resolve_word(word: &Template, spec: &CommandSpec) -> Option<String> {
    let value = |name: &str| {
        let parameter = spec.parameters.get(name)?;
        parameter.placeholders().next().is_none().then(|| parameter.text().to_owned())
    };
    let all = word.placeholders().all(|name| value(name).is_some());
    all.then(|| word.fill(&value))
}

/// Returns the files that a known program's arguments name; a word is `None` if it is not known yet.
fn named_files(program: &str, words: &[Option<String>]) -> Vec<String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut found = Vec::new();
    let mut words = words.iter();
    // Whether the next word may be a value: fio takes values also as words of their own.
    let mut may_be_value = false;
    while let Some(word) = words.next() {
        let Some(word) = word.as_deref() else {
            may_be_value = false;
            continue;
        };
        let file = match name {
            "pgbench" | "psql" => match word {
                "-f" | "--file" => words.next().and_then(Option::as_deref),
                _ => word
                    .strip_prefix("--file=")
                    .or_else(|| word.strip_prefix("-f").filter(|_| !word.starts_with("--"))),
            },
            "fio" => {
                let is_option = word.starts_with('-');
                let is_file = !is_option && !may_be_value;
                may_be_value = is_option && !word.contains('=');
                is_file.then_some(word)
            }
            _ => None,
        };
        found.extend(file.filter(|file| *file != "-").map(|file| without_weight(name, file)));
    }
    found
}

/// Removes the weight: pgbench accepts `FILE@WEIGHT`.
fn without_weight(program: &str, file: &str) -> String {
    match file.rsplit_once('@') {
        Some((file, weight))
            if program == "pgbench" && weight.bytes().all(|b| b.is_ascii_digit()) =>
        {
            file.to_owned()
        }
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::experiment;

    fn spec(keys: &str) -> CommandSpec {
        let text = format!(
            "[workload]\nkind = 'command'\n{keys}\n\
             metric = [{{ name = 'm', unit = 's', better = 'lower', regex = 'x' }}]\n\
             [[condition]]\nname = 'a'\n"
        );
        let mut read = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap();
        read.workloads.remove(0).command.unwrap()
    }

    #[test]
    fn named_files_finds_the_script_files_of_known_programs() {
        let read = |program: &str, words: &[&str]| {
            let words: Vec<Option<String>> = words.iter().map(|w| Some((*w).to_owned())).collect();
            named_files(program, &words)
        };
        let words = ["-f", "a.sql", "--file=b.sql@3", "-fc.sql", "-c", "5", "--foo"];
        assert_eq!(read("/usr/bin/pgbench", &words), ["a.sql", "b.sql", "c.sql"]);
        assert_eq!(read("psql", &["-f", "-", "--file", "a@1"]), ["a@1"]);
        assert_eq!(read("fio", &["--output=x", "job.fio"]), ["job.fio"]);
        let words = ["--minimal", "--output-format", "json", "a.fio", "--section", "j", "b.fio"];
        assert_eq!(read("fio", &words), ["a.fio", "b.fio"]);
        assert!(read("mine", &["-f", "a.sql"]).is_empty());
    }

    #[test]
    fn missing_programs_and_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (program, text) = (file("program", 0o755), file("text", 0o644));
        let lines = |lines: Lines, keys: &str| {
            check(&spec(keys), lines, &Host::local()).err().map(|e| e.to_string())
        };
        let found = |keys: &str| lines(Lines::All, keys);
        assert_eq!(found(&format!("run = ['{program}', '{{seconds}}']")), None);
        assert_eq!(
            found("run = 'no-such-program of a shell'"),
            None,
            "a shell's text may say anything"
        );
        let refused = |keys: &str, words: &str| {
            let error = found(keys).unwrap_or_else(|| panic!("{keys} is refused"));
            assert!(error.contains(words), "{error}");
        };
        refused("run = ['pgio-no-such-program']", "`pgio-no-such-program` is not on this machine");
        refused(&format!("run = ['{text}']"), "is not on this machine");
        refused(&format!("run = ['{program}']\nsetup = ['/no/such']"), "`/no/such`");
        refused("run = ['psql', '-f', '/no/such.sql']", "file /no/such.sql, which `psql` (run)");
        refused(
            "run = ['sh', '-c', '\"$0\" \"$@\"', 'psql', '-f', '/no/such.sql']",
            "/no/such.sql",
        );
        let keys = "run = ['psql', '--file={f}']\nparameters = { f = '/no/such.sql' }";
        refused(keys, "/no/such.sql");
        let keys = format!("run = ['/no/run']\nsetup = ['{program}']");
        assert_eq!(lines(Lines::Coordinator, &keys), None);
        assert!(lines(Lines::Driver, &keys).is_some());
    }
}
