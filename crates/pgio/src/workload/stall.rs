//! Detects sessions that are stuck. A window with a length ends by itself, and a call under way may take
//! any time: its sessions are stuck if all of them are blocked or idle for [`GRACE`] after the end. Fixed
//! work has no end: if every working session waits for a synchronous standby and no standby makes progress,
//! the work will never end.
//!
//! The server is queried only after some seconds without an event, so that a running window is not
//! disturbed.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use rustix::time::{ClockId, clock_gettime};

use super::error::EngineError;
use super::stopping::{Stopping, server_answers};
use super::window::GRACE;

const ACTIVITY: &str = include_str!("sql/activity.sql");

/// Time without an event before the server is queried; an event is due every second.
const QUIET_TIME: Duration = Duration::from_secs(5);
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// The default of PostgreSQL's wal_sender_timeout: until then, a standby may come back.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// How long sessions may wait for something that the server does, such as reading a block, while none is seen to
/// compute: a device that no longer answers ends a trial, a slow one does not.
const WAIT_LIMIT: Duration = Duration::from_secs(300);
/// The failure of those sessions, for the error that names their wait events.
pub(super) const FAILURE: &str = "made no progress for a minute";

/// What sessions do whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// At least one computes.
    Computes,
    /// None computes; at least one waits for a device or another process.
    Waits,
    /// They wait for a lock, a synchronous standby or pgio, or are idle.
    Blocked,
}

#[derive(Debug)]
pub(super) struct Stall {
    last_event: Instant,
    /// When a session was last seen to wait for a device or another process.
    waited_at: Instant,
    queried_at: Instant,
    /// The last state seen, and since when it is unchanged.
    unchanged: Option<(Instant, String)>,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Stall {
        Stall { last_event: now, waited_at: now, queried_at: now, unchanged: None }
    }

    /// Records progress.
    pub(super) fn note_event(&mut self, now: Instant) {
        self.last_event = now;
        self.unchanged = None;
    }

    /// Returns the time since the last progress.
    pub(super) fn quiet_time(&self, now: Instant) -> Duration {
        now - self.last_event
    }

    /// Returns the error of sessions whose time ended `over` ago, if they are stuck.
    pub(super) fn overdue_error(
        &mut self,
        admin: &mut Client,
        now: Instant,
        over: Duration,
        pids: impl Fn() -> Vec<i32>,
        failure: &str,
    ) -> Option<EngineError> {
        let stuck = self.is_overdue(now, over, || activity(admin, &pids()));
        stuck.then(|| Stopping::stuck_error(admin, &pids(), failure))
    }

    /// Returns whether sessions whose time ended `over` ago are stuck; calls `look` at intervals. One look does not
    /// decide: a session is idle between its last call and its end.
    fn is_overdue(
        &mut self,
        now: Instant,
        over: Duration,
        look: impl FnOnce() -> Activity,
    ) -> bool {
        let quiet = over.min(now - self.last_event);
        if quiet < QUIET_TIME || now - self.queried_at < QUERY_INTERVAL {
            return false;
        }
        self.queried_at = now;
        match look() {
            Activity::Computes => {
                self.note_event(now);
                false
            }
            Activity::Waits => {
                self.waited_at = now;
                quiet > WAIT_LIMIT
            }
            Activity::Blocked => quiet.min(now - self.waited_at) > GRACE,
        }
    }

    /// Returns whether fixed work is stuck; calls `look` at intervals, which returns `None` while there
    /// is progress.
    pub(super) fn is_stuck(&mut self, now: Instant, look: impl FnOnce() -> Option<String>) -> bool {
        if now - self.last_event < QUIET_TIME || now - self.queried_at < QUERY_INTERVAL {
            return false;
        }
        self.queried_at = now;
        let Some(found) = look() else {
            self.unchanged = None;
            return false;
        };
        match &self.unchanged {
            Some((since, before)) if *before == found => now - *since >= STALL_LIMIT,
            _ => {
                self.unchanged = Some((now, found));
                false
            }
        }
    }
}

/// Returns the standbys' positions if all working sessions wait for them.
pub(super) fn standstill(admin: &mut Client, pids: &[i32]) -> Option<String> {
    // Sessions that have finished their share are idle.
    let sql = "SELECT coalesce(bool_and(state = 'idle' OR coalesce(wait_event, '') = 'SyncRep') \
                               AND bool_or(wait_event = 'SyncRep'), false), \
                      (SELECT coalesce(string_agg(concat_ws(' ', pid, flush_lsn, replay_lsn), ',' \
                                                  ORDER BY pid), '') FROM pg_stat_replication) \
               FROM pg_stat_activity WHERE pid = ANY($1)";
    if !server_answers(admin) {
        return None;
    }
    // If the server is gone, the sessions end and report it.
    let row = admin.query_one(sql, &[&pids]).ok()?;
    let stands: bool = row.try_get(0).ok()?;
    row.try_get(1).ok().filter(|_| stands)
}

/// Returns what the most active of the sessions does.
fn activity(admin: &mut Client, pids: &[i32]) -> Activity {
    // If the server is gone, the sessions end and report it.
    if !server_answers(admin) {
        return Activity::Blocked;
    }
    match admin.query_one(ACTIVITY, &[&pids]) {
        Ok(row) if row.try_get(0).unwrap_or(false) => Activity::Computes,
        Ok(row) if row.try_get(1).unwrap_or(false) => Activity::Waits,
        _ => Activity::Blocked,
    }
}

// Finds the moments in which this process stood still: stopped by a signal, without a processor, or on a machine
// that was suspended or paused. A thread wakes forty times a second and notes when it was late. What the sessions of
// a client wait for meanwhile is the generator's delay, and looks like a stall of the server.

const BEAT: Duration = Duration::from_millis(25);
/// Any busy machine has shorter delays.
const MIN_GAP: Duration = Duration::from_millis(100);

/// Dropping it ends the thread.
pub(super) struct Pulse {
    end: Sender<()>,
    gaps: Receiver<Gap>,
}

/// The process did nothing between these moments.
#[derive(Debug, Clone, Copy)]
struct Gap {
    began: Instant,
    ended: Instant,
    /// Time of a suspended machine, which is not between them.
    suspended: Duration,
}

impl Pulse {
    pub(super) fn start() -> Pulse {
        let (end, ended) = mpsc::channel();
        let (sender, gaps) = mpsc::channel();
        // Without the thread no gap is found.
        let _ = thread::Builder::new().name("pulse".to_owned()).spawn(move || {
            let mut last = (Instant::now(), boot_time());
            loop {
                let goes_on = ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout);
                let now = (Instant::now(), boot_time());
                let length = now.1.saturating_sub(last.1);
                if length >= MIN_GAP {
                    let suspended = length.saturating_sub(now.0 - last.0);
                    let _ = sender.send(Gap { began: last.0, ended: now.0, suspended });
                }
                if !goes_on {
                    return;
                }
                last = now;
            }
        });
        Pulse { end, gaps }
    }

    /// Returns the longest time in seconds for which the process stood still between these moments.
    pub(super) fn longest_gap(self, from: Instant, to: Instant) -> f64 {
        // The thread notes whether it is late, and ends.
        drop(self.end);
        let inside = self.gaps.iter().map(|gap| overlap(gap, from, to));
        inside.max().unwrap_or_default().as_secs_f64()
    }
}

/// The part of a gap inside a window.
fn overlap(gap: Gap, from: Instant, to: Instant) -> Duration {
    let awake = gap.ended.min(to).saturating_duration_since(gap.began.max(from));
    if awake.is_zero() { awake } else { awake + gap.suspended }
}

/// Goes on while the machine is suspended.
fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once per second; returns the second after the window's end at which its sessions count as
    /// stuck.
    fn overdue_at(look: fn(u64) -> Activity) -> Option<u64> {
        let end = Instant::now();
        let mut stall = Stall::new(end);
        (1..=2000).find(|second| {
            let over = Duration::from_secs(*second);
            stall.is_overdue(end + over, over, || look(*second))
        })
    }

    #[test]
    fn sessions_at_work_are_waited_for_and_others_are_stuck() {
        use Activity::{Blocked, Computes, Waits};
        let limit = GRACE.as_secs() + 1;
        assert_eq!(overdue_at(|_| Blocked), Some(limit), "a lost standby, a lock");
        assert_eq!(overdue_at(|_| Computes), None);
        let call = |second| if second <= 24 { Waits } else { Computes };
        assert_eq!(
            overdue_at(call),
            None,
            "a call that waits for longer than blocked sessions may"
        );
        let scan = |second| if second % 100 == 0 { Computes } else { Waits };
        assert_eq!(overdue_at(scan), None, "a scan of any length");
        assert_eq!(overdue_at(|_| Waits), Some(WAIT_LIMIT.as_secs() + 1), "a device that hangs");
        let then_blocked = |second| if second <= 60 { Waits } else { Blocked };
        assert_eq!(overdue_at(then_blocked), Some(60 + limit));
        // Idle between its last call and its end.
        assert_eq!(overdue_at(|second| if second % 20 < 10 { Computes } else { Blocked }), None);
    }

    #[test]
    fn nothing_is_overdue_within_the_window() {
        let opened = Instant::now();
        let mut stall = Stall::new(opened);
        let late = opened + 3 * GRACE;
        assert!(!stall.is_overdue(late, Duration::ZERO, || panic!("asked")));
        stall.note_event(late);
        assert!(!stall.is_overdue(late + QUERY_INTERVAL, 2 * GRACE, || panic!("asked")));
    }

    /// Looks once per second; returns the second at which the window counts as stuck.
    fn looks(
        stall: &mut Stall,
        from: Instant,
        seen: impl Fn(u64) -> Option<String>,
    ) -> Option<u64> {
        (1..=200)
            .find(|second| stall.is_stuck(from + Duration::from_secs(*second), || seen(*second)))
    }

    #[test]
    fn a_minute_without_progress_is_a_standstill() {
        let begun = Instant::now();
        let end = QUIET_TIME.as_secs() + STALL_LIMIT.as_secs();
        let unchanged = |_: u64| Some("1 0/1 0/1".to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, unchanged), Some(end));
        let once = |second: u64| Some(if second < 20 { "0/1" } else { "0/2" }.to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, once), Some(20 + STALL_LIMIT.as_secs()));
    }

    #[test]
    fn progress_is_no_standstill() {
        let begun = Instant::now();
        let moving = |second: u64| Some((second / 50).to_string());
        assert_eq!(looks(&mut Stall::new(begun), begun, moving), None);
        let busy = |second: u64| (!second.is_multiple_of(30)).then(|| "0/1".to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, busy), None);
    }

    #[test]
    fn the_server_is_not_queried_during_work() {
        let mut stall = Stall::new(Instant::now());
        let mut now = Instant::now();
        for _ in 0..200 {
            now += QUERY_INTERVAL;
            stall.note_event(now);
            assert!(!stall.is_stuck(now + QUERY_INTERVAL, || panic!("asked")));
        }
    }

    #[test]
    fn a_gap_counts_as_far_as_it_lies_in_the_window() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let gap = |began, ended, suspended| {
            let suspended = Duration::from_millis(suspended);
            overlap(Gap { began: at(began), ended: at(ended), suspended }, at(1000), at(5000))
        };
        assert_eq!(gap(2000, 4000, 0), Duration::from_secs(2));
        assert_eq!(gap(0, 3000, 0), Duration::from_secs(2));
        assert_eq!(gap(4000, 9000, 0), Duration::from_secs(1));
        assert_eq!(gap(0, 900, 7000) + gap(6000, 7000, 0), Duration::ZERO);
        assert_eq!(gap(2000, 2010, 7000), Duration::from_millis(7010));
    }
}
