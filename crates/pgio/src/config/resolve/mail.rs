//! Settings of the workload `mail`, and the contradictions between its keys.

use std::collections::BTreeSet;

use pgio_mail::settings::{
    MIN_MESSAGE_BYTES, MailServer, MailSettings, Maildir, MessageSizes, SizeDistribution,
};

use super::error::ResolveError;
use crate::config::keys::{Layer, Use, required};
use crate::config::kinds::WorkloadKind;
use crate::config::value::mail::is_address;

/// Resolves the settings; `target` replaces `{target}`.
pub fn resolve(layer: Layer, target: &str) -> Result<MailSettings, ResolveError> {
    let all = layer.over(Layer::defaults(Use::Work(WorkloadKind::Mail)));
    let wrong = |text: &str| Err(ResolveError::Workload(text.to_owned()));
    let Some(server) = all.server else {
        return wrong("the workload `mail` has no server; write server = \"host:port\"");
    };
    let server = match server {
        MailServer::Tcp(address) => MailServer::Tcp(address.replace("{target}", target)),
        MailServer::Socket(path) => MailServer::Socket(match path.to_str() {
            Some(text) => text.replace("{target}", target).into(),
            None => path,
        }),
    };
    let distribution = required(all.size_distribution);
    let spread = match (distribution, all.size_spread) {
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
    let sizes = MessageSizes { mean: required(all.message_size).0, distribution, spread };
    if sizes.mean < MIN_MESSAGE_BYTES {
        return wrong("message_size must be at least 1K, because the header takes half of it");
    }
    let sender = required(all.sender);
    if !is_address(&sender) {
        return wrong("sender must be an address such as pgio@example.org");
    }
    let recipients = required(all.recipients)
        .all(target)
        .map_err(|why| ResolveError::Workload(format!("recipients: {why}")))?;
    let recipients_per_message = required(all.recipients_per_message);
    if recipients_per_message as usize > recipients.len() {
        return wrong("recipients_per_message is larger than the number of recipients");
    }
    let different: BTreeSet<&String> = recipients.iter().collect();
    if different.len() < recipients.len() {
        return wrong("recipients contains an address twice");
    }
    let maildir = match (all.maildir, all.mail_host) {
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
        protocol: required(all.protocol),
        threads: required(all.threads),
        sizes,
        sender,
        recipients,
        recipients_per_message,
        messages_per_connection: required(all.messages_per_connection),
        rate: all.messages_rate,
        timeout: required(all.reply_timeout),
        maildir,
        run_time: required(all.run_time),
    })
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
