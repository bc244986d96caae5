//! The protocol between owner and supervisor over two pipes, one line per message.
//!
//! The owner sends commands: `restart`, `stop` and `start` of a server. The supervisor answers each
//! with one line, `ok TEXT` or `error TEXT`, with TEXT as a JSON string because server logs contain
//! line breaks. Before the first command it sends either `ok` with the cluster's directory, or
//! `error` and exits.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    RestartPrimary,
    StopPrimary,
    StartPrimary,
    StopStandby,
    StartStandby,
}

const COMMANDS: &[(Command, &str)] = &[
    (Command::RestartPrimary, "restart primary"),
    (Command::StopPrimary, "stop primary"),
    (Command::StartPrimary, "start primary"),
    (Command::StopStandby, "stop standby"),
    (Command::StartStandby, "start standby"),
];

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = COMMANDS.iter().find(|(command, _)| command == self);
        f.write_str(line.expect("the table contains every command").1)
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let known = COMMANDS.iter().find(|(_, text)| *text == line.trim());
        known.map(|(command, _)| *command).ok_or_else(|| format!("unknown command `{line}`"))
    }
}

/// An answer of the supervisor.
pub(super) type Answer = Result<String, String>;

pub(super) fn write_answer(answer: &Answer) -> String {
    let (word, text) = match answer {
        Ok(text) => ("ok", text),
        Err(text) => ("error", text),
    };
    format!("{word} {}\n", serde_json::Value::from(text.as_str()))
}

/// `None` if the line is not a valid answer.
pub(super) fn read_answer(line: &str) -> Option<Answer> {
    let (word, text) = line.trim_end().split_once(' ')?;
    let text: String = serde_json::from_str(text).ok()?;
    match word {
        "ok" => Some(Ok(text)),
        "error" => Some(Err(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_survive_the_pipe() {
        for (command, text) in COMMANDS {
            assert_eq!(format!("{command}\n").parse(), Ok(*command), "{text}");
        }
        assert!("promote standby".parse::<Command>().is_err());
        for answer in [Ok("/var/tmp/pgio-x".into()), Err("a\n\"b\"\\".into())] {
            let line = write_answer(&answer);
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(read_answer(&line), Some(answer));
        }
        assert_eq!(read_answer("hello"), None);
    }
}
