//! Errors of a connection.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(
        "no coordinator answers at {addresses}; check that `pgio compare` is running and that this host can reach it"
    )]
    Unreachable { addresses: String, source: io::Error },
    #[error(
        "no address leads to this driver's coordinator; check that `pgio compare` is running and that this host can reach it: {failures}"
    )]
    NoCoordinator { failures: String },
    #[error("the coordinator at {address} refuses this driver: {why}")]
    Refused { address: String, why: String },
    #[error(
        "the coordinator at {address} refused this driver before the token was verified: {why}"
    )]
    RefusedWithoutProof { address: String, why: String },
    #[error(
        "the coordinator at {address} does not know this driver's token: start the driver with the token of the run"
    )]
    WrongToken { address: String },
    #[error("the connection to {address} failed during the handshake: {why}")]
    Handshake { address: String, why: String },
    #[error(
        "a token is 32 to 128 characters of 0-9 and a-f, such as `openssl rand -hex 32` prints"
    )]
    BadToken,
    #[error("cannot listen for drivers on {address}")]
    Listen { address: String, source: io::Error },
    #[error("cannot create TLS keys: {0}")]
    Tls(String),
    #[error("cannot read the program file of pgio for its hash")]
    Program(#[source] io::Error),
    #[error(
        "a message of {bytes} bytes exceeds the limit of {limit}; use more drivers, or fewer sessions"
    )]
    TooLarge { bytes: usize, limit: usize },
    #[error(
        "the clock of {peer} cannot be measured: {answered} of {asked} round trips were answered in {seconds} s"
    )]
    Clock { peer: String, answered: usize, asked: usize, seconds: u64 },
    #[error("cannot start a thread or a connection: {0}")]
    System(#[from] io::Error),
}
