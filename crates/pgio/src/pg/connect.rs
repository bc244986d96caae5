//! Connection parameters as libpq resolves them.
