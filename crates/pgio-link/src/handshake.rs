//! The handshake: who dials, proof and counter-proof, a seat or a refusal with its reason.
//!
//! The coordinator proves first, so that a driver tells nothing more to a stranger; versions and builds
//! are compared only after both proofs, so that a refusal can be believed. Only the number of this
//! protocol is compared before, because it decides whether the rest can be understood.

use std::io::{Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LinkError;
use super::frame::{Frame, Inbox, LARGEST_UNPROVED};
use super::seats::Seats;
use super::token::{Binding, Prover, Token, nonce};

/// The version of handshake, frames and messages.
pub const PROTOCOL: u32 = 1;

/// What a driver says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    /// SHA-256 of the program file.
    pub build: String,
    pub host: String,
    pub pid: u32,
    /// As the engine that started it says; absent: any free one.
    pub rank: Option<u32>,
}

/// The driver's place in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Welcome {
    pub run_id: String,
    pub rank: u32,
    pub drivers: u32,
}

#[derive(Serialize, Deserialize)]
struct Opening {
    hello: Hello,
    nonce: String,
}

#[derive(Serialize, Deserialize)]
enum Challenge {
    Proof { nonce: String, proof: String },
    Refused { why: String },
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Proof(String),
    WrongToken,
}

#[derive(Serialize, Deserialize)]
enum Verdict {
    Welcome(Welcome),
    Refused { why: String },
}

/// Messages over a blocking TLS stream; what was read beyond them stays in the inbox.
pub(super) struct Talk<'a, S> {
    stream: &'a mut S,
    pub(super) inbox: Inbox,
}

impl<'a, S: Read + Write> Talk<'a, S> {
    pub(super) fn new(stream: &'a mut S) -> Talk<'a, S> {
        Talk { stream, inbox: Inbox::new(LARGEST_UNPROVED) }
    }

    fn say<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let json = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        let bytes = Frame::Message(json).encode().map_err(|e| e.to_string())?;
        let said = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        said.map_err(|e| e.to_string())
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut buffer = [0; 4096];
        loop {
            match self.inbox.take()? {
                Some(Frame::Message(json)) => {
                    return serde_json::from_slice(&json)
                        .map_err(|_| "the peer does not speak pgio's protocol".to_owned());
                }
                Some(_) => return Err("the peer does not speak pgio's protocol".to_owned()),
                None => {}
            }
            match self.stream.read(&mut buffer).map_err(|e| e.to_string())? {
                0 => return Err("the peer closed the connection".to_owned()),
                read => self.inbox.push(&buffer[..read]),
            }
        }
    }
}

/// The driver's side.
pub(super) fn greet<S: Read + Write>(
    talk: &mut Talk<'_, S>,
    exported: &[u8; 32],
    token: &Token,
    hello: &Hello,
    address: &str,
) -> Result<Welcome, LinkError> {
    let failed = |why| LinkError::Handshake { address: address.to_owned(), why };
    let refused = |why| LinkError::Refused { address: address.to_owned(), why };
    let driver_nonce = nonce()?;
    talk.say(&Opening { hello: hello.clone(), nonce: driver_nonce.clone() }).map_err(failed)?;
    let (coordinator_nonce, proof) = match talk.hear().map_err(failed)? {
        Challenge::Proof { nonce, proof } => (nonce, proof),
        Challenge::Refused { why } => return Err(refused(why)),
    };
    let binding =
        Binding { exported, driver_nonce: &driver_nonce, coordinator_nonce: &coordinator_nonce };
    if !token.proves(Prover::Coordinator, &binding, &proof) {
        // The coordinator may show its user who dialed; nothing depends on its hearing this.
        let _ = talk.say(&Answer::WrongToken);
        return Err(LinkError::WrongToken { address: address.to_owned() });
    }
    talk.say(&Answer::Proof(token.proof(Prover::Driver, &binding))).map_err(failed)?;
    match talk.hear().map_err(failed)? {
        Verdict::Welcome(welcome) => Ok(welcome),
        Verdict::Refused { why } => Err(refused(why)),
    }
}

/// What the coordinator knows when a driver dials.
#[derive(Debug)]
pub(super) struct House<'a> {
    pub token: &'a Token,
    pub run_id: &'a str,
    pub version: &'a str,
    pub build: &'a str,
    pub seats: &'a Seats,
}

/// The coordinator's side: takes a seat for the driver, or says why not.
pub(super) fn admit<S: Read + Write>(
    talk: &mut Talk<'_, S>,
    exported: &[u8; 32],
    house: &House<'_>,
) -> Result<(Hello, u32), (Option<Hello>, String)> {
    let Opening { hello, nonce: driver_nonce } = talk.hear().map_err(|why| (None, why))?;
    let failed = |why| (Some(hello.clone()), why);
    if hello.protocol != PROTOCOL {
        let why = format!(
            "the coordinator speaks version {PROTOCOL} of the protocol, this driver version {}",
            hello.protocol
        );
        let _ = talk.say(&Challenge::Refused { why: why.clone() });
        return Err(failed(why));
    }
    let coordinator_nonce = nonce().map_err(|e| failed(e.to_string()))?;
    let binding =
        Binding { exported, driver_nonce: &driver_nonce, coordinator_nonce: &coordinator_nonce };
    let proof = house.token.proof(Prover::Coordinator, &binding);
    let challenge = Challenge::Proof { nonce: coordinator_nonce.clone(), proof };
    talk.say(&challenge).map_err(failed)?;
    let proved = match talk.hear().map_err(failed)? {
        Answer::Proof(proof) => house.token.proves(Prover::Driver, &binding, &proof),
        Answer::WrongToken => false,
    };
    if !proved {
        let why = "its token is not this run's".to_owned();
        let _ = talk.say(&Verdict::Refused { why: why.clone() });
        return Err(failed(why));
    }
    let seat = match same_build(&hello, house) {
        Ok(()) => house.seats.take(hello.rank),
        Err(why) => Err(why),
    };
    match seat {
        Ok(rank) => {
            let run_id = house.run_id.to_owned();
            let welcome = Welcome { run_id, rank, drivers: house.seats.count() };
            if let Err(why) = talk.say(&Verdict::Welcome(welcome)) {
                house.seats.free(rank);
                return Err(failed(why));
            }
            Ok((hello, rank))
        }
        Err(why) => {
            let _ = talk.say(&Verdict::Refused { why: why.clone() });
            Err(failed(why))
        }
    }
}

fn same_build(hello: &Hello, house: &House<'_>) -> Result<(), String> {
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    if hello.version != house.version {
        return Err(format!(
            "the coordinator is pgio {}, this driver pgio {}: install the same version on both",
            house.version, hello.version
        ));
    }
    if hello.build != house.build {
        return Err(format!(
            "the coordinator is build {}, this driver build {} of pgio {}: copy the same program file to both",
            short(house.build),
            short(&hello.build),
            house.version
        ));
    }
    Ok(())
}
