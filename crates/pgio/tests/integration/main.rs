//! The one integration binary. Servers are real; `fixture` starts and shares them.

// clippy.toml excuses only the test functions, not what they call.
#![allow(clippy::unwrap_used)]

mod config;
mod connecting;
mod fixture;
mod levels;
mod loading;
mod private_cluster;
mod tls_server;
