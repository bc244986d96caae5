//! Errors of hosts, derived from the messages of ssh on stderr.
//!
//! ssh exits with 255 for each of its own failures, so only its message identifies the failure.
//! Unknown messages are passed on unchanged. Next: [`super::ssh`] and [`super::shell`] use this module.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("host {host} cannot be reached: {message}; check [hosts.{host}] and try `{by_hand}`")]
    Unreachable { host: String, message: String, by_hand: String },
    #[error(
        "the key of host {host} is not in known_hosts; run `{by_hand}` once and accept the key, or \
         add it to known_hosts"
    )]
    UnknownKey { host: String, by_hand: String },
    #[error(
        "the key of host {host} differs from the one in known_hosts, which may indicate an attack; \
         find out why before you update known_hosts"
    )]
    ChangedKey { host: String },
    #[error(
        "host {host} refuses a login without a password: {message}; set up a key or an \
         agent so that `{by_hand}` does not prompt"
    )]
    Denied { host: String, message: String, by_hand: String },
    #[error(
        "hosts {one} and {other} are the same machine, so a change of one would affect the \
         other; write ssh = \"user@host\" of another machine in [hosts.{one}] or \
         [hosts.{other}], or remove one of them"
    )]
    SameMachine { one: String, other: String },
    #[error("program `{program}` is not installed on host {host}; install it there")]
    Missing { host: String, program: String },
    #[error(
        "{}, found by PATH, or its directory can be changed by others, and pgio runs as root; install the program elsewhere, or run pgio as an ordinary user", path.display()
    )]
    UntrustedProgram { path: PathBuf },
    #[error("lost connection to host {host}: {message}; check the host and the network")]
    Lost { host: String, message: String },
    #[error("host {host} did not answer within {} s; check the host and the network", limit.as_secs_f64())]
    Silent { host: String, limit: Duration },
}

/// Classifies the failure of a connection that was not established.
pub(super) fn classify(host: &str, stderr: &str, by_hand: &str) -> HostError {
    let (host, by_hand) = (host.to_owned(), by_hand.to_owned());
    let contains = |words: &str| stderr.contains(words);
    if contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        HostError::ChangedKey { host }
    } else if contains("Host key verification failed") {
        HostError::UnknownKey { host, by_hand }
    } else if contains("Permission denied") || contains("Too many authentication failures") {
        HostError::Denied { host, message: last_line(stderr), by_hand }
    } else {
        HostError::Unreachable { host, message: last_line(stderr), by_hand }
    }
}

/// Returns the last line of an output, where programs print the reason of a failure.
pub(super) fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("no message").trim_start_matches("ssh: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_classified_by_the_message_of_ssh() {
        let of = |stderr| classify("db", stderr, "ssh me@db");
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n\
                       Host key verification failed.\n";
        assert_eq!(of(changed), HostError::ChangedKey { host: "db".to_owned() });
        assert!(matches!(of("Host key verification failed.\n"), HostError::UnknownKey { .. }));
        let denied = of("me@db: Permission denied (publickey).\r\n");
        assert_eq!(
            denied.to_string(),
            "host db refuses a login without a password: me@db: Permission denied \
             (publickey).; set up a key or an agent so that `ssh me@db` does not prompt"
        );
        assert_eq!(
            of("ssh: connect to host db port 22: Connection refused\n").to_string(),
            "host db cannot be reached: connect to host db port 22: Connection refused; check \
             [hosts.db] and try `ssh me@db`"
        );
        assert!(of("").to_string().contains("no message"));
    }
}
