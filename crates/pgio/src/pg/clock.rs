//! What reading the server's clock costs. With track_io_timing the server reads it around every read and
//! write, so a slow clock slows the measured work. As pg_test_timing, but from a session.

use std::time::{Duration, Instant};

use pgio_connect::Client;

/// Number of clock readings timed together.
const READINGS: u32 = 20_000;
/// Cost of a reading above which the clock is slow; without a system call it takes a tenth.
pub const SLOW_CLOCK: Duration =
    Duration::from_nanos(pgio_results::thresholds::CLOCK_READING_NANOS);

/// Measures one reading of the server's clock: a query with many readings against one without, the least
/// of three, since disturbances only add time.
pub fn reading(client: &mut Client) -> Option<Duration> {
    let all = format!("SELECT count(*) FROM generate_series(1, {READINGS})");
    let mut fastest = |sql: &str| {
        let once = |client: &mut Client| {
            let begun = Instant::now();
            client.query_one(sql, &[]).ok().map(|_| begun.elapsed())
        };
        (0..3).map(|_| once(client)).min().flatten()
    };
    let without = fastest(&all)?;
    let with = fastest(&format!("{all} WHERE clock_timestamp() IS NOT NULL"))?;
    Some(with.saturating_sub(without) / READINGS)
}
