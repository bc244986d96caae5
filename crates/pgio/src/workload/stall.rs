//! Fixed work takes as long as it takes, but not for ever: where every session that is at work waits
//! for a synchronous standby, and no standby moves on either, nothing will come of it.
//!
//! Asked only where nobody was heard of for some seconds: a window that goes on is not disturbed. A
//! window of a length has its own end, and needs none of this.

use std::time::{Duration, Instant};

use postgres::Client;

use super::stopping::answers;

/// Without a sign of work, before the server is asked; one is due every second.
const SILENCE: Duration = Duration::from_secs(5);
const OFTEN: Duration = Duration::from_secs(1);
/// As long as PostgreSQL's own wal_sender_timeout: until then a standby may come back.
const LIMIT: Duration = Duration::from_secs(60);
/// What those sessions did, for the error that names what they wait for.
pub(super) const FAILURE: &str = "did nothing for a minute";

#[derive(Debug)]
pub(super) struct Stall {
    heard: Instant,
    looked: Instant,
    /// What was seen, and since when it is the same.
    still: Option<(Instant, String)>,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Stall {
        Stall { heard: now, looked: now, still: None }
    }

    /// Something was done.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.still = None;
    }

    /// Whether it is over; `look` is called now and then, and tells nothing where there is hope.
    pub(super) fn is_over(&mut self, now: Instant, look: impl FnOnce() -> Option<String>) -> bool {
        if now - self.heard < SILENCE || now - self.looked < OFTEN {
            return false;
        }
        self.looked = now;
        let Some(found) = look() else {
            self.still = None;
            return false;
        };
        match &self.still {
            Some((since, before)) if *before == found => now - *since >= LIMIT,
            _ => {
                self.still = Some((now, found));
                false
            }
        }
    }
}

/// Where the standbys are, if all sessions that are at work wait for them.
pub(super) fn standstill(admin: &mut Client, pids: &[i32]) -> Option<String> {
    // Those that have done their share are idle.
    let sql = "SELECT coalesce(bool_and(state = 'idle' OR coalesce(wait_event, '') = 'SyncRep') \
                               AND bool_or(wait_event = 'SyncRep'), false), \
                      (SELECT coalesce(string_agg(concat_ws(' ', pid, flush_lsn, replay_lsn), ',' \
                                                  ORDER BY pid), '') FROM pg_stat_replication) \
               FROM pg_stat_activity WHERE pid = ANY($1)";
    if !answers(admin) {
        return None;
    }
    // A server that is gone ends the sessions, which report it.
    let row = admin.query_one(sql, &[&pids]).ok()?;
    row.get::<_, bool>(0).then(|| row.get(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each look is a second after the one before; what is seen, and whether it is over.
    fn looks(
        stall: &mut Stall,
        from: Instant,
        seen: impl Fn(u64) -> Option<String>,
    ) -> Option<u64> {
        (1..=200)
            .find(|second| stall.is_over(from + Duration::from_secs(*second), || seen(*second)))
    }

    #[test]
    fn a_minute_in_which_nothing_moves_is_the_end() {
        let begun = Instant::now();
        let end = SILENCE.as_secs() + LIMIT.as_secs();
        let still = |_: u64| Some("1 0/1 0/1".to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, still), Some(end));
        let once = |second: u64| Some(if second < 20 { "0/1" } else { "0/2" }.to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, once), Some(20 + LIMIT.as_secs()));
    }

    #[test]
    fn what_moves_on_is_waited_for() {
        let begun = Instant::now();
        let moving = |second: u64| Some((second / 50).to_string());
        assert_eq!(looks(&mut Stall::new(begun), begun, moving), None);
        let busy = |second: u64| (!second.is_multiple_of(30)).then(|| "0/1".to_owned());
        assert_eq!(looks(&mut Stall::new(begun), begun, busy), None);
    }

    #[test]
    fn nobody_is_asked_while_work_is_done() {
        let mut stall = Stall::new(Instant::now());
        let mut now = Instant::now();
        for _ in 0..200 {
            now += OFTEN;
            stall.heard(now);
            assert!(!stall.is_over(now + OFTEN, || panic!("asked")));
        }
    }
}
