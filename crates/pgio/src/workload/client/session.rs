//! One session of the client-side engine: its calls in flight, what it sends next, and how it handles
//! the answers. It never blocks; [`super::driver`] passes the current time and signals when the session
//! can read and write.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use super::calls::{Counts, Prepared};
use super::pace::Schedule;
use super::pool::Window;
use crate::rng::{self, SplitMix64};
use crate::workload::Totals;
use crate::workload::stopping::Notices;
use pgio_connect::{Message, Refusal, Wire, WireError, routine, texts};
use pgio_results::histogram::Histogram;
use pgio_results::model::SessionTotals;

const DEADLOCK: &str = "40P01";

pub(super) struct Session {
    pub wire: Wire,
    pub index: u32,
    /// As reported by the server.
    pub pid: i32,
    prepared: Vec<Prepared>,
    /// The query for the condition's settings; empty if no condition has any.
    settings_query: Vec<u8>,
    rng: SplitMix64,
    /// The start times of its calls in an open loop.
    schedule: Option<Schedule>,
    flights: VecDeque<Flight>,
    out: Vec<u8>,
    /// The incomplete message at the end of the last read.
    carry: Vec<u8>,
    /// Calls left to send.
    calls_left: Option<u64>,
    stage: Stage,
    /// Query the settings before the next call.
    settings_query_due: bool,
    /// Rows of the answer that is being read.
    rows: u64,
    refused: Option<Refusal>,
    /// Part of `out` could not be sent; the driver waits until the socket is writable.
    pub blocked: bool,
    /// The driver's list of sleeping sessions contains it.
    pub asleep: bool,
    /// How late the first call began, in nanoseconds; `None` before it.
    pub late: Option<i64>,
    /// When the last answer to a call arrived.
    answered: i64,
    pub totals: SessionTotals,
}

/// A call, or a query for the settings, that has not been answered.
#[derive(Debug, Clone, Copy)]
struct Flight {
    /// When the call was due; in a closed loop, when it began.
    began: i64,
    /// `None`: the query for the settings.
    counts: Option<Counts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Working,
    /// No further call begins.
    Ending,
    /// The settings are queried for the last time.
    LastReading,
    Done,
}

/// The work of all sessions of a thread in one slice.
#[derive(Debug, Default)]
pub(super) struct Tally {
    read: Histogram,
    update: Histogram,
    transaction: Histogram,
    lag: Histogram,
    counted: Totals,
    pub readings: BTreeSet<(String, String)>,
    /// When the last call of all slices was answered.
    pub ended: i64,
}

impl Tally {
    /// Returns the histogram of a call's class.
    fn latency(&mut self, counts: Counts) -> &mut Histogram {
        match counts {
            Counts::Read | Counts::ReadCount => &mut self.read,
            Counts::Update => &mut self.update,
            Counts::Insert => &mut self.transaction,
        }
    }

    /// Returns the work since the last call, and resets the tally.
    pub(super) fn take(&mut self) -> (Totals, BTreeSet<(String, String)>) {
        let ended = self.ended;
        let slice = std::mem::replace(self, Tally { ended, ..Tally::default() });
        let mut totals = slice.counted;
        let classes = [
            ("read", slice.read),
            ("update", slice.update),
            // The transaction is one message and one answer: its latency is its commit's.
            ("commit", slice.transaction.clone()),
            ("transaction", slice.transaction),
            ("lag", slice.lag),
        ];
        let done = classes.into_iter().filter(|(_, h)| h.total_count() > 0);
        totals.histograms = done.map(|(class, h)| (class.to_owned(), h)).collect();
        (totals, slice.readings)
    }
}

impl Session {
    pub(super) fn new(
        wire: Wire,
        index: u32,
        pid: i32,
        prepared: Vec<Prepared>,
        settings_query: Vec<u8>,
    ) -> Session {
        Session {
            wire,
            index,
            pid,
            prepared,
            settings_query,
            rng: SplitMix64::new(0),
            schedule: None,
            flights: VecDeque::new(),
            out: Vec::new(),
            carry: Vec::new(),
            calls_left: None,
            stage: Stage::Done,
            settings_query_due: false,
            rows: 0,
            refused: None,
            blocked: false,
            asleep: false,
            late: None,
            answered: 0,
            totals: SessionTotals::default(),
        }
    }

    /// Prepares for a window of at most `share` calls.
    pub(super) fn make_ready(&mut self, window: &Window, share: Option<u64>) {
        // The same work whichever process does it.
        let number = window.first + self.index;
        let stream = rng::derive(window.seed, "session", u64::from(number));
        self.rng = SplitMix64::new(stream);
        self.schedule =
            window.pace.map(|pace| Schedule::new(&pace, number, window.all_sessions, window.seed));
        self.calls_left = share;
        self.stage = Stage::Working;
        (self.settings_query_due, self.asleep, self.late, self.answered) = (false, false, None, 0);
        self.totals = SessionTotals::default();
    }

    /// Returns the size of its largest call, in bytes.
    pub(super) fn largest_call(&self) -> usize {
        self.prepared.iter().map(Prepared::bytes).max().unwrap_or(0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Ends the session after an error: it does no further work.
    pub(super) fn give_up(&mut self) {
        self.stage = Stage::Done;
    }

    pub(super) fn queries_settings(&self) -> bool {
        !self.settings_query.is_empty()
    }

    pub(super) fn request_settings(&mut self) {
        self.settings_query_due = !self.settings_query.is_empty() && self.stage == Stage::Working;
    }

    /// Begins and sends what is due. Returns the time of the next call, or `None` if an answer must
    /// come first, and whether everything could be sent.
    pub(super) fn send_due_calls(
        &mut self,
        now: i64,
        window: &Window,
        tally: &mut Tally,
    ) -> Result<(Option<i64>, bool), WireError> {
        let mut wake = None;
        while self.stage == Stage::Working
            && !self.settings_query_due
            && self.flights.len() < window.pipeline
        {
            if now >= window.end() || self.calls_left == Some(0) || window.quit.is_requested() {
                // No further call begins.
                self.stage = Stage::Ending;
                break;
            }
            let began = match &mut self.schedule {
                None => now,
                Some(schedule) => {
                    let next = schedule.next();
                    if next > now {
                        // The window lasts to its end even if no call is left.
                        wake = Some(next.min(window.end()));
                        break;
                    }
                    schedule.advance();
                    tally.lag.record((now - next) as f64);
                    tally.counted.due += u64::from(window.is_finite());
                    next
                }
            };
            let first = if self.schedule.is_some() { began } else { 0 };
            self.late.get_or_insert(now - first);
            self.calls_left = self.calls_left.map(|n| n - 1);
            tally.counted.begun += 1;
            self.begin_call(began);
        }
        if self.flights.is_empty() {
            match self.stage {
                Stage::Working if self.settings_query_due => {
                    self.settings_query_due = false;
                    self.query_settings(now);
                }
                Stage::Ending if self.settings_query.is_empty() || window.quit.is_requested() => {
                    self.stage = Stage::Done;
                }
                Stage::Ending => {
                    self.stage = Stage::LastReading;
                    self.query_settings(now);
                }
                Stage::LastReading => self.stage = Stage::Done,
                Stage::Working | Stage::Done => {}
            }
        }
        Ok((wake, self.send()?))
    }

    /// Sends the output; returns whether everything could be sent. If the server has closed the
    /// connection, the output is discarded, because the cause is still to be read.
    #[inline]
    fn send(&mut self) -> Result<bool, WireError> {
        if self.out.is_empty() {
            return Ok(true);
        }
        match self.wire.send(&mut self.out) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.out.clear();
                Ok(true)
            }
            sent => Ok(sent?),
        }
    }

    /// Counts, after the window, the calls that were due and did not begin, and the calls that began
    /// and were never answered.
    pub(super) fn cut_off(&mut self, window: &Window, now: i64, tally: &mut Tally) {
        for flight in self.flights.drain(..) {
            if let Some(counts) = flight.counts {
                tally.latency(counts).record_censored((now - flight.began).max(0) as f64, 1);
            }
        }
        let is_complete = window.is_finite() && !window.quit.is_requested();
        let Some(mut schedule) = self.schedule.take().filter(|_| is_complete) else { return };
        // Answers come in the order of the calls: no answer comes before the answer to the last call that
        // began. If calls go one by one, no call begins before it either.
        let answered = self.answered.max(window.end());
        let begun = if window.pipeline == 1 { answered } else { window.end() };
        tally.counted.due += schedule.skip_due_before(window.end(), |moment, calls| {
            let counts = choose(&self.prepared, &mut self.rng).counts;
            tally.latency(counts).record_censored((answered - moment) as f64, calls);
            tally.lag.record_censored((begun - moment) as f64, calls);
        });
    }

    #[inline]
    fn begin_call(&mut self, began: i64) {
        let call = choose(&self.prepared, &mut self.rng);
        call.write(&mut self.rng, &mut self.out);
        self.flights.push_back(Flight { began, counts: Some(call.counts) });
    }

    fn query_settings(&mut self, now: i64) {
        self.out.extend_from_slice(&self.settings_query);
        self.flights.push_back(Flight { began: now, counts: None });
    }

    /// Reads the available data; sets `now` to the time of the read.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        clock: impl Fn() -> i64,
        now: &mut i64,
        listener: &mut Listener<'_>,
    ) -> Result<(), WireError> {
        loop {
            let read = match self.wire.read(buffer) {
                // The server's last messages have the cause.
                Ok(0) => {
                    return Err(self.refused.take().map_or(WireError::Ended, WireError::Refused));
                }
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    *now = clock();
                    return Ok(());
                }
                Err(e) => {
                    return Err(self.refused.take().map_or(WireError::Lost(e), WireError::Refused));
                }
            };
            *now = clock();
            if self.carry.is_empty() {
                let rest = self.handle_messages(&buffer[..read], *now, listener)?;
                self.carry.extend_from_slice(rest);
            } else {
                let mut carry = std::mem::take(&mut self.carry);
                carry.extend_from_slice(&buffer[..read]);
                let rest = self.handle_messages(&carry, *now, listener)?.len();
                carry.drain(..carry.len() - rest);
                self.carry = carry;
            }
            if read < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Handles all complete messages; returns the rest.
    fn handle_messages<'a>(
        &mut self,
        mut bytes: &'a [u8],
        now: i64,
        listener: &mut Listener<'_>,
    ) -> Result<&'a [u8], WireError> {
        while let Some((message, rest)) = Message::first(bytes)? {
            bytes = rest;
            match message.tag {
                b'C' => self.rows += row_count(message.body),
                b'Z' => self.finish_answer(message.body, now, listener.tally)?,
                b'D' => self.handle_row(message.body, listener)?,
                b'E' => {
                    self.refused.get_or_insert_with(|| Refusal::read(message.body));
                }
                b'N' => listener.notices.push(routine(message.body)),
                // Answers to Bind, and changed settings.
                _ => {}
            }
        }
        Ok(bytes)
    }

    fn handle_row(&mut self, body: &[u8], listener: &mut Listener<'_>) -> Result<(), WireError> {
        match self.flights.front().map(|flight| flight.counts) {
            Some(Some(Counts::ReadCount)) => {
                let (_, count) = body.split_last_chunk::<8>().ok_or(WireError::Malformed)?;
                // The tag that follows the row adds it.
                self.rows += u64::from_be_bytes(*count).saturating_sub(1);
            }
            Some(None) => {
                let values = texts(body).ok_or(WireError::Malformed)?;
                let named = listener.settings.iter().cloned().zip(values);
                let readings = named.map(|(name, value)| (name, value.unwrap_or_default()));
                listener.tally.readings.extend(readings);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the end of an answer.
    #[inline]
    fn finish_answer(
        &mut self,
        status: &[u8],
        now: i64,
        tally: &mut Tally,
    ) -> Result<(), WireError> {
        let flight = self.flights.pop_front().ok_or(WireError::Malformed)?;
        if self.stage != Stage::LastReading {
            self.answered = now;
        }
        let rows = std::mem::take(&mut self.rows);
        if let Some(refusal) = self.refused.take() {
            // The transaction was rolled back as a whole: count it and continue.
            if refusal.code != DEADLOCK || status != b"I" {
                return Err(refusal.into());
            }
            tally.counted.deadlocks += 1;
            self.totals.deadlocks += 1;
            return Ok(());
        }
        let Some(counts) = flight.counts else { return Ok(()) };
        let took = (now - flight.began).max(0) as f64;
        tally.ended = now;
        tally.counted.calls += 1;
        let (counted, own) = (&mut tally.counted, &mut self.totals);
        match counts {
            Counts::Read | Counts::ReadCount => {
                tally.read.record(took);
                counted.blocks_read += rows;
                own.blocks_read += rows;
                own.reads += 1;
                own.read_max_seconds = own.read_max_seconds.max(took / 1e9);
            }
            Counts::Update => {
                tally.update.record(took);
                counted.rows_updated += rows;
                counted.commits_within += 1;
                own.rows_updated += rows;
                own.updates += 1;
                own.commits += 1;
                own.update_max_seconds = own.update_max_seconds.max(took / 1e9);
            }
            Counts::Insert => {
                tally.transaction.record(took);
                counted.rows_inserted += rows;
                own.commits += 1;
                own.commit_max_seconds = own.commit_max_seconds.max(took / 1e9);
            }
        }
        Ok(())
    }
}

/// Chooses a kind of call at random by the shares.
#[inline]
fn choose<'a>(prepared: &'a [Prepared], rng: &mut SplitMix64) -> &'a Prepared {
    match prepared {
        [only] => only,
        several => {
            let draw = rng.next_u64();
            let drawn = several.iter().find(|call| draw < call.up_to);
            drawn.unwrap_or(&several[several.len() - 1])
        }
    }
}

/// Receives the data that the sessions of a thread read.
pub(super) struct Listener<'a> {
    pub tally: &'a mut Tally,
    pub notices: &'a Notices,
    /// Names of the settings that the sessions query.
    pub settings: &'a [String],
}

/// Returns the number at the end of a command tag, such as `UPDATE 8`; 0 if there is none.
#[inline]
fn row_count(tag: &[u8]) -> u64 {
    let tag = tag.strip_suffix(b"\0").unwrap_or(tag);
    let digits = tag.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    tag[tag.len() - digits..].iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_count_is_parsed_from_the_command_tag() {
        for (tag, rows) in
            [("SELECT 1\0", 1), ("INSERT 0 12\0", 12), ("UPDATE 255\0", 255), ("COMMIT\0", 0)]
        {
            assert_eq!(row_count(tag.as_bytes()), rows, "{tag}");
        }
        assert_eq!(row_count(b""), 0);
    }

    #[test]
    fn take_returns_the_work_since_the_last_slice() {
        let mut tally = Tally::default();
        tally.transaction.record(2e6);
        tally.counted.calls = 1;
        tally.ended = 5;
        let (totals, _) = tally.take();
        assert_eq!((totals.count("transaction"), totals.count("commit"), totals.calls), (1, 1, 1));
        assert_eq!(totals.histograms.len(), 2);
        let (totals, _) = tally.take();
        assert!(totals.histograms.is_empty());
        assert_eq!((totals.calls, tally.ended), (0, 5));
    }
}
