//! The values of the keys, each read by itself, and the settings that they make together.

use std::collections::BTreeSet;

use super::{KIND, keys};
use crate::config::from_text::{Value, must_be};
use crate::config::keys::{Layer, Use, required};
use crate::config::resolve::ResolveError;
use crate::config::value::Kind;
use pgio_mail::settings::{
    MIN_MESSAGE_BYTES, MailProtocol, MailRate, MailServer, MailSettings, Maildir, MessageSizes,
    SizeDistribution,
};

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
pub(super) struct Recipients(String);

/// Maximum number of addresses; more would only cost memory in pgio, not load the server more.
const MAX_ADDRESSES: u64 = 100_000;

impl Recipients {
    /// Returns all addresses in order; `target` replaces `{target}`.
    pub(super) fn all(&self, target: &str) -> Result<Vec<String>, String> {
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
fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-=?^_`|~.".contains(c);
    let (local, domain) = text.split_once('@').unwrap_or((text, "localhost"));
    let dots = |part: &str| part.starts_with('.') || part.ends_with('.') || part.contains("..");
    let sound = |part: &str| !part.is_empty() && part.chars().all(plain) && !dots(part);
    sound(local) && sound(domain) && text.len() <= 254
}

/// Resolves the settings; `target` replaces `{target}`.
pub(super) fn resolve(layer: Layer, target: &str) -> Result<MailSettings, ResolveError> {
    let all = layer.over(Layer::defaults(Use::Work(KIND)));
    let wrong = |text: &str| Err(ResolveError::Workload(text.to_owned()));
    let Some(server) = keys::server.of(&all) else {
        return wrong("the workload `mail` has no server; write server = \"host:port\"");
    };
    let server = match server {
        MailServer::Tcp(address) => MailServer::Tcp(address.replace("{target}", target)),
        MailServer::Socket(path) => MailServer::Socket(match path.to_str() {
            Some(text) => text.replace("{target}", target).into(),
            None => path,
        }),
    };
    let distribution = required(keys::size_distribution.of(&all));
    let spread = match (distribution, keys::size_spread.of(&all)) {
        (SizeDistribution::Fixed, Some(_)) => {
            return wrong("size_spread conflicts with size_distribution = \"fixed\"");
        }
        (SizeDistribution::Fixed, None) => 0,
        (SizeDistribution::Uniform, Some(spread)) if spread > 100 => {
            return wrong(
                "size_spread must be at most 100 with size_distribution = \"uniform\", because message sizes cannot be negative",
            );
        }
        (_, spread) => spread.unwrap_or(100),
    };
    let sizes =
        MessageSizes { mean: required(keys::message_size.of(&all)).0, distribution, spread };
    if sizes.mean < MIN_MESSAGE_BYTES {
        return wrong("message_size must be at least 1K, because the header takes half of it");
    }
    let sender = required(keys::sender.of(&all));
    if !is_address(&sender) {
        return wrong("sender must be an address such as pgio@example.org");
    }
    let recipients = required(keys::recipients.of(&all))
        .all(target)
        .map_err(|why| ResolveError::Workload(format!("recipients: {why}")))?;
    let recipients_per_message = required(keys::recipients_per_message.of(&all));
    if recipients_per_message as usize > recipients.len() {
        return wrong("recipients_per_message is larger than the number of recipients");
    }
    let different: BTreeSet<&String> = recipients.iter().collect();
    if different.len() < recipients.len() {
        return wrong("recipients contains an address twice");
    }
    let maildir = match (keys::maildir.of(&all), keys::mail_host.of(&all)) {
        (None, Some(_)) => return wrong("mail_host requires maildir; add maildir"),
        (None, None) => None,
        (Some(path), host) => {
            let path = path.replace("{target}", target);
            Some(Maildir { path, host })
        }
    };
    if let Some(maildir) = &maildir {
        if !maildir.path.starts_with('/') || maildir.path.contains('\n') {
            return wrong("maildir must be an absolute path such as \"/srv/mail/{user}/Maildir\"");
        }
        let paths: BTreeSet<String> = recipients.iter().map(|r| maildir.path_of(r)).collect();
        if paths.len() < recipients.len() {
            return wrong(
                "maildir is the same for two recipients; write {user} in it, and {domain} if there are several domains",
            );
        }
    }
    Ok(MailSettings {
        server,
        protocol: required(keys::protocol.of(&all)),
        threads: required(keys::threads.of(&all)),
        sizes,
        sender,
        recipients,
        recipients_per_message,
        messages_per_connection: required(keys::messages_per_connection.of(&all)),
        rate: keys::messages_rate.of(&all),
        timeout: required(keys::reply_timeout.of(&all)),
        maildir,
        run_time: required(all.run_time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Key;

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

    fn resolve(pairs: &[(&str, &str)]) -> Result<MailSettings, String> {
        let mut layer = Layer::default();
        for (name, text) in pairs {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        super::resolve(layer, "drbd").map_err(|e| e.to_string())
    }

    #[test]
    fn unset_mail_keys_get_their_defaults() {
        let mail = resolve(&[("server", "mail:24")]).unwrap();
        assert_eq!((mail.threads, mail.sizes.mean, mail.sizes.spread), (12, 70 << 10, 100));
        assert_eq!((mail.recipients.len(), mail.recipients_per_message), (100, 1));
        assert_eq!((mail.rate, mail.maildir), (None, None));
    }

    #[test]
    fn target_placeholders_are_replaced() {
        let mail = resolve(&[
            ("server", "{target}:24"),
            ("recipients", "u{1..2}@{target}"),
            ("maildir", "/srv/{target}/{domain}/{user}"),
        ])
        .unwrap();
        assert_eq!(mail.server.to_string(), "drbd:24");
        assert_eq!(mail.recipients, ["u1@drbd", "u2@drbd"]);
        assert_eq!(mail.maildir.unwrap().path_of("u2@drbd"), "/srv/drbd/drbd/u2");
    }

    #[test]
    fn values_are_refused_with_what_they_must_be() {
        for (key, value, expected) in [
            ("server", "mail", "host:port"),
            ("protocol", "pop3", "must be lmtp or smtp"),
            ("threads", "0", "1 to 1000"),
            ("threads", "5000", "1 to 1000"),
            ("messages_rate", "fast", "1500/min or 25/s"),
            ("recipients", "a b", "`a b` is not an address"),
            ("reply_timeout", "0s", "a duration above zero"),
        ] {
            let error = Key::named(key).unwrap().set(&mut Layer::default(), value).unwrap_err();
            assert!(error.contains(expected), "{key} = {value}: {error}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (more, expected) in [
            (&[][..], "has no server"),
            (&[("size_distribution", "fixed"), ("size_spread", "10")], "conflicts with"),
            (&[("size_distribution", "uniform"), ("size_spread", "101")], "at most 100"),
            (&[("message_size", "600")], "at least 1K"),
            (
                &[("recipients", "a,b"), ("recipients_per_message", "3")],
                "larger than the number of recipients",
            ),
            (&[("recipients", "a,b,a")], "twice"),
            (&[("mail_host", "primary")], "add maildir"),
            (&[("maildir", "mail/{user}")], "absolute path"),
            (&[("maildir", "/srv/mail")], "write {user}"),
            (&[("maildir", "/srv/{user}"), ("recipients", "a@b,a@c")], "{domain}"),
            (&[("sender", "<>")], "sender"),
        ] {
            let server: &[(&str, &str)] = if more.is_empty() { &[] } else { &[("server", "m:24")] };
            let error = resolve(&[server, more].concat()).unwrap_err();
            assert!(error.contains(expected), "{more:?}: {error}");
        }
    }
}
