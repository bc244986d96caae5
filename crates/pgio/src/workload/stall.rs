//! Detects a standstill of fixed work, which has no time limit: if every working session waits for a
//! synchronous standby and no standby makes progress, the work will never end.
//!
//! The server is queried only after some seconds without an event, so that a running window is not
//! disturbed. A window with a fixed length ends by itself and needs no such check.

use std::time::{Duration, Instant};

use postgres::Client;

use super::stopping::server_answers;

/// Time without an event before the server is queried; an event is due every second.
const QUIET_TIME: Duration = Duration::from_secs(5);
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// The default of PostgreSQL's wal_sender_timeout: until then, a standby may come back.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// The failure of those sessions, for the error that names their wait events.
pub(super) const FAILURE: &str = "made no progress for a minute";

#[derive(Debug)]
pub(super) struct Stall {
    last_event: Instant,
    queried_at: Instant,
    /// The last state seen, and since when it is unchanged.
    unchanged: Option<(Instant, String)>,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Stall {
        Stall { last_event: now, queried_at: now, unchanged: None }
    }

    /// Records progress.
    pub(super) fn note_event(&mut self, now: Instant) {
        self.last_event = now;
        self.unchanged = None;
    }

    /// Returns whether the window is stuck; calls `look` at intervals, which returns `None` while there
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
    row.get::<_, bool>(0).then(|| row.get(1))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
