//! The environment of a server that is restarted: what the journal stores of it, and what it must not store.
//!
//! A server takes settings from its environment, such as PGPORT, and its archive_command or its walreceiver may take
//! credentials. So a restart hands on all variables but traces of the session that started the server. The journal is
//! a file and has only the names of those that may be secret. All go through stdin, because `ps` shows arguments to
//! everybody.

use std::collections::BTreeSet;
use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::{CommandLine, Exec, Local};

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
}
