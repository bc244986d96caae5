//! LMTP and SMTP: the greeting, then one message after the other.
//!
//! Sends one command at a time, as most senders do, because a server may refuse at any step. Each
//! recipient has a [`DeliveryOutcome`]. A message is accepted only after a positive reply to the final dot. If the
//! connection ends between the dot and the reply, the fate is unknown; if it ends before the dot, the
//! message was not delivered. [`super::session`] decides about retries.

use std::io::{Read, Write};
use std::time::Instant;

use super::settings::MailProtocol;
use super::wire::{ReplyError, Wire};

/// A reply: its code, and the text of its last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Reply {
    fn is_positive(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn is_transient(&self) -> bool {
        (400..500).contains(&self.code)
    }

    fn is_permanent(&self) -> bool {
        (500..600).contains(&self.code)
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.text)
    }
}

/// The result of one attempt to deliver a message to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// Certainly not delivered, without a decision of the server.
    Untried,
    Accepted,
    /// 4xx: may be retried.
    Deferred(Reply),
    /// 5xx: must not be retried.
    Refused(Reply),
    /// The message was sent, but no reply came.
    Unknown,
}

/// Why a session cannot start.
#[derive(Debug)]
pub(crate) enum SessionStartError {
    Lost(ReplyError),
    Refused(Reply),
}

impl From<ReplyError> for SessionStartError {
    fn from(lost: ReplyError) -> SessionStartError {
        SessionStartError::Lost(lost)
    }
}

/// A reply with more lines is malformed.
const MAX_LINES: usize = 256;

#[derive(Debug)]
pub(crate) struct Dialogue<S> {
    wire: Wire<S>,
    protocol: MailProtocol,
}

impl<S: Read + Write> Dialogue<S> {
    /// Waits for the greeting and sends LHLO or EHLO.
    pub(crate) fn open(
        wire: Wire<S>,
        protocol: MailProtocol,
    ) -> Result<Dialogue<S>, SessionStartError> {
        let mut dialogue = Dialogue { wire, protocol };
        let hello = match protocol {
            MailProtocol::Lmtp => "LHLO pgio.localdomain",
            MailProtocol::Smtp => "EHLO pgio.localdomain",
        };
        let greeting = dialogue.read_reply()?;
        if greeting.code != 220 {
            return Err(SessionStartError::Refused(greeting));
        }
        let reply = dialogue.send_command(hello)?;
        if !reply.is_positive() {
            return Err(SessionStartError::Refused(reply));
        }
        Ok(dialogue)
    }

    /// Delivers one message; `wire` ends with the final dot. If the second part is present, the
    /// connection is lost.
    pub(crate) fn deliver(
        &mut self,
        sender: &str,
        to: &[&str],
        wire: &[u8],
    ) -> (Vec<DeliveryOutcome>, Option<ReplyError>) {
        let mut outcomes = vec![DeliveryOutcome::Untried; to.len()];
        let lost = self.transaction(sender, to, wire, &mut outcomes).err();
        (outcomes, lost)
    }

    fn transaction(
        &mut self,
        sender: &str,
        to: &[&str],
        wire: &[u8],
        outcomes: &mut [DeliveryOutcome],
    ) -> Result<(), ReplyError> {
        let reply = self.send_command(&format!("MAIL FROM:<{sender}>"))?;
        if !reply.is_positive() {
            return self.apply_reply(outcomes, &(0..to.len()).collect::<Vec<_>>(), &reply);
        }
        let mut open = Vec::new();
        for (index, recipient) in to.iter().enumerate() {
            let reply = self.send_command(&format!("RCPT TO:<{recipient}>"))?;
            if reply.is_positive() {
                open.push(index);
            } else {
                self.apply_reply(outcomes, &[index], &reply)?;
            }
        }
        if open.is_empty() {
            // The server accepted the sender; end that transaction.
            return self.send_command("RSET").map(drop);
        }
        let reply = self.send_command("DATA")?;
        if reply.code != 354 {
            if reply.is_positive() {
                // Nothing was sent yet that it could have accepted.
                return Err(ReplyError::Garbage(reply.to_string()));
            }
            self.apply_reply(outcomes, &open, &reply)?;
            return self.send_command("RSET").map(drop);
        }
        // A message that is not sent completely is not accepted.
        self.wire.send(wire)?;
        open.iter().for_each(|index| outcomes[*index] = DeliveryOutcome::Unknown);
        match self.protocol {
            // One reply for each accepted recipient, in order (RFC 2033, 4.2).
            MailProtocol::Lmtp => {
                for (answered, index) in open.iter().enumerate() {
                    let reply = self.read_reply()?;
                    if closes_connection(&reply) {
                        self.apply_reply(outcomes, &open[answered..], &reply)?;
                    } else {
                        self.apply_reply(outcomes, &[*index], &reply)?;
                    }
                }
                Ok(())
            }
            MailProtocol::Smtp => {
                let reply = self.read_reply()?;
                self.apply_reply(outcomes, &open, &reply)
            }
        }
    }

    /// Applies one reply to several recipients. 421 is a reply, too, and the last one.
    fn apply_reply(
        &self,
        outcomes: &mut [DeliveryOutcome],
        recipients: &[usize],
        reply: &Reply,
    ) -> Result<(), ReplyError> {
        let outcome = match reply {
            _ if reply.is_positive() => DeliveryOutcome::Accepted,
            _ if reply.is_transient() => DeliveryOutcome::Deferred(reply.clone()),
            _ if reply.is_permanent() => DeliveryOutcome::Refused(reply.clone()),
            _ => return Err(ReplyError::Garbage(reply.to_string())),
        };
        recipients.iter().for_each(|index| outcomes[*index] = outcome.clone());
        if closes_connection(reply) { Err(ReplyError::Leaving(reply.to_string())) } else { Ok(()) }
    }

    fn send_command(&mut self, command: &str) -> Result<Reply, ReplyError> {
        if self.wire.has_more() {
            // A server may send 421 at any time; anything else is out of step.
            let reply = self.read_reply()?;
            return Err(if closes_connection(&reply) {
                ReplyError::Leaving(reply.to_string())
            } else {
                ReplyError::Garbage(reply.to_string())
            });
        }
        self.wire.send(format!("{command}\r\n").as_bytes())?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> Result<Reply, ReplyError> {
        let since = Instant::now();
        for _ in 0..MAX_LINES {
            let line = self.wire.line(since)?;
            let garbage = || ReplyError::Garbage(line.chars().take(80).collect());
            let code = line.get(..3).filter(|c| c.bytes().all(|b| b.is_ascii_digit()));
            let code: u16 = code.and_then(|c| c.parse().ok()).ok_or_else(garbage)?;
            if !(200..600).contains(&code) {
                return Err(garbage());
            }
            match line.as_bytes().get(3) {
                Some(b'-') => {}
                None | Some(b' ') => {
                    let text = line.get(4..).unwrap_or_default().to_owned();
                    return Ok(Reply { code, text });
                }
                Some(_) => return Err(garbage()),
            }
        }
        Err(ReplyError::Garbage(format!("a reply of more than {MAX_LINES} lines")))
    }

    /// Does not wait for the reply, because nothing depends on it.
    pub(crate) fn quit(&mut self) {
        let _ = self.wire.send(b"QUIT\r\n");
    }
}

fn closes_connection(reply: &Reply) -> bool {
    reply.code == 421
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::message::stuff;
    use super::super::wire::Halt;
    use super::*;
    use std::time::Duration;

    /// Sends its script regardless of what it receives, and records what it received.
    struct Script {
        script: io::Cursor<Vec<u8>>,
        received: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // One byte at a time, as a slow network would.
            self.script.read(&mut buffer[..1])
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let some = bytes.len().min(7);
            self.received.extend(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs a transaction with two recipients; `answers` follow greeting and LHLO.
    fn outcomes(
        protocol: MailProtocol,
        answers: &str,
    ) -> (Vec<DeliveryOutcome>, Option<String>, String) {
        let script = Script { script: io::Cursor::new(Vec::new()), received: Vec::new() };
        let wire =
            Wire::new(OneByOne::new(script, answers), Duration::from_secs(5), Halt::default());
        let mut dialogue = match Dialogue::open(wire, protocol) {
            Ok(dialogue) => dialogue,
            Err(why) => panic!("{why:?}"),
        };
        let mut text = Vec::new();
        stuff(b"x\r\n", &mut text);
        let (outcomes, lost) = dialogue.deliver("p@l", &["a@b", "c@d"], &text);
        let received = String::from_utf8(dialogue.wire_stream().inner.received.clone()).unwrap();
        (outcomes, lost.map(|l| l.to_string()), received)
    }

    /// Sends a reply only after it received a command or the dot, as a real server does.
    struct OneByOne {
        inner: Script,
        answers: Vec<String>,
    }

    impl OneByOne {
        fn new(inner: Script, answers: &str) -> OneByOne {
            let mut all = vec!["220 hello".to_owned(), "250-mail\r\n250 PIPELINING".to_owned()];
            all.extend(answers.split('|').filter(|a| !a.is_empty()).map(str::to_owned));
            all.reverse();
            OneByOne { inner, answers: all }
        }
    }

    impl Read for OneByOne {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.inner.script.position() == self.inner.script.get_ref().len() as u64 {
                let Some(next) = self.answers.pop() else { return Ok(0) };
                self.inner.script = io::Cursor::new(format!("{next}\r\n").into_bytes());
            }
            self.inner.read(buffer)
        }
    }

    impl Write for OneByOne {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.inner.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<S: Read + Write> Dialogue<S> {
        fn wire_stream(&self) -> &S {
            self.wire.stream()
        }
    }

    use DeliveryOutcome::{Accepted, Unknown, Untried};

    fn deferred(text: &str) -> DeliveryOutcome {
        DeliveryOutcome::Deferred(Reply {
            code: text[..3].parse().unwrap(),
            text: text[4..].to_owned(),
        })
    }

    fn refused(text: &str) -> DeliveryOutcome {
        DeliveryOutcome::Refused(Reply {
            code: text[..3].parse().unwrap(),
            text: text[4..].to_owned(),
        })
    }

    #[test]
    fn lmtp_replies_for_each_recipient_and_smtp_once() {
        let (all, lost, received) =
            outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|354 go|250 one|452 full");
        assert_eq!((all, lost), (vec![Accepted, deferred("452 full")], None));
        let sent = "LHLO pgio.localdomain\r\nMAIL FROM:<p@l>\r\nRCPT TO:<a@b>\r\nRCPT TO:<c@d>\r\n\
                    DATA\r\nx\r\n.\r\n";
        assert_eq!(received, sent);
        let (all, lost, received) =
            outcomes(MailProtocol::Smtp, "250 ok|250 ok|250 ok|354 go|250 both");
        assert_eq!((all, lost), (vec![Accepted, Accepted], None));
        assert!(received.starts_with("EHLO "), "{received}");
    }

    #[test]
    fn a_refused_recipient_has_no_reply_after_the_dot() {
        let (all, lost, _) = outcomes(MailProtocol::Lmtp, "250 ok|550 who|250 ok|354 go|250 two");
        assert_eq!((all, lost), (vec![refused("550 who"), Accepted], None));
        let (all, lost, received) =
            outcomes(MailProtocol::Lmtp, "250 ok|550 who|451 later|250 reset");
        assert_eq!((all, lost), (vec![refused("550 who"), deferred("451 later")], None));
        assert!(received.ends_with("RSET\r\n") && !received.contains("DATA"), "{received}");
        let (all, lost, _) =
            outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|452 full|250 reset");
        assert_eq!((all, lost), (vec![deferred("452 full"); 2], None));
        let (all, _, _) = outcomes(MailProtocol::Lmtp, "530 no");
        assert_eq!(all, vec![refused("530 no"); 2]);
    }

    #[test]
    fn a_connection_lost_before_the_dot_is_untried_and_after_it_unknown() {
        for early in ["", "250 ok", "250 ok|250 ok|250 ok"] {
            let (all, lost, _) = outcomes(MailProtocol::Lmtp, early);
            assert_eq!(all, [Untried, Untried], "{early}");
            assert_eq!(lost.unwrap(), "the connection was closed");
        }
        let (all, lost, _) = outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|354 go|250 one");
        assert_eq!((all, lost.is_some()), (vec![Accepted, Unknown], true));
        let (all, _, _) = outcomes(MailProtocol::Smtp, "250 ok|250 ok|250 ok|354 go");
        assert_eq!(all, [Unknown, Unknown]);
    }

    #[test]
    fn reply_421_counts_for_the_remaining_recipients() {
        let (all, lost, _) = outcomes(MailProtocol::Lmtp, "250 ok|421 bye");
        assert_eq!(all, [deferred("421 bye"), Untried]);
        assert_eq!(lost.unwrap(), "the server ends the session: 421 bye");
        let (all, _, _) = outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|354 go|421 bye");
        assert_eq!(all, [deferred("421 bye"), deferred("421 bye")]);
    }

    #[test]
    fn malformed_replies_are_refused() {
        for garbage in ["hello", "25", "2x0 ok", "150 ok", "250ok", "999 ok", "\u{1F4A9}\u{1F4A9}"]
        {
            let (all, lost, _) = outcomes(MailProtocol::Lmtp, garbage);
            assert_eq!(all, [Untried, Untried], "{garbage}");
            assert!(lost.unwrap().contains("malformed reply"), "{garbage}");
            let after = format!("250 ok|250 ok|250 ok|354 go|{garbage}");
            assert_eq!(outcomes(MailProtocol::Lmtp, &after).0, [Unknown, Unknown], "{garbage}");
        }
        let (all, lost, _) = outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|250 taken");
        assert_eq!((all, lost.is_some()), (vec![Untried, Untried], true));
        let (all, lost, _) = outcomes(MailProtocol::Lmtp, "250 ok|250 ok|250 ok|354 go|354 go");
        assert_eq!((all, lost.is_some()), (vec![Unknown, Unknown], true));
    }
}
