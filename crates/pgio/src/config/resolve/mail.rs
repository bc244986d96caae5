//! What `mail` runs, and what of its keys contradicts each other.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ResolveError, given};
use crate::config::keys::{Layer, Use};
use crate::config::value::mail::{
    MailProtocol, MailRate, MailServer, SizeDistribution, is_address,
};

/// Header and one line of text.
pub const SMALLEST_MESSAGE: u64 = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailSettings {
    pub server: MailServer,
    pub protocol: MailProtocol,
    /// Sessions that deliver at a time.
    pub threads: u32,
    pub sizes: MessageSizes,
    pub sender: String,
    pub recipients: Vec<String>,
    /// Different ones.
    pub recipients_per_message: u32,
    /// 0: as many as come.
    pub messages_per_connection: u32,
    /// Absent: as fast as they are taken.
    pub rate: Option<MailRate>,
    /// For one answer.
    pub timeout: Duration,
    pub maildir: Option<Maildir>,
    pub run_time: Duration,
}

/// Bytes of a message, header included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSizes {
    pub mean: u64,
    pub distribution: SizeDistribution,
    /// Percent of the mean: half the width (uniform) or the standard deviation (lognormal).
    pub spread: u32,
}

/// Where delivered messages are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maildir {
    /// With `{user}` and `{domain}`.
    pub path: String,
    /// By its name in the file; absent: the target's.
    pub host: Option<String>,
}

impl Maildir {
    /// Of one recipient.
    pub fn of(&self, recipient: &str) -> String {
        let (user, domain) = recipient.split_once('@').unwrap_or((recipient, ""));
        self.path.replace("{user}", user).replace("{domain}", domain)
    }
}

impl MailSettings {
    /// `target` is what `{target}` stands for.
    pub fn resolve(layer: Layer, target: &str) -> Result<Self, ResolveError> {
        let all = layer.over(Layer::defaults(Use::Mail));
        let wrong = |text: &str| Err(ResolveError::Mail(text.to_owned()));
        let Some(server) = all.server else {
            return wrong("the workload `mail` has no server: write server = \"host:port\"");
        };
        let server = match server {
            MailServer::Tcp(address) => MailServer::Tcp(address.replace("{target}", target)),
            socket @ MailServer::Socket(_) => socket,
        };
        let distribution = given(all.size_distribution);
        let spread = match (distribution, all.size_spread) {
            (SizeDistribution::Fixed, Some(_)) => {
                return wrong("size_spread contradicts size_distribution = \"fixed\"");
            }
            (SizeDistribution::Fixed, None) => 0,
            (SizeDistribution::Uniform, Some(spread)) if spread > 100 => {
                return wrong(
                    "size_spread is at most 100 with size_distribution = \"uniform\": no message is smaller than nothing",
                );
            }
            (_, spread) => spread.unwrap_or(100),
        };
        let sizes = MessageSizes { mean: given(all.message_size).0, distribution, spread };
        if sizes.mean < SMALLEST_MESSAGE {
            return wrong("message_size is at least 1K: the header alone takes half of it");
        }
        let sender = given(all.sender);
        if !is_address(&sender) {
            return wrong("sender is no address such as pgio@example.org");
        }
        let recipients = given(all.recipients)
            .all(target)
            .map_err(|why| ResolveError::Mail(format!("recipients: {why}")))?;
        let recipients_per_message = given(all.recipients_per_message);
        if recipients_per_message as usize > recipients.len() {
            return wrong("recipients_per_message is more than there are recipients");
        }
        let different: BTreeSet<&String> = recipients.iter().collect();
        if different.len() < recipients.len() {
            return wrong("an address is in recipients twice");
        }
        let maildir = match (all.maildir, all.mail_host) {
            (None, Some(_)) => return wrong("mail_host says where maildir is: add maildir"),
            (None, None) => None,
            (Some(path), host) => {
                let path = path.replace("{target}", target);
                Some(Maildir { path, host })
            }
        };
        if let Some(maildir) = &maildir {
            if !maildir.path.starts_with('/') || maildir.path.contains('\n') {
                return wrong(
                    "maildir must be an absolute path such as \"/srv/mail/{user}/Maildir\"",
                );
            }
            let places: BTreeSet<String> = recipients.iter().map(|r| maildir.of(r)).collect();
            if places.len() < recipients.len() {
                return wrong(
                    "maildir is the same for two recipients: write {user} in it, and {domain} where there are several",
                );
            }
        }
        Ok(Self {
            server,
            protocol: given(all.protocol),
            threads: given(all.threads),
            sizes,
            sender,
            recipients,
            recipients_per_message,
            messages_per_connection: given(all.messages_per_connection),
            rate: all.messages_rate,
            timeout: given(all.reply_timeout),
            maildir,
            run_time: given(all.run_time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Key;

    fn resolve(pairs: &[(&str, &str)]) -> Result<MailSettings, String> {
        let mut layer = Layer::default();
        for (name, text) in pairs {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        MailSettings::resolve(layer, "drbd").map_err(|e| e.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_study() {
        let mail = resolve(&[("server", "mail:24")]).unwrap();
        assert_eq!((mail.threads, mail.sizes.mean, mail.sizes.spread), (12, 70 << 10, 100));
        assert_eq!((mail.recipients.len(), mail.recipients_per_message), (100, 1));
        assert_eq!((mail.rate, mail.maildir), (None, None));
    }

    #[test]
    fn the_targets_name_stands_wherever_it_is_asked_for() {
        let mail = resolve(&[
            ("server", "{target}:24"),
            ("recipients", "u{1..2}@{target}"),
            ("maildir", "/srv/{target}/{domain}/{user}"),
        ])
        .unwrap();
        assert_eq!(mail.server.to_string(), "drbd:24");
        assert_eq!(mail.recipients, ["u1@drbd", "u2@drbd"]);
        assert_eq!(mail.maildir.unwrap().of("u2@drbd"), "/srv/drbd/drbd/u2");
    }

    #[test]
    fn contradictions_are_refused() {
        for (more, said) in [
            (&[][..], "has no server"),
            (&[("size_distribution", "fixed"), ("size_spread", "10")], "contradicts"),
            (&[("size_distribution", "uniform"), ("size_spread", "101")], "at most 100"),
            (&[("message_size", "600")], "at least 1K"),
            (&[("recipients", "a,b"), ("recipients_per_message", "3")], "more than there are"),
            (&[("recipients", "a,b,a")], "twice"),
            (&[("mail_host", "primary")], "add maildir"),
            (&[("maildir", "mail/{user}")], "absolute path"),
            (&[("maildir", "/srv/mail")], "write {user}"),
            (&[("maildir", "/srv/{user}"), ("recipients", "a@b,a@c")], "{domain}"),
            (&[("sender", "<>")], "sender"),
        ] {
            let server: &[(&str, &str)] = if more.is_empty() { &[] } else { &[("server", "m:24")] };
            let error = resolve(&[server, more].concat()).unwrap_err();
            assert!(error.contains(said), "{more:?}: {error}");
        }
    }
}
