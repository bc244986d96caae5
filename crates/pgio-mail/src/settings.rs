//! What is delivered, where to and how fast: the parsed settings of a mail workload.
//!
//! This module has no defaults and parses nothing; the caller resolves its own configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Size of the header and one line of text.
pub const MIN_MESSAGE_BYTES: u64 = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailSettings {
    pub server: MailServer,
    pub protocol: MailProtocol,
    /// Concurrent delivery sessions of all processes.
    pub threads: u32,
    pub sizes: MessageSizes,
    pub sender: String,
    pub recipients: Vec<String>,
    /// Number of different recipients per message.
    pub recipients_per_message: u32,
    /// 0: unlimited.
    pub messages_per_connection: u32,
    /// Absent: as fast as the server accepts messages.
    pub rate: Option<MailRate>,
    /// Timeout for one reply.
    pub timeout: Duration,
    pub maildir: Option<Maildir>,
    pub run_time: Duration,
}

impl MailSettings {
    /// Returns the mail directories by recipient; none if delivered messages are not looked up.
    pub fn directories(&self) -> Vec<String> {
        let Some(maildir) = &self.maildir else { return Vec::new() };
        self.recipients.iter().map(|recipient| maildir.path_of(recipient)).collect()
    }
}

/// The sessions of one process, if several processes deliver together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The number of its first session among all processes' sessions.
    pub first: u32,
    pub sessions: u32,
    /// Sessions of all processes.
    pub of: u32,
}

impl Share {
    /// All sessions.
    pub fn all(of: u32) -> Share {
        Share { first: 0, sessions: of, of }
    }

    /// Converts the number of a message of this process to its number among all processes' messages. In each
    /// round of as many messages as there are sessions, a process has one message per session of its own.
    pub fn global_number(self, own: u64) -> u64 {
        let sessions = u64::from(self.sessions.max(1));
        own / sessions * u64::from(self.of) + u64::from(self.first) + own % sessions
    }
}

/// Bytes of a message, header included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSizes {
    pub mean: u64,
    pub distribution: SizeDistribution,
    /// Percent of the mean: half the width (uniform) or the standard deviation (lognormal).
    pub spread: u32,
}

/// Where pgio looks up delivered messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maildir {
    /// A path with `{user}` and `{domain}`.
    pub path: String,
    /// The host's name in the file; absent: the target's host.
    pub host: Option<String>,
}

impl Maildir {
    /// Returns the path of a recipient's Maildir.
    pub fn path_of(&self, recipient: &str) -> String {
        let (user, domain) = recipient.split_once('@').unwrap_or((recipient, ""));
        self.path.replace("{user}", user).replace("{domain}", domain)
    }
}

/// Where the mail server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailServer {
    /// `host:port`, passed to the resolver unchanged.
    Tcp(String),
    Socket(PathBuf),
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The delivery protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailProtocol {
    /// RFC 2033: one reply per recipient, after delivery.
    Lmtp,
    /// RFC 5321: one reply, when the server accepts the message.
    Smtp,
}

impl MailProtocol {
    pub const NAMES: &'static [&'static str] = &["lmtp", "smtp"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Lmtp => "lmtp",
            Self::Smtp => "smtp",
        }
    }
}

/// The distribution of message sizes around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SizeDistribution {
    Fixed,
    Uniform,
    Lognormal,
}

impl SizeDistribution {
    pub const NAMES: &'static [&'static str] = &["fixed", "uniform", "lognormal"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Uniform => "uniform",
            Self::Lognormal => "lognormal",
        }
    }
}

/// The rate at which all threads together start messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailRate {
    messages: u32,
    per_minute: bool,
}

impl MailRate {
    pub fn new(messages: u32, per_minute: bool) -> MailRate {
        MailRate { messages, per_minute }
    }

    pub fn per_second(self) -> f64 {
        f64::from(self.messages) / if self.per_minute { 60.0 } else { 1.0 }
    }
}

impl fmt::Display for MailRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.messages, if self.per_minute { "min" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_processes_cover_each_message_once() {
        let shares = [(0, 3), (3, 3), (6, 2)];
        let shares = shares.map(|(first, sessions)| Share { first, sessions, of: 8 });
        let numbers =
            |share: Share| (0..).map(move |own| share.global_number(own)).take_while(|n| *n < 800);
        let mut all: Vec<u64> = shares.into_iter().flat_map(numbers).collect();
        all.sort_unstable();
        assert_eq!(all, (0..800).collect::<Vec<_>>());
        assert_eq!(numbers(shares[2]).count(), 200);
        assert_eq!(numbers(Share::all(8)).last(), Some(799));
    }
}
