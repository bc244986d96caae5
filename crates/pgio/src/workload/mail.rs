//! `mail`: delivery to a real mail server, by LMTP or SMTP, and what it delivered.
//!
//! As in the study of a mail server on DRBD: some threads hand messages over as fast as they are taken,
//! or at a rate, and messages per minute are counted. [`message`] is what is sent, [`wire`] and
//! [`dialogue`] how, [`session`] one session with its retries, [`pool`] all of them in a window,
//! [`tally`] what they count. [`maildir`] finds what arrived and takes it away, [`verdict`] compares it
//! with what was accepted. The server is the user's: nothing here starts, stops or configures it.

mod dialogue;
mod maildir;
mod message;
mod pool;
mod session;
mod tally;
mod verdict;
mod wire;
mod work;

use crate::config::value::mail::{MailProtocol, MailServer};
use dialogue::NoService;

pub use maildir::LookError;
pub use work::Mail;

#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error(
        "the mail server {server} cannot be reached: {why}; start it, or correct server in [workload]"
    )]
    Unreachable { server: String, why: String },
    #[error("the mail server {server} takes no session: {said}{hint}")]
    NoService { server: String, said: String, hint: &'static str },
    #[error(
        "the mail server {server} refuses every message, such as with {said}; see its log: it must know the recipients in [workload] and take mail of this size from here"
    )]
    RefusesAll { server: String, said: String },
    #[error(
        "the mail server {server} accepted no message in the window: {what}; see its log, such as for full mail directories, a quota or unknown recipients"
    )]
    Nothing { server: String, what: String },
    #[error("delivered messages cannot be looked up in {path} on host {host}")]
    Maildir { path: String, host: String, source: Box<LookError> },
    #[error("no host `{0}` is in [hosts], and mail_host names it")]
    NoHost(String),
}

impl MailError {
    fn no_service(server: &MailServer, protocol: MailProtocol, why: &NoService) -> MailError {
        let server = server.to_string();
        match why {
            NoService::Lost(lost) => MailError::Unreachable { server, why: lost.to_string() },
            NoService::Said(reply) => {
                let unknown = (500..=504).contains(&reply.code);
                let hint = match protocol {
                    MailProtocol::Lmtp if unknown => "; it may speak protocol = \"smtp\"",
                    MailProtocol::Smtp if unknown => "; it may speak protocol = \"lmtp\"",
                    _ if reply.code == 421 => "; use fewer threads, or let it take more",
                    _ => "",
                };
                MailError::NoService { server, said: reply.to_string(), hint }
            }
        }
    }
}
