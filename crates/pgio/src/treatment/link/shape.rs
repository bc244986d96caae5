//! The shape of a link and its ends: delay, jitter, loss, rate; read from the file, written
//! for tc, shown in reports.

use std::fmt;
use std::time::Duration;

use crate::treatment::body::Body;
use crate::treatment::error::TreatmentError;
use pgio_results::units::link::{
    LinkError, exact_bit_rate, exact_delay, exact_share, parse_bit_rate, parse_delay, parse_share,
};

/// netem's queue, in packets. With the default of 1000 a fast link would drop packets that are under way
/// during the delay. The queue takes memory only for packets in it.
const QUEUE: u32 = 200_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LinkSettings {
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    /// 0 to 1.
    pub(super) loss: f64,
    /// Bits per second; 0 means unlimited.
    pub(super) rate: u64,
}

impl LinkSettings {
    pub(super) fn read(body: &Body<'_>) -> Result<LinkSettings, TreatmentError> {
        let shape = LinkSettings {
            delay: parsed(body, "delay", parse_delay)?.unwrap_or_default(),
            jitter: parsed(body, "jitter", parse_delay)?.unwrap_or_default(),
            loss: parsed(body, "loss", parse_share)?.unwrap_or_default(),
            rate: parsed(body, "rate", parse_bit_rate)?.unwrap_or_default(),
        };
        if body.has("jitter") && shape.delay.is_zero() {
            return Err(body.error("jitter", "requires delay, around which it varies"));
        }
        if shape.jitter > shape.delay {
            return Err(body.error("jitter", "exceeds the delay, around which it varies"));
        }
        // A delay of 0 is valid: netem is there and does nothing, which shows its own cost.
        if shape == LinkSettings::default() && !body.has("delay") {
            return Err(body.error("delay", "is missing: write delay, loss or rate"));
        }
        Ok(shape)
    }

    /// The least delay of a packet, since jitter goes both ways.
    pub(super) fn least_delay(&self) -> Duration {
        self.delay.saturating_sub(self.jitter)
    }

    /// The words after `netem`.
    pub(super) fn netem_words(&self) -> Vec<String> {
        let mut words = vec!["limit".to_owned(), QUEUE.to_string()];
        if !self.delay.is_zero() {
            words.extend(["delay".to_owned(), exact_delay(self.delay)]);
        }
        if !self.jitter.is_zero() {
            words.push(exact_delay(self.jitter));
        }
        if self.loss > 0.0 {
            words.extend(["loss".to_owned(), exact_share(self.loss)]);
        }
        if self.rate > 0 {
            words.extend(["rate".to_owned(), format!("{}bit", self.rate)]);
        }
        words
    }

    /// Parses the words of [`LinkSettings::netem_words`], which the journal stores.
    pub(super) fn from_words(words: &str) -> Option<LinkSettings> {
        let mut shape = LinkSettings::default();
        let mut words = words.split(' ').peekable();
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word {
                "delay" => {
                    shape.delay = parse_delay(value).ok()?;
                    if let Some(jitter) = words.peek().and_then(|word| parse_delay(word).ok()) {
                        shape.jitter = jitter;
                        words.next();
                    }
                }
                "loss" => shape.loss = parse_share(value).ok()?,
                "rate" => shape.rate = parse_bit_rate(value).ok()?,
                "limit" => {}
                _ => return None,
            }
        }
        Some(shape)
    }

    /// Whether both are equal within the kernel's precision: times in whole ticks, loss in parts
    /// of 2³².
    pub(super) fn is_close_to(&self, other: &LinkSettings) -> bool {
        let near = |a: f64, b: f64, step: f64| (a - b).abs() <= step + a.abs() * 1e-3;
        near(self.delay.as_secs_f64(), other.delay.as_secs_f64(), 2e-6)
            && near(self.jitter.as_secs_f64(), other.jitter.as_secs_f64(), 2e-6)
            && near(self.loss, other.loss, 1e-6)
            && near(self.rate as f64, other.rate as f64, 8.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// Absent: the server's.
    pub(super) host: Option<String>,
    pub(super) interface: String,
    pub(super) shape: LinkSettings,
    /// An address to measure the round trip to.
    pub(super) ping: Option<String>,
}

impl End {
    /// In words: `eth1 on db2`.
    pub(super) fn place(&self) -> String {
        let on = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        format!("{}{on}", self.interface)
    }
}

fn parsed<T>(
    body: &Body<'_>,
    key: &str,
    parse: fn(&str) -> Result<T, LinkError>,
) -> Result<Option<T>, TreatmentError> {
    let Some(text) = body.text(key)? else { return Ok(None) };
    parse(text).map(Some).map_err(|e| body.error(key, e.to_string()))
}

impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.delay.is_zero() {
            words.push(format!("delay {}", exact_delay(self.delay)));
        }
        if !self.jitter.is_zero() {
            words.push(format!("jitter {}", exact_delay(self.jitter)));
        }
        if self.loss > 0.0 {
            words.push(format!("loss {}", exact_share(self.loss)));
        }
        if self.rate > 0 {
            words.push(format!("rate {}", exact_bit_rate(self.rate)));
        }
        if words.is_empty() {
            words.push("delay 0ms".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}
