//! Connects to a server: resolves connection parameters as libpq does, then opens a
//! session.
//!
//! [`resolve`] reads a connection string, the service file, the environment and the password file
//! and returns [`ConnectParams`]; it is independent of the driver, so that another engine can use
//! the same values. [`connect`] opens a [`Client`], over TLS by rustls if `sslmode` requires it, and a
//! [`Canceller`] cancels its statement from another thread. [`Wire`] is a session without a driver; it
//! connects by the route of a client.
//!
//! `limits` drops a server that sends more than a login or an answer needs.
//!
//! This module prints nothing and reveals no secrets: passwords are [`Secret`]s, and errors and
//! descriptions name only users, hosts and files.
//!
//! Next: `resolve` for precedence, `open` for hosts and TLS fallbacks, `login` for one session,
//! `keywords` for the support of each libpq keyword.

// What clippy.toml denies to others is done here.
#![allow(clippy::disallowed_methods)]

mod attempt;
mod certificate;
mod client;
mod conninfo;
mod env;
mod error;
pub mod interrupt;
mod keywords;
mod limits;
mod login;
mod message;
mod open;
mod params;
mod passfile;
mod psql;
mod resolve;
#[cfg(any(test, feature = "test-support"))]
pub mod scripted;
mod secret;
mod service;
mod socket;
mod spell;
mod stream;
mod tls;
mod uri;
mod wire;

pub use self::socket::{Endpoint, Route};
pub use client::{Client, CopyIn, Transaction};
pub use env::Env;
pub use error::{BadText, ConnectError, ConnectWarning, Source, TlsUnsupported};
pub use keywords::names_secret;
pub use limits::Excess;
pub use login::Canceller;
pub use message::{Message, Refusal, WireError, routine, texts};
pub use open::{connect, on_warning};
pub use params::{
    ChannelBinding, ClientCert, ConnectParams, Keepalives, RootCert, SessionAttrs, SslMode,
    SslParams,
};
pub use resolve::{resolve, secrets};
pub use secret::Secret;
pub use spell::variables;
pub use tokio_postgres::error::{DbError, SqlState};
pub use tokio_postgres::{Error, Row, SimpleQueryMessage, SimpleQueryRow, Statement, types};
pub use wire::Wire;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
