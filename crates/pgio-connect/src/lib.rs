//! Reaching a server: connection parameters exactly as libpq resolves them, then a connection.
//!
//! [`resolve`] reads a connect string, the service file, the environment and the password file
//! and gives [`ConnectParams`]; it knows nothing of the driver, so that another engine can start
//! from the same values. [`connect`] opens a session with the `postgres` crate, over TLS by
//! rustls where `sslmode` asks for it, and [`canceller`] stops its statement from another thread.
//! [`Wire`] is a session whose socket is ours, opened on the way that [`reach`] found.
//!
//! A server that sends more than a login or an answer needs is left: `limits`.
//!
//! Nothing here prints, and no secret leaves: passwords are [`Secret`]s, and errors and
//! descriptions name users, hosts and files only.
//!
//! Next: `resolve` for precedence, `open` for hosts and TLS fallbacks, `keywords` for what
//! becomes of each libpq keyword.

mod cancel;
mod conninfo;
mod env;
mod error;
mod guarded;
pub mod interrupt;
mod keywords;
mod limits;
mod open;
mod params;
mod passfile;
mod redact;
mod resolve;
mod service;
mod spell;
mod tls;
mod uri;
mod wire;

pub use cancel::{Canceller, canceller};
pub use env::Env;
pub use error::{BadText, ConnectError, ConnectWarning, Source};
pub use limits::Excess;
pub use open::{Route, connect, reach};
pub use params::{
    ChannelBinding, ClientCert, ConnectParams, Endpoint, Keepalives, RootCert, Secret,
    SessionAttrs, SslMode, SslParams,
};
pub use resolve::resolve;
pub use spell::variables;
pub use wire::{Message, Refusal, Wire, WireError, texts};
