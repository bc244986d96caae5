//! The type of passwords. It has no Display and no Serialize, so that none is shown or stored.

use std::fmt;

/// A password: bytes, since a server may use another encoding than UTF-8. It has no Display and no
/// Serialize, and Debug redacts.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Secret(text.into())
    }

    /// The password as it is, only for sending it to the server.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
