//! Values of the workload `mail`: server, recipients, sizes and rate.
//!
//! This module parses and checks each value by itself; `config::resolve` finds contradictions
//! between keys.

use pgio_mail::settings::{MailProtocol, MailRate, MailServer, SizeDistribution};

use super::from_text::{Value, must_be};
use super::kind::Kind;

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

impl Value for MailProtocol {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let all = [Self::Lmtp, Self::Smtp];
        let found = all.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| must_be(kind, text))
    }
}

impl Value for SizeDistribution {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let all = [Self::Fixed, Self::Uniform, Self::Lognormal];
        let found = all.into_iter().find(|distribution| distribution.name() == text);
        found.ok_or_else(|| must_be(kind, text))
    }
}

impl Value for MailRate {
    fn from_text(text: &str, _: &Kind) -> Result<Self, String> {
        let rate = text.split_once('/').and_then(|(messages, unit)| {
            let per_minute = match unit {
                "min" => true,
                "s" => false,
                _ => return None,
            };
            let digits = messages.bytes().all(|b| b.is_ascii_digit());
            let messages = messages.parse().ok().filter(|n| digits && *n > 0)?;
            Some(Self::new(messages, per_minute))
        });
        rate.ok_or_else(|| format!("must be a rate such as 1500/min or 25/s, not `{text}`"))
    }
}

/// Recipients as written: addresses separated by commas, each with at most one range `{1..100}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipients(String);

/// Maximum number of addresses; more would only cost memory in pgio, not load the server more.
const MAX_ADDRESSES: u64 = 100_000;

impl Recipients {
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns all addresses in order; `target` replaces `{target}`.
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
                        "`{part}` is not a pattern such as user{{1..100}}@example.org"
                    ));
                };
                if high - low >= MAX_ADDRESSES {
                    return Err(format!("`{part}` expands to more than {MAX_ADDRESSES} addresses"));
                }
                all.extend((low..=high).map(|n| format!("{before}{n}{after}")));
            }
        }
    }
    match all.iter().find(|address| !is_address(address)) {
        Some(wrong) => Err(format!("`{wrong}` is not an address such as user1@example.org")),
        None if all.len() as u64 > MAX_ADDRESSES => {
            Err(format!("must be at most {MAX_ADDRESSES} addresses"))
        }
        None => Ok(all),
    }
}

/// Parses a number; leading zeros are refused because they would be lost.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// Returns whether the address is safe in a protocol command, in a header and in a path, unescaped.
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
    fn servers_are_host_and_port_or_a_socket() {
        assert_eq!(read("mail:24"), Ok(MailServer::Tcp("mail:24".to_owned())));
        assert_eq!(read("[::1]:24"), Ok(MailServer::Tcp("[::1]:24".to_owned())));
        assert_eq!(read("/run/lmtp"), Ok(MailServer::Socket("/run/lmtp".into())));
        for wrong in ["", "mail", "mail:", ":24", "mail:0", "mail:70000", "run/lmtp"] {
            assert!(read::<MailServer>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_per_second_or_per_minute() {
        assert_eq!(read::<MailRate>("25/s").unwrap().per_second(), 25.0);
        let per_minute = read::<MailRate>("1500/min").unwrap();
        assert_eq!((per_minute.per_second(), per_minute.to_string().as_str()), (25.0, "1500/min"));
        for wrong in ["", "25", "0/s", "-1/s", "+1/s", "2.5/s", "25/h", "25/ s", "/s"] {
            assert!(read::<MailRate>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_and_lists_are_expanded() {
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
