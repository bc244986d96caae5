//! Why mail cannot be delivered or looked up, with a hint of what to do.

use super::dialogue::SessionStartError;
use super::maildir::MaildirError;
use super::settings::{MailProtocol, MailServer};

#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error(
        "cannot reach the mail server {server}: {why}; start it, or correct server in [workload]"
    )]
    Unreachable { server: String, why: String },
    #[error("the mail server {server} refuses the session: {reply}{hint}")]
    SessionStartError { server: String, reply: String, hint: &'static str },
    #[error(
        "the mail server {server} refuses every message, for example with {reply}; see its log: it must know the recipients in [workload] and accept mail of this size from this host"
    )]
    RefusesAll { server: String, reply: String },
    #[error(
        "the mail server {server} accepted no message in the window: {what}; see its log for full mail directories, a quota or unknown recipients"
    )]
    Nothing { server: String, what: String },
    #[error("cannot look up delivered messages in {path} on host {host}")]
    Maildir { path: String, host: String, source: Box<MaildirError> },
}

impl MailError {
    pub(crate) fn no_service(
        server: &MailServer,
        protocol: MailProtocol,
        why: &SessionStartError,
    ) -> MailError {
        let server = server.to_string();
        match why {
            SessionStartError::Lost(lost) => {
                MailError::Unreachable { server, why: lost.to_string() }
            }
            SessionStartError::Refused(reply) => {
                let unknown = (500..=504).contains(&reply.code);
                let hint = match protocol {
                    MailProtocol::Lmtp if unknown => {
                        "; if it is an SMTP server, set protocol = \"smtp\""
                    }
                    MailProtocol::Smtp if unknown => {
                        "; if it is an LMTP server, set protocol = \"lmtp\""
                    }
                    _ if reply.code == 421 => {
                        "; use fewer threads, or raise the server's connection limit"
                    }
                    _ => "",
                };
                MailError::SessionStartError { server, reply: reply.to_string(), hint }
            }
        }
    }
}
