//! What goes wrong with a host, told by what ssh says on stderr.
//!
//! ssh ends with 255 for each of its own failures, so its words are all there is. Unknown words
//! are passed on as they are. Next: [`super::ssh`] and [`super::shell`], which ask here.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("host {host} cannot be reached: {said}; check its [hosts.{host}] and `{by_hand}`")]
    Unreachable { host: String, said: String, by_hand: String },
    #[error(
        "host {host} is not known to this user's ssh: run `{by_hand}` once and accept its key, or \
         add it to known_hosts"
    )]
    UnknownKey { host: String, by_hand: String },
    #[error(
        "host {host} shows another key than the known one: somebody may be in between; find out \
         why before you mend known_hosts"
    )]
    ChangedKey { host: String },
    #[error(
        "host {host} refuses to let this user in without a password: {said}; set up a key or an \
         agent so that `{by_hand}` asks nothing"
    )]
    Denied { host: String, said: String, by_hand: String },
    #[error(
        "hosts {one} and {other} are one machine, where what is meant for one would be done to the \
         other: write ssh = \"user@host\" of the other machine into [hosts.{one}] or \
         [hosts.{other}], or leave one of them out"
    )]
    Twins { one: String, other: String },
    #[error("program `{program}` is not on host {host}: install it there")]
    Missing { host: String, program: String },
    #[error("the connection to host {host} broke off: {said}")]
    Lost { host: String, said: String },
    #[error("host {host} did not answer within {} s", limit.as_secs_f64())]
    Silent { host: String, limit: Duration },
}

/// The failure of a connection that never came up.
pub(super) fn refused(host: &str, stderr: &str, by_hand: &str) -> HostError {
    let (host, by_hand) = (host.to_owned(), by_hand.to_owned());
    let says = |words: &str| stderr.contains(words);
    if says("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        HostError::ChangedKey { host }
    } else if says("Host key verification failed") {
        HostError::UnknownKey { host, by_hand }
    } else if says("Permission denied") || says("Too many authentication failures") {
        HostError::Denied { host, said: last_line(stderr), by_hand }
    } else {
        HostError::Unreachable { host, said: last_line(stderr), by_hand }
    }
}

/// The last line of some output, which is where programs give the reason.
pub(super) fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("nothing was said").trim_start_matches("ssh: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart_by_the_words_of_ssh() {
        let of = |stderr| refused("db", stderr, "ssh me@db");
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n\
                       Host key verification failed.\n";
        assert_eq!(of(changed), HostError::ChangedKey { host: "db".to_owned() });
        assert!(matches!(of("Host key verification failed.\n"), HostError::UnknownKey { .. }));
        let denied = of("me@db: Permission denied (publickey).\r\n");
        assert_eq!(
            denied.to_string(),
            "host db refuses to let this user in without a password: me@db: Permission denied \
             (publickey).; set up a key or an agent so that `ssh me@db` asks nothing"
        );
        assert_eq!(
            of("ssh: connect to host db port 22: Connection refused\n").to_string(),
            "host db cannot be reached: connect to host db port 22: Connection refused; check its \
             [hosts.db] and `ssh me@db`"
        );
        assert!(of("").to_string().contains("nothing was said"));
    }
}
