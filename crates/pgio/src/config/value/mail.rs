//! The values that only the workload `mail` takes: where a server is, who gets mail, how often.
//!
//! Read from text here and checked one by one; what contradicts another key is found in
//! `config::resolve`.

use std::fmt;
use std::path::PathBuf;

use super::{Kind, Value};

/// Where mail is delivered to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailServer {
    /// `host:port`, as the resolver takes it.
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

impl Value for MailServer {
    fn from_text(text: &str, _: &Kind) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Socket(text.into()));
        }
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(port) if port > 0 => Ok(Self::Tcp(text.to_owned())),
            _ => Err(format!("must be host:port or the path of a socket, not `{text}`")),
        }
    }
}

/// How a message is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailProtocol {
    /// RFC 2033: an answer for each recipient, when it is delivered.
    Lmtp,
    /// RFC 5321: one answer, when it is taken over.
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

impl Value for MailProtocol {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let all = [Self::Lmtp, Self::Smtp];
        let found = all.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| super::must_be(kind, text))
    }
}

/// How the sizes of messages are distributed about their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl Value for SizeDistribution {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let all = [Self::Fixed, Self::Uniform, Self::Lognormal];
        let found = all.into_iter().find(|distribution| distribution.name() == text);
        found.ok_or_else(|| super::must_be(kind, text))
    }
}

/// Messages begun in a span of time, by all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailRate {
    messages: u32,
    by_minute: bool,
}

impl MailRate {
    pub fn per_second(self) -> f64 {
        f64::from(self.messages) / if self.by_minute { 60.0 } else { 1.0 }
    }
}

impl fmt::Display for MailRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.messages, if self.by_minute { "min" } else { "s" })
    }
}

impl Value for MailRate {
    fn from_text(text: &str, _: &Kind) -> Result<Self, String> {
        let found = text.split_once('/').and_then(|(messages, span)| {
            let by_minute = match span {
                "min" => true,
                "s" => false,
                _ => return None,
            };
            let digits = messages.bytes().all(|b| b.is_ascii_digit());
            let messages = messages.parse().ok().filter(|n| digits && *n > 0)?;
            Some(Self { messages, by_minute })
        });
        found.ok_or_else(|| format!("must be a rate such as 1500/min or 25/s, not `{text}`"))
    }
}

/// Who gets mail, as written: addresses with commas between, each with at most one `{1..100}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipients(String);

/// Of all addresses together: more are no more work for a server, only more memory here.
const MOST: u64 = 100_000;

impl Recipients {
    pub fn text(&self) -> &str {
        &self.0
    }

    /// All of them, in order; `target` is what `{target}` stands for.
    pub fn all(&self, target: &str) -> Result<Vec<String>, String> {
        expand(&self.0.replace("{target}", target))
    }
}

impl Value for Recipients {
    fn from_text(text: &str, _: &Kind) -> Result<Self, String> {
        expand(&text.replace("{target}", "target"))?;
        Ok(Self(text.to_owned()))
    }
}

fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('{') {
            None => all.push(part.to_owned()),
            Some((before, rest)) => {
                let range = rest.split_once('}').and_then(|(range, after)| {
                    let (low, high) = range.split_once("..")?;
                    Some((whole(low)?, whole(high)?, after))
                });
                let Some((low, high, after)) = range.filter(|(low, high, _)| low <= high) else {
                    return Err(format!(
                        "`{part}` is no pattern such as user{{1..100}}@example.org"
                    ));
                };
                if high - low >= MOST {
                    return Err(format!("`{part}` is more than {MOST} addresses"));
                }
                all.extend((low..=high).map(|n| format!("{before}{n}{after}")));
            }
        }
    }
    match all.iter().find(|address| !is_address(address)) {
        Some(wrong) => Err(format!("`{wrong}` is no address such as user1@example.org")),
        None if all.len() as u64 > MOST => Err(format!("are more than {MOST}")),
        None => Ok(all),
    }
}

/// Without a leading zero, which would be lost.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// Plain enough to stand in a command of the protocol, in a header and in a path as it is.
pub(crate) fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-=?^_`|~.".contains(c);
    let (local, domain) = text.split_once('@').unwrap_or((text, "localhost"));
    let dots = |part: &str| part.starts_with('.') || part.ends_with('.') || part.contains("..");
    let sound = |part: &str| !part.is_empty() && part.chars().all(plain) && !dots(part);
    sound(local) && sound(domain) && text.len() <= 254
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Value>(text: &str) -> Result<T, String> {
        T::from_text(text, &Kind::Text)
    }

    #[test]
    fn a_server_is_a_port_or_a_socket() {
        assert_eq!(read("mail:24"), Ok(MailServer::Tcp("mail:24".to_owned())));
        assert_eq!(read("[::1]:24"), Ok(MailServer::Tcp("[::1]:24".to_owned())));
        assert_eq!(read("/run/lmtp"), Ok(MailServer::Socket("/run/lmtp".into())));
        for wrong in ["", "mail", "mail:", ":24", "mail:0", "mail:70000", "run/lmtp"] {
            assert!(read::<MailServer>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_by_the_second_or_the_minute() {
        assert_eq!(read::<MailRate>("25/s").unwrap().per_second(), 25.0);
        let by_minute = read::<MailRate>("1500/min").unwrap();
        assert_eq!((by_minute.per_second(), by_minute.to_string().as_str()), (25.0, "1500/min"));
        for wrong in ["", "25", "0/s", "-1/s", "+1/s", "2.5/s", "25/h", "25/ s", "/s"] {
            assert!(read::<MailRate>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_and_lists_are_spelled_out() {
        let all = |text: &str| read::<Recipients>(text).and_then(|r| r.all("drbd"));
        assert_eq!(all("u{9..11}@a.b").unwrap(), ["u9@a.b", "u10@a.b", "u11@a.b"]);
        assert_eq!(all("root, u{1..2}").unwrap(), ["root", "u1", "u2"]);
        assert_eq!(all("u{1..1}@{target}").unwrap(), ["u1@drbd"]);
        assert_eq!(all("u{1..100000}").unwrap().len(), 100_000);
        for wrong in [
            "",
            "a,",
            "u{1..}",
            "u{2..1}",
            "u{01..9}",
            "u{1..2",
            "u{1..2}{3..4}",
            "u{1..100001}",
            "a b@c",
            "<a@b>",
            "../a@b",
            "a/b@c",
            "a@b@c",
            "a\r\nDATA@b",
            ".a@b",
        ] {
            assert!(all(wrong).is_err(), "{wrong:?}");
        }
    }
}
