//! The roles of a private cluster's servers, which determine the names of files and sockets.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Standby,
}

impl Role {
    /// Name used in files, in `application_name`, and in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Standby => "standby",
        }
    }

    pub(super) fn log(self) -> &'static str {
        match self {
            Self::Primary => "primary.log",
            Self::Standby => "standby.log",
        }
    }

    /// Port number in the socket's name; nothing listens on a network.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Primary => 5432,
            Self::Standby => 5433,
        }
    }
}
