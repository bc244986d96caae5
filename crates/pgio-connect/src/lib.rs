//! Connects to a server: resolves connection parameters as libpq does, then opens a
//! session.
//!
//! [`resolve`] reads a connection string, the service file, the environment and the password file
//! and returns [`ConnectParams`]; it is independent of the driver, so that another engine can use
//! the same values. [`connect`] opens a session with the `postgres` crate, over TLS by rustls if
//! `sslmode` requires it, and [`canceller`] cancels its statement from another thread. [`Wire`] is
//! a session that owns its socket; it connects by the route that [`reach`] found.
//!
//! `limits` drops a server that sends more than a login or an answer needs.
//!
//! This module prints nothing and reveals no secrets: passwords are [`Secret`]s, and errors and
//! descriptions name only users, hosts and files.
//!
//! Next: `resolve` for precedence, `open` for hosts and TLS fallbacks, `keywords` for the support
//! of each libpq keyword.

// What clippy.toml denies to others is done here.
#![allow(clippy::disallowed_methods)]

mod cancel;
mod conninfo;
mod endpoint;
mod env;
mod error;
mod guarded;
pub mod interrupt;
mod keywords;
mod limits;
mod open;
mod params;
mod passfile;
mod psql;
mod redact;
mod resolve;
mod secret;
mod service;
mod spell;
mod tls;
mod uri;
mod wire;

pub use cancel::{Canceller, canceller};
pub use endpoint::{Endpoint, Route};
pub use env::Env;
pub use error::{BadText, ConnectError, ConnectWarning, Source, TlsUnsupported};
pub use keywords::names_secret;
pub use limits::Excess;
pub use open::{connect, on_warning, reach};
pub use params::{
    ChannelBinding, ClientCert, ConnectParams, Keepalives, RootCert, SessionAttrs, SslMode,
    SslParams,
};
pub use resolve::{resolve, secrets};
pub use secret::Secret;
pub use spell::variables;
pub use wire::{Message, Refusal, Wire, WireError, routine, texts};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
