//! The one integration binary. Servers are real; `fixture` starts and shares them.

// Helpers outside of test functions may panic as well: that fails the test.
#![allow(clippy::unwrap_used)]

mod connecting;
mod levels;
mod tls_server;
