//! Errors of reading a server's properties.

/// Oldest supported major version.
pub const OLDEST: u32 = 13;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot read {what} from the server")]
    Read { what: &'static str, source: postgres::Error },
    #[error("the server is PostgreSQL {0}; pgio needs {OLDEST} or newer")]
    TooOld(String),
    #[error(
        "the session is connected to database `{found}`, but DBNAME is `{asked}`: specify the same database in CONNECT_STRING and DBNAME"
    )]
    OtherDatabase { asked: String, found: String },
    #[error("the server is a standby, and workloads write: connect to the primary")]
    Standby,
}

impl From<postgres::Error> for ServerError {
    fn from(source: postgres::Error) -> ServerError {
        read("an answer")(source)
    }
}

pub(super) fn read(what: &'static str) -> impl Fn(postgres::Error) -> ServerError {
    move |source| ServerError::Read { what, source }
}
