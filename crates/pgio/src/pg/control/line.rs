//! A setting's line in the postgresql.auto.conf of a server that is down.
//!
//! With what a condition set, a server may not start, and ALTER SYSTEM needs one that runs. The file has the
//! form that ALTER SYSTEM gives it, since it wrote the line.

use super::{ControlError, Controller, State};

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
        Ok(last.map_or(Line::Absent, |(_, value)| Line::Value(unquoted(value))))
    }

    /// Replaces the line; without a value removes it.
    pub fn set_line_while_down(&self, name: &str, value: Option<&str>) -> Result<(), ControlError> {
        let line = value.map_or_else(String::new, |value| format!("{name} = {}", quoted(value)));
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

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    inner.unwrap_or(text).replace("''", "'").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::host::exec::{CommandLine, Exec, Local};

    #[test]
    fn values_are_quoted_as_by_alter_system() {
        for value in ["4GB", "it's", r"a\b", "", "\"a\", \"b\""] {
            assert_eq!(unquoted(&quoted(value)), value);
        }
        assert_eq!(quoted("it's"), "'it''s'");
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
