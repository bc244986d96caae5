//! A thread that waits for many sessions at once and lets each one continue.
//!
//! The loop is the hot path: one epoll_wait for all sessions with an answer, then a read and a write
//! for each. It allocates nothing per call and reads the clock once per answer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{io, thread};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::pool::{Quit, ThreadEvent, Window};
use super::session::{Listener, Session, Tally};
use crate::pg::server::FORCE_FLUSH_SINCE;
use crate::workload::clock::wait_until;
use crate::workload::error::EngineError;
use crate::workload::stopping::Notices;
use crate::workload::window::GRACE;
use pgio_connect::WireError;

/// Maximum delay until a request to stop is noticed.
const TICK: i64 = 20_000_000;
/// Any socket accepts a call of this size at once: its buffers have some 200 kB, or less if memory is
/// short.
const MAX_BLOCKING_CALL: usize = 32 * 1024;
/// Holds the answers to a few hundred calls; a longer answer is read in pieces.
const READ_BUFFER: usize = 64 * 1024;
/// Maximum number of events per epoll_wait.
const MAX_EVENTS: usize = 256;

pub(super) struct Driver {
    sessions: Vec<Session>,
    epoll: OwnedFd,
    notices: Notices,
    /// Names of the condition's settings.
    settings: Vec<String>,
    version: u32,
}

/// One window of one thread.
struct WindowWork<'a> {
    window: &'a Window,
    events: &'a Sender<ThreadEvent>,
    tally: Tally,
    /// Sessions that wait for the start time of their next call.
    asleep: BinaryHeap<Reverse<(i64, usize)>>,
    working: usize,
    slice: usize,
    /// There is one session with one call at a time: a blocking read replaces epoll.
    is_blocking: bool,
    /// The last clock reading; one per answer is enough.
    now: i64,
}

impl Driver {
    pub(super) fn new(
        sessions: Vec<Session>,
        notices: Notices,
        settings: Vec<String>,
        version: u32,
    ) -> io::Result<Driver> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, session) in sessions.iter().enumerate() {
            epoll::add(&epoll, &session.wire, event_data(at), epoll::EventFlags::IN)?;
        }
        Ok(Driver { sessions, epoll, notices, settings, version })
    }

    /// Returns the numbers of its sessions among all sessions.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        self.sessions.iter().map(|session| session.index)
    }

    /// Runs one window. If the receiver has been dropped, the events are not needed.
    pub(super) fn run(&mut self, window: &Window, events: &Sender<ThreadEvent>) {
        // Lower the default 50 µs timer slack; failure is harmless.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut work = WindowWork {
            window,
            events,
            tally: Tally::default(),
            asleep: BinaryHeap::new(),
            working: self.sessions.len(),
            slice: 0,
            is_blocking: self.may_block(window),
            now: 0,
        };
        for (session, share) in self.sessions.iter_mut().zip(&window.shares) {
            session.make_ready(window, *share);
        }
        if let Err(source) = self.run_sessions(&mut work) {
            let error = EngineError::Wire { doing: "waiting for sessions", source: source.into() };
            let _ = events.send(ThreadEvent::Failed { error });
        }
        for session in &mut self.sessions {
            session.cut_off(window, work.now, &mut work.tally);
        }
        work.report_slice();
        let begun = || self.sessions.iter().filter_map(|s| s.late);
        let (first, late) = (begun().min().unwrap_or(0), begun().max().unwrap_or(0));
        // A window with little work still lasts its full time.
        let ended = if window.quit.is_requested() {
            work.now
        } else if window.is_finite() {
            window.end()
        } else {
            0
        };
        let seconds = work.tally.ended.max(ended) as f64 / 1e9;
        let _ = events.send(ThreadEvent::Worked {
            seconds,
            first: first as f64 / 1e9,
            late: late as f64 / 1e9,
        });
        if !window.quit.is_requested() {
            self.flush_statistics(&window.quit, events);
        }
        for session in &self.sessions {
            let done = ThreadEvent::Done { index: session.index, totals: session.totals.clone() };
            let _ = events.send(done);
        }
    }

    /// Returns whether the only session can block in its socket, which costs less than epoll. If a call
    /// is larger than the socket buffers, both sides could block: the server until its answers are
    /// read, the client until the rest of the call is accepted.
    fn may_block(&self, window: &Window) -> bool {
        let [session] = self.sessions.as_slice() else { return false };
        window.pace.is_none() && window.pipeline == 1 && session.largest_call() <= MAX_BLOCKING_CALL
    }

    fn run_sessions(&mut self, work: &mut WindowWork<'_>) -> io::Result<()> {
        let window = work.window;
        let mut buffer = vec![0; READ_BUFFER];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(MAX_EVENTS);
        if work.is_blocking {
            for session in &mut self.sessions {
                session.wire.set_nonblocking(false)?;
                session.wire.set_read_timeout(Some(Duration::from_nanos(TICK.unsigned_abs())))?;
            }
        }
        wait_until(window.opens);
        for at in 0..self.sessions.len() {
            work.now = window.now();
            self.advance_session(at, work)?;
        }
        while work.working > 0 && !window.quit.is_forced() {
            self.wait(work, &mut events)?;
            if events.is_empty() {
                work.now = window.now();
            }
            for event in events.drain(..) {
                let at = event.data.u64() as usize;
                let session = &mut self.sessions[at];
                let (now, mut listener) = work.listener(&self.notices, &self.settings);
                match session.receive(&mut buffer, || window.now(), now, &mut listener) {
                    Ok(()) => self.advance_session(at, work)?,
                    Err(_) if session.is_done() => {
                        // Otherwise epoll would report the end again and again.
                        epoll::delete(&self.epoll, &session.wire)?;
                    }
                    Err(error) => work.fail_session(session, error),
                }
            }
            if window.pace.is_some() {
                self.begin_due_calls(work)?;
            }
            if work.now >= window.boundary(work.slice) {
                work.report_slice();
                if self.sessions.iter().any(Session::queries_settings) {
                    self.sessions.iter_mut().for_each(Session::request_settings);
                    (0..self.sessions.len()).try_for_each(|at| self.advance_session(at, work))?;
                }
            } else if window.quit.is_requested() {
                // Sessions that wait for their next call must see this request too.
                (0..self.sessions.len()).try_for_each(|at| self.advance_session(at, work))?;
            }
        }
        // This fails only for a session that has ended, which does not matter.
        self.sessions.iter_mut().for_each(|session| {
            let _ = session.wire.set_nonblocking(true);
        });
        Ok(())
    }

    /// Begins the calls that are due.
    fn begin_due_calls(&mut self, work: &mut WindowWork<'_>) -> io::Result<()> {
        work.now = work.window.now();
        while let Some(Reverse((moment, at))) = work.asleep.peek().copied()
            && moment <= work.now
        {
            work.asleep.pop();
            self.sessions[at].asleep = false;
            self.advance_session(at, work)?;
            // Sending takes time, and other calls become due meanwhile.
            work.now = work.window.now();
        }
        Ok(())
    }

    /// Waits for an answer, the start time of a call, or the end of a slice.
    fn wait(&self, work: &WindowWork<'_>, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        if work.is_blocking {
            events.push(epoll::Event { flags: epoll::EventFlags::IN, data: event_data(0) });
            return Ok(());
        }
        let now = work.now;
        let mut until = work.window.boundary(work.slice).min(now + TICK);
        if let Some(Reverse((moment, _))) = work.asleep.peek() {
            until = until.min(*moment);
        }
        let mut timeout = timespec(until - now);
        if work.window.pace.is_some() {
            // epoll_wait has a resolution of milliseconds, poll of nanoseconds.
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            timeout = timespec(0);
        }
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    #[inline]
    fn advance_session(&mut self, at: usize, work: &mut WindowWork<'_>) -> io::Result<()> {
        let session = &mut self.sessions[at];
        if session.is_done() {
            return Ok(());
        }
        match session.send_due_calls(work.now, work.window, &mut work.tally) {
            Ok((wake, sent)) => {
                if let (Some(moment), false) = (wake, session.asleep) {
                    session.asleep = true;
                    work.asleep.push(Reverse((moment, at)));
                }
                if sent == session.blocked {
                    session.blocked = !sent;
                    let flags = if sent {
                        epoll::EventFlags::IN
                    } else {
                        epoll::EventFlags::IN | epoll::EventFlags::OUT
                    };
                    epoll::modify(&self.epoll, &session.wire, event_data(at), flags)?;
                }
                if session.is_done() {
                    work.working -= 1;
                    if work.window.quit.is_requested() {
                        work.report_done(session);
                    }
                }
            }
            Err(error) => work.fail_session(session, error),
        }
        Ok(())
    }

    /// Makes the server publish the sessions' statistics before its counters are read, and checks that
    /// the server processes are the same. Stops at the first session that does not answer, because each
    /// further one would have to be waited for as long.
    fn flush_statistics(&mut self, quit: &Quit, events: &Sender<ThreadEvent>) {
        let sql = if self.version >= FORCE_FLUSH_SINCE {
            "SELECT pg_backend_pid(), pg_stat_force_next_flush()"
        } else {
            // Before version 15, an idle session reports at most twice a second.
            thread::sleep(Duration::from_millis(600));
            "SELECT pg_backend_pid()"
        };
        for session in &mut self.sessions {
            if quit.is_requested() {
                return;
            }
            let wire = &mut session.wire;
            let asked = wire
                .set_nonblocking(false)
                .and_then(|()| wire.set_read_timeout(Some(GRACE)))
                .map_err(WireError::from)
                .and_then(|()| wire.query(sql))
                .and_then(|rows| Ok((rows, wire.set_nonblocking(true)?)));
            let error = match asked {
                Ok((rows, ())) if first_value(&rows) == Some(session.pid.to_string()) => continue,
                Ok(_) => EngineError::Pooled,
                Err(source) => EngineError::Wire { doing: "flushing statistics", source },
            };
            let _ = events.send(ThreadEvent::Failed { error });
            return;
        }
    }
}

fn first_value(rows: &[Vec<Option<String>>]) -> Option<String> {
    rows.first()?.first()?.clone()
}

impl WindowWork<'_> {
    fn listener<'b>(
        &'b mut self,
        notices: &'b Notices,
        settings: &'b [String],
    ) -> (&'b mut i64, Listener<'b>) {
        (&mut self.now, Listener { tally: &mut self.tally, notices, settings })
    }

    fn report_slice(&mut self) {
        let (totals, readings) = self.tally.take();
        let _ = self.events.send(ThreadEvent::Slice { number: self.slice, totals, readings });
        self.slice += 1;
    }

    fn report_done(&self, session: &Session) {
        let done = ThreadEvent::Done { index: session.index, totals: session.totals.clone() };
        let _ = self.events.send(done);
    }

    /// Ends the session and the window with it; the pool stops the other sessions.
    fn fail_session(&mut self, session: &mut Session, source: WireError) {
        session.give_up();
        self.working -= 1;
        // A call that was canceled because the run ends is not a failure.
        if !self.window.quit.is_requested() {
            self.window.quit.request();
            let error = EngineError::Wire { doing: "the workload", source };
            let _ = self.events.send(ThreadEvent::Failed { error });
        }
        self.report_done(session);
    }
}

fn event_data(at: usize) -> epoll::EventData {
    epoll::EventData::new_u64(at as u64)
}

fn timespec(ns: i64) -> Timespec {
    let ns = ns.max(0);
    Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use pgio_connect::{self, Wire};

    /// AuthenticationOk, BackendKeyData and ReadyForQuery.
    const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x07\0\0\0\x07Z\0\0\0\x05I";

    /// Returns sessions of a fake server that accepts connections and then is silent, and the server's
    /// sockets.
    fn sessions(count: u32) -> (Vec<Session>, Vec<TcpStream>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let let_in = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
            stream.read_exact(&mut startup).unwrap();
            stream.write_all(GREETING).unwrap();
            stream
        };
        // One more connection, which determines the address.
        let server = thread::spawn(move || (0..=count).map(|_| let_in()).collect());
        let text = format!("host=127.0.0.1 port={port} user=u dbname=d sslmode=disable");
        let params = pgio_connect::resolve(&text, &pgio_connect::Env::default()).unwrap();
        let route = pgio_connect::connect(&params).unwrap().route().clone();
        let open = |index| {
            let wire = Wire::open(&params, &route).unwrap();
            Session::new(wire, index, 7, Vec::new(), Vec::new())
        };
        ((0..count).map(open).collect(), server.join().unwrap())
    }

    /// Returns the number of reported failures; waits for no session.
    fn flushed(quit: &Quit, cut_off: bool) -> usize {
        let (sessions, mut ends) = sessions(3);
        let mut driver =
            Driver::new(sessions, Notices::default(), Vec::new(), FORCE_FLUSH_SINCE).unwrap();
        if cut_off {
            ends.clear();
        }
        let (sender, events) = mpsc::channel();
        let asked = Instant::now();
        driver.flush_statistics(quit, &sender);
        assert!(asked.elapsed() < GRACE / 2, "{:?}", asked.elapsed());
        events.try_iter().filter(|event| matches!(event, ThreadEvent::Failed { .. })).count()
    }

    #[test]
    fn no_session_is_queried_after_a_failure_or_when_the_run_ends() {
        assert_eq!(flushed(&Quit::default(), true), 1);
        let quit = Quit::default();
        quit.request();
        assert_eq!(flushed(&quit, false), 0);
    }
}
