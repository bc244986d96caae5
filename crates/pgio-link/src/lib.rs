//! The connection between the coordinator and its drivers, usable without pgio.
//!
//! A driver dials in; nothing listens on a driver. Both prove that they know one token before either
//! trusts a word of the other ([`handshake`]); the proof is bound to the TLS session, so no certificate
//! authority is needed. Messages are JSON in bounded frames ([`frame`]). One thread per connection
//! ([`link`]) sends, receives, answers pings and notices silence; [`offset`] makes the offset of two
//! clocks of round trips.
//!
//! This crate knows neither PostgreSQL nor experiments. It prints nothing and reveals no token.

mod deadline;
mod dial;
mod error;
mod frame;
mod handshake;
mod identity;
mod link;
mod listen;
mod offset;
mod tls;
mod token;

pub use self::handshake::Ranks;
pub use dial::{Patience, dial};
pub use error::LinkError;
pub use frame::MAX_FRAME_BYTES;
pub use handshake::{Hello, PROTOCOL, Welcome};
pub use identity::{build_hash, host_name, local_addresses};
pub use link::{Event, Link, Role};
pub use listen::{Arrival, Listener, Place, Run};
pub use offset::{Clock, Offset, RoundTrip};
pub use token::{COORDINATOR_VARIABLE, TOKEN_VARIABLE, Token};
