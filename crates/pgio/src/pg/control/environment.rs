//! The environment of a server that is restarted: what the journal stores of it, and what it must not store.
//!
//! A server takes settings from its environment, such as PGPORT, and its archive_command or its walreceiver may take
//! credentials. So a restart hands on all variables but traces of the session that started the server. The journal is
//! a file and has only the names of those that may be secret. All go through stdin, because `ps` shows arguments to
//! everybody.

use std::collections::BTreeSet;
use std::fmt;

use super::{ControlError, Controller, State};
use crate::host::command::quoted;

/// Traces of the session that started the server, and variables that pg_ctl sets itself.
const LEFT_OUT: &[&str] = &[
    "OLDPWD",
    "PGDATA",
    "PG_GRANDPARENT_PID",
    "PWD",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "_",
];

/// Ends of the words of a name, between underscores, or parts of it.
const SECRET_ENDS: &[&str] = &["AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASS", "PASSWD", "PWD"];
const SECRET_PARTS: &[&str] = &["PASSPHRASE", "PASSWORD", "SECRET", "TOKEN"];
/// Parts of a value: of a connection string, and of one for Azure.
const SECRET_VALUES: &[&str] = &["password=", "key="];

/// Variables that may be secret: in memory only, never stored or shown.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// In alphabetical order.
    pub(super) fn names(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.0.iter().map(|variable| parts(variable).0).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Prints facts of a server's main process, its environment among them.
pub(super) const PROGRAM: &str = include_str!("program.sh");

/// Returns the secret variables in the output of [`PROGRAM`].
pub(super) fn secrets(output: &str) -> Secrets {
    let lines = output.lines().filter_map(|line| line.strip_prefix("environment "));
    split(lines.map(|variable| variable.replace('\u{1}', "\n")).collect()).1
}

/// Splits the variables of a process, without those left out, into those that may be stored and those that may be
/// secret.
pub(super) fn split(variables: Vec<String>) -> (Vec<String>, Secrets) {
    let handed_on = |variable: &String| {
        let (name, _) = parts(variable);
        is_name(name) && !LEFT_OUT.contains(&name)
    };
    let (secret, plain) =
        variables.into_iter().filter(handed_on).partition(|variable| may_be_secret(variable));
    (plain, Secrets(secret))
}

/// Returns the script for a shell whose arguments are a command: it exports the variables and becomes the command.
pub(super) fn script<'a>(variables: impl Iterator<Item = &'a str>) -> String {
    // Without `command`, bash would end at a variable that is read-only there, such as UID.
    let export = |variable| {
        let (name, value) = parts(variable);
        format!("command export {name}={}\n", quoted(value.as_ref()))
    };
    let exports: String = variables.map(export).collect();
    // Braces: a shell would run a script that the end of a connection has cut off.
    format!("{{\n{exports}exec \"$@\" </dev/null\n}}\n")
}

fn parts(variable: &str) -> (&str, &str) {
    variable.split_once('=').unwrap_or((variable, ""))
}

/// A shell can export no other, such as a function of bash.
fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(word) && text.starts_with(|c: char| !c.is_ascii_digit())
}

fn may_be_secret(variable: &str) -> bool {
    let (name, value) = parts(variable);
    let (name, value) = (name.to_ascii_uppercase(), value.to_ascii_lowercase());
    name.split('_').any(|word| SECRET_ENDS.iter().any(|end| word.ends_with(end)))
        || SECRET_PARTS.iter().any(|part| name.contains(part))
        || SECRET_VALUES.iter().any(|part| value.contains(part))
        // A URL may contain a user with a password.
        || (value.contains("://") && value.contains('@'))
}

// A setting's line in the postgresql.auto.conf of a server that is down. With what a condition set, a server may not
// start, and ALTER SYSTEM needs one that runs. The file has the form that ALTER SYSTEM gives it, since it wrote the
// line.

const SCRIPT: &str = include_str!("line.sh");

/// A setting's line in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The server is not down, or its file is out of reach.
    Unknown,
    Absent,
    /// With this value.
    Value(String),
}

impl Controller {
    pub fn line_while_down(&self, name: &str) -> Result<Line, ControlError> {
        if self.state()? != State::Down {
            return Ok(Line::Unknown);
        }
        let found = self.edit(&[name], "")?;
        let last = found.lines().last().and_then(|line| line.split_once(" = "));
        Ok(last.map_or(Line::Absent, |(_, value)| Line::Value(setting_unquoted(value))))
    }

    /// Replaces the line; without a value removes it.
    pub fn set_line_while_down(&self, name: &str, value: Option<&str>) -> Result<(), ControlError> {
        let line =
            value.map_or_else(String::new, |value| format!("{name} = {}", setting_quoted(value)));
        // Not an argument: `ps` shows those to everybody, and the value may be a password.
        self.edit(&[name, "replace"], &format!("{line}\n")).map(drop)
    }

    fn edit(&self, arguments: &[&str], input: &str) -> Result<String, ControlError> {
        let file = format!("{}/postgresql.auto.conf", self.plan.data_directory);
        let script = ["sh", "-c", SCRIPT, "sh", &file].into_iter();
        let line = self.line_as_owner(script.chain(arguments.iter().copied()))?;
        Ok(self.exec.run(&line.input(input))?)
    }
}

fn setting_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn setting_unquoted(text: &str) -> String {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    inner.unwrap_or(text).replace("''", "'").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::{CommandLine, Exec, Local};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn variables_that_may_be_secret_are_recognized() {
        for variable in [
            "PGPASSWORD=x",
            "AWS_SECRET_ACCESS_KEY=x",
            "AWS_SESSION_TOKEN=x",
            "WALG_LIBSODIUM_KEY=x",
            "PGBACKREST_REPO1_CIPHER_PASS=x",
            "SSHPASS=x",
            "MYSQL_PWD=x",
            "REDISCLI_AUTH=x",
            "https_proxy=http://me:x@proxy:3128",
            "AZURE_STORAGE_CONNECTION_STRING=AccountName=a;AccountKey=x",
        ] {
            assert!(may_be_secret(variable), "{variable}");
        }
        for variable in ["PGPORT=5433", "PGPASSFILE=/p", "CURL_CA_BUNDLE=/c", "KEYMAP=us", "A=@"] {
            assert!(!may_be_secret(variable), "{variable}");
        }
    }

    #[test]
    fn what_no_shell_can_export_is_left_out() {
        let variables = ["A1=x", "BASH_FUNC_f%%=() { :; }", "1A=x", "a.b=x", "=x", "a b=x"];
        let (plain, secrets) = split(variables.map(str::to_owned).into());
        assert_eq!(plain, ["A1=x"]);
        assert_eq!(secrets, Secrets::default());
    }

    #[test]
    fn a_shell_hands_on_the_exact_values() {
        let variables = ["TZ=UTC", "A= it's\n\"two\" $HOME \\n ", "EMPTY=", "UID=7"];
        let shell = CommandLine::new("env").args(["-i", "sh", "-s", "env", "-0"]);
        let output = Local.run(&shell.input(script(variables.into_iter()))).unwrap();
        let found: Vec<&str> = output.split('\0').collect();
        // bash keeps its own UID.
        for variable in &variables[..3] {
            assert!(found.contains(variable), "{variable}: {found:?}");
        }
    }

    #[test]
    fn values_are_quoted_as_by_alter_system() {
        for value in ["4GB", "it's", r"a\b", "", "\"a\", \"b\""] {
            assert_eq!(setting_unquoted(&setting_quoted(value)), value);
        }
        assert_eq!(setting_quoted("it's"), "'it''s'");
    }

    #[test]
    fn lines_of_one_setting_are_replaced_and_all_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("it's a postgresql.auto.conf");
        let text = "# by hand\nwork_mem = '4MB'\nwork_memory = '1'\nwork_mem = '5MB'\nport = '1'";
        let edit = |arguments: &[&str], input: &str| {
            let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh"]).arg(&file);
            Local.run(&line.args(arguments).input(input)).unwrap()
        };
        let after = |name: &str, line: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            edit(&[name, "replace"], &format!("{line}\n"));
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
            fs::read_to_string(&file).unwrap()
        };
        assert_eq!(
            after("work_mem", "work_mem = '6MB'"),
            "# by hand\nwork_mem = '6MB'\nwork_memory = '1'\nport = '1'\n"
        );
        assert_eq!(after("work_mem", ""), "# by hand\nwork_memory = '1'\nport = '1'\n");
        assert_eq!(after("fsync", "fsync = 'on'"), format!("{text}\nfsync = 'on'\n"));
        fs::write(&file, text).unwrap();
        assert_eq!(edit(&["work_mem"], ""), "work_mem = '4MB'\nwork_mem = '5MB'\n");
        assert_eq!(edit(&["fsync"], ""), "");
    }
}
