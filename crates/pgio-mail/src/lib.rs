//! Delivers messages to a real mail server by LMTP or SMTP, and checks what arrived.
//!
//! A [`session::MailSession`] sends one message after the other over its connection: in a closed loop,
//! or on the schedule of an open loop that all sessions share. It retries what the server defers and
//! counts everything in a [`tally::Tally`]. [`message`] composes messages, [`dialogue`] speaks the
//! protocols over [`wire`]. [`maildir`] finds the delivered copies, which carry a checksum, and removes
//! them; [`maildir::compare`] compares them with what was accepted.
//!
//! The server is the user's: nothing here starts, stops or configures it. Nothing here knows
//! PostgreSQL, experiments or remote hosts.

mod dialogue;
pub mod error;
pub mod maildir;
pub mod message;
pub mod schedule;
pub mod session;
pub mod settings;
pub mod tally;
pub mod wire;

pub use error::MailError;
