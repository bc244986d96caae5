//! The one integration binary. Servers are real; `fixture` starts and shares them.

mod config;
mod levels;
