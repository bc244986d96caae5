//! The one integration binary. Servers are real; `fixture` starts and shares them.

mod config;
mod connecting;
mod levels;
mod tls_server;
