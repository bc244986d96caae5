//! Frames: four bytes of length, one of kind, the body.
//!
//! A peer may claim any length, so both sides bound it before they make room.

use super::error::LinkError;

/// The largest frame: a plan for thousands of sessions, or the histograms of all classes.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// The largest frame before the peer has proved that it knows the token.
pub(super) const MAX_UNPROVED_BYTES: usize = 8 << 10;

const HEADER: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A JSON document.
    Message(Vec<u8>),
    /// The sender's clock, to be sent back.
    Ping(i64),
    /// The clock of the ping, and its receiver's.
    Pong(i64, i64),
}

impl Frame {
    pub(super) fn encode(&self) -> Result<Vec<u8>, LinkError> {
        let (kind, body) = match self {
            Frame::Message(json) => (0, json.clone()),
            Frame::Ping(sent) => (1, sent.to_be_bytes().to_vec()),
            Frame::Pong(sent, peer) => (2, [sent.to_be_bytes(), peer.to_be_bytes()].concat()),
        };
        let length = u32::try_from(body.len()).ok().filter(|n| *n as usize <= MAX_FRAME_BYTES);
        let length =
            length.ok_or(LinkError::TooLarge { bytes: body.len(), limit: MAX_FRAME_BYTES })?;
        Ok([length.to_be_bytes().as_slice(), &[kind], &body].concat())
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Frame> {
        match kind {
            0 => Some(Frame::Message(body.to_vec())),
            1 => Some(Frame::Ping(i64::from_be_bytes(body.try_into().ok()?))),
            2 => {
                let (sent, peer) = body.split_at_checked(8)?;
                let read = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
                Some(Frame::Pong(read(sent)?, read(peer)?))
            }
            _ => None,
        }
    }
}

/// Bytes that were received and not yet taken.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    limit: usize,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Inbox {
        Inbox { bytes: Vec::new(), limit }
    }

    /// The peer has proved that it may send more.
    pub(super) fn trust(&mut self) {
        self.limit = MAX_FRAME_BYTES;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, if there is one. A frame that is too long or of an unknown kind is an
    /// error: what follows has no meaning.
    pub(super) fn take(&mut self) -> Result<Option<Frame>, String> {
        let Some((header, rest)) = self.bytes.split_at_checked(HEADER) else { return Ok(None) };
        let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if length > self.limit {
            return Err(format!("a frame of {length} bytes exceeds the limit of {}", self.limit));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(header[4], body);
        let frame = frame.ok_or_else(|| format!("a frame of unknown kind {}", header[4]))?;
        self.bytes.drain(..HEADER + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use pgio_fuzz::fuzz;

    use super::*;

    #[test]
    fn frames_are_decoded_from_pieces_of_any_size() {
        let sent = [
            Frame::Message(b"{}".to_vec()),
            Frame::Ping(-7),
            Frame::Pong(3, i64::MAX),
            Frame::Message(Vec::new()),
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(|f| f.encode().unwrap()).collect();
        for size in 1..bytes.len() {
            let mut inbox = Inbox::new(MAX_UNPROVED_BYTES);
            let mut received = Vec::new();
            for piece in bytes.chunks(size) {
                inbox.push(piece);
                while let Some(frame) = inbox.take().unwrap() {
                    received.push(frame);
                }
            }
            assert_eq!(received, sent, "{size}");
        }
    }

    #[test]
    fn fuzzed_frames_are_decoded_or_refused_alike_in_pieces_of_any_size() {
        let all = [Frame::Message(b"{}".to_vec()), Frame::Ping(-7), Frame::Pong(3, i64::MAX)];
        let sample = all.iter().flat_map(|frame| frame.encode().unwrap()).collect::<Vec<u8>>();
        let received = |bytes: &[u8], size| {
            let (mut inbox, mut frames) = (Inbox::new(MAX_UNPROVED_BYTES), Vec::new());
            for piece in bytes.chunks(size) {
                inbox.push(piece);
                loop {
                    match inbox.take() {
                        Ok(Some(frame)) => frames.push(frame),
                        Ok(None) => break,
                        Err(why) => return (frames, Some(why)),
                    }
                }
            }
            (frames, None)
        };
        fuzz(&[sample], |bytes| {
            assert_eq!(received(bytes, 3), received(bytes, bytes.len().max(1)));
        });
    }

    #[test]
    fn a_frame_is_bounded_and_of_a_known_kind() {
        let mut inbox = Inbox::new(MAX_UNPROVED_BYTES);
        inbox.push(&[0, 1, 0, 0, 0]);
        assert!(inbox.take().unwrap_err().contains("exceeds the limit"));
        inbox.trust();
        assert_eq!(inbox.take(), Ok(None));
        for bad in [
            [0, 0, 0, 0, 9].as_slice(),
            &[0, 0, 0, 1, 1, 0],
            &[0, 0, 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            let mut inbox = Inbox::new(MAX_FRAME_BYTES);
            inbox.push(bad);
            assert!(inbox.take().is_err(), "{bad:?}");
        }
    }
}
