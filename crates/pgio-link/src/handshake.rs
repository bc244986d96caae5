//! The handshake: who dials, proof and counter-proof, a rank or a refusal with its reason.
//!
//! The coordinator proves first, so that a driver tells nothing more to an unknown peer; versions and builds
//! are compared only after both proofs, so that a refusal can be believed. Only the number of this
//! protocol is compared before, because it decides whether the rest can be understood.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LinkError;
use super::frame::{Frame, Inbox, MAX_UNPROVED_BYTES};
use super::token::{Binding, Prover, Token, nonce};

/// The version of handshake, frames and messages.
pub const PROTOCOL: u32 = 1;
/// Characters of each text that is taken from a peer before its proof; such texts are shown and kept.
const MAX_TEXT: usize = 200;

/// How a driver introduces itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    /// SHA-256 of the program file.
    pub build: String,
    pub host: String,
    pub pid: u32,
    /// The rank that the engine gave it; absent: any free one.
    pub rank: Option<u32>,
}

impl Hello {
    fn shortened(self) -> Hello {
        Hello {
            version: shorten(self.version),
            build: shorten(self.build),
            host: shorten(self.host),
            ..self
        }
    }
}

fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
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
pub(super) struct MessageStream<'a, S> {
    stream: &'a mut S,
    pub(super) inbox: Inbox,
}

impl<'a, S: Read + Write> MessageStream<'a, S> {
    pub(super) fn new(stream: &'a mut S) -> MessageStream<'a, S> {
        MessageStream { stream, inbox: Inbox::new(MAX_UNPROVED_BYTES) }
    }

    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let json = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        let bytes = Frame::Message(json).encode().map_err(|e| e.to_string())?;
        let written = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        written.map_err(|e| e.to_string())
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T, String> {
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
pub(super) fn request_admission<S: Read + Write>(
    messages: &mut MessageStream<'_, S>,
    exported: &[u8; 32],
    token: &Token,
    hello: &Hello,
    address: &str,
) -> Result<Welcome, LinkError> {
    let failed = |why| LinkError::Handshake { address: address.to_owned(), why };
    let refused = |why| LinkError::Refused { address: address.to_owned(), why };
    let driver_nonce = nonce()?;
    messages
        .send(&Opening { hello: hello.clone(), nonce: driver_nonce.clone() })
        .map_err(failed)?;
    let (coordinator_nonce, proof) = match messages.receive().map_err(failed)? {
        Challenge::Proof { nonce, proof } => (nonce, proof),
        Challenge::Refused { why } => {
            let (address, why) = (address.to_owned(), shorten(why));
            return Err(LinkError::RefusedWithoutProof { address, why });
        }
    };
    let binding =
        Binding { exported, driver_nonce: &driver_nonce, coordinator_nonce: &coordinator_nonce };
    if !token.proves(Prover::Coordinator, &binding, &proof) {
        // The coordinator may show its user who dialed; nothing depends on its hearing this.
        let _ = messages.send(&Answer::WrongToken);
        return Err(LinkError::WrongToken { address: address.to_owned() });
    }
    messages.send(&Answer::Proof(token.proof(Prover::Driver, &binding))).map_err(failed)?;
    match messages.receive().map_err(failed)? {
        Verdict::Welcome(welcome) => Ok(welcome),
        Verdict::Refused { why } => Err(refused(why)),
    }
}

/// What the coordinator checks a driver against.
#[derive(Debug)]
pub(super) struct Coordinator<'a> {
    pub token: &'a Token,
    pub run_id: &'a str,
    pub version: &'a str,
    pub build: &'a str,
    pub ranks: &'a Ranks,
}

/// The coordinator's side: assigns a rank to the driver, or says why not.
pub(super) fn admit<S: Read + Write>(
    messages: &mut MessageStream<'_, S>,
    exported: &[u8; 32],
    coordinator: &Coordinator<'_>,
) -> Result<(Hello, u32), (Option<Hello>, String)> {
    let Opening { hello, nonce: driver_nonce } = messages.receive().map_err(|why| (None, why))?;
    let hello = hello.shortened();
    let failed = |why| (Some(hello.clone()), why);
    if hello.protocol != PROTOCOL {
        let why = format!(
            "the coordinator uses version {PROTOCOL} of the protocol, this driver version {}: install the same pgio on both",
            hello.protocol
        );
        let _ = messages.send(&Challenge::Refused { why: why.clone() });
        return Err(failed(why));
    }
    let coordinator_nonce = nonce().map_err(|e| failed(e.to_string()))?;
    let binding =
        Binding { exported, driver_nonce: &driver_nonce, coordinator_nonce: &coordinator_nonce };
    let proof = coordinator.token.proof(Prover::Coordinator, &binding);
    let challenge = Challenge::Proof { nonce: coordinator_nonce.clone(), proof };
    messages.send(&challenge).map_err(failed)?;
    let proved = match messages.receive().map_err(failed)? {
        Answer::Proof(proof) => coordinator.token.proves(Prover::Driver, &binding, &proof),
        Answer::WrongToken => false,
    };
    if !proved {
        let why = "its token is not this run's".to_owned();
        let _ = messages.send(&Verdict::Refused { why: why.clone() });
        return Err(failed(why));
    }
    let admission = match check_build(&hello, coordinator) {
        Ok(()) => coordinator.ranks.take(hello.rank),
        Err(why) => Err(why),
    };
    match admission {
        Ok(rank) => {
            let run_id = coordinator.run_id.to_owned();
            let welcome = Welcome { run_id, rank, drivers: coordinator.ranks.count() };
            if let Err(why) = messages.send(&Verdict::Welcome(welcome)) {
                coordinator.ranks.free(rank);
                return Err(failed(why));
            }
            Ok((hello, rank))
        }
        Err(why) => {
            let _ = messages.send(&Verdict::Refused { why: why.clone() });
            Err(failed(why))
        }
    }
}

fn check_build(hello: &Hello, coordinator: &Coordinator<'_>) -> Result<(), String> {
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    if hello.version != coordinator.version {
        return Err(format!(
            "the coordinator is pgio {}, this driver pgio {}: install the same version on both",
            coordinator.version, hello.version
        ));
    }
    if hello.build != coordinator.build {
        return Err(format!(
            "the coordinator is build {}, this driver build {} of pgio {}: copy the same program file to both",
            short(coordinator.build),
            short(&hello.build),
            coordinator.version
        ));
    }
    Ok(())
}

/// The ranks of the run's drivers: who is connected now.
#[derive(Debug)]
pub struct Ranks(Mutex<Vec<bool>>);

impl Ranks {
    pub fn new(count: u32) -> Arc<Ranks> {
        Arc::new(Ranks(Mutex::new(vec![false; count as usize])))
    }

    pub fn count(&self) -> u32 {
        self.ranks().len() as u32
    }

    fn ranks(&self) -> MutexGuard<'_, Vec<bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes this rank, or any free one.
    pub(super) fn take(&self, rank: Option<u32>) -> Result<u32, String> {
        let mut ranks = self.ranks();
        let count = ranks.len();
        let free = match rank {
            Some(rank) if rank as usize >= count => {
                return Err(format!(
                    "it has rank {rank}, but the run has {count} drivers, from rank 0"
                ));
            }
            Some(rank) if ranks[rank as usize] => {
                return Err(format!("a driver of rank {rank} is connected already"));
            }
            Some(rank) => rank as usize,
            None => ranks
                .iter()
                .position(|taken| !taken)
                .ok_or_else(|| format!("all {count} drivers of the run are connected already"))?,
        };
        ranks[free] = true;
        Ok(free as u32)
    }

    pub fn free(&self, rank: u32) {
        if let Some(taken) = self.ranks().get_mut(rank as usize) {
            *taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_fuzz::{fuzz, print};
    use std::io;

    /// A peer that says what it says, whatever it is asked.
    struct Peer<'a>(&'a [u8]);

    impl Read for Peer<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Peer<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said<T: Serialize>(message: &T) -> Vec<u8> {
        Frame::Message(serde_json::to_vec(message).unwrap()).encode().unwrap()
    }

    #[test]
    fn fuzzed_peers_are_refused_on_both_sides() {
        let token = Token::draw().unwrap();
        let (version, build) = ("2.0.0".to_owned(), "ab".repeat(32));
        let (host, nonce) = ("h".to_owned(), "cd".repeat(16));
        let hello = Hello { protocol: PROTOCOL, version, build, host, pid: 7, rank: Some(1) };
        let proof = "ef".repeat(32);
        let opening = Opening { hello: hello.clone(), nonce: nonce.clone() };
        let refused = Challenge::Refused { why: "no".to_owned() };
        let samples = [
            [said(&opening), said(&Answer::Proof(proof.clone()))].concat(),
            [said(&opening), said(&Answer::WrongToken)].concat(),
            said(&Challenge::Proof { nonce, proof }),
            said(&refused),
        ];
        let ranks = Ranks::new(2);
        let coordinator = Coordinator {
            token: &token,
            run_id: "r",
            version: &hello.version,
            build: &hello.build,
            ranks: &ranks,
        };
        fuzz(&samples, |bytes| {
            let admitted = admit(&mut MessageStream::new(&mut Peer(bytes)), &[0; 32], &coordinator);
            let (_, why) = admitted.map(drop).unwrap_err();
            assert!(!why.is_empty());
            let mut stream = Peer(bytes);
            let mut messages = MessageStream::new(&mut stream);
            let welcome = request_admission(&mut messages, &[0; 32], &token, &hello, "h:1");
            print(&welcome.map(drop).unwrap_err());
        });
    }

    #[test]
    fn a_driver_gets_the_requested_rank_or_any_free_one() {
        let ranks = Ranks::new(3);
        assert_eq!(ranks.take(Some(1)), Ok(1));
        assert_eq!(ranks.take(None), Ok(0));
        assert!(ranks.take(Some(1)).unwrap_err().contains("rank 1 is connected already"));
        assert!(ranks.take(Some(3)).unwrap_err().contains("the run has 3 drivers"));
        assert_eq!(ranks.take(None), Ok(2));
        assert!(ranks.take(None).unwrap_err().contains("all 3 drivers"));
        ranks.free(1);
        assert_eq!(ranks.take(None), Ok(1));
    }
}
