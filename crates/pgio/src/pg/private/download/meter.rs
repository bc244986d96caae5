//! Converts the byte counts of a download into a limited number of reports with the time left.

use std::time::{Duration, Instant};

use super::super::progress::{Observer, Progress};
use super::super::version::ServerVersion;

/// Interval of reports; more would make the terminal the slowest part of the download.
const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time for a meaningful rate.
const SHORTEST_MEASURED: Duration = Duration::from_millis(500);

/// Converts byte counts into reports.
pub(super) struct Meter<'a> {
    version: ServerVersion,
    observer: Observer<'a>,
    /// Time and value of the first count; the rate excludes bytes of an earlier run.
    first: Option<(Instant, u64)>,
    last_report: Option<Instant>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(version: ServerVersion, observer: Observer<'a>) -> Meter<'a> {
        Meter { version, observer, first: None, last_report: None }
    }

    /// Reports the count unless the last report is too recent. The last byte is always reported.
    pub(super) fn count(&mut self, received: u64, total: Option<u64>) {
        let now = Instant::now();
        let complete = total == Some(received);
        let recent = self.last_report.is_some_and(|last| now - last < INTERVAL);
        if recent && !complete {
            return;
        }
        self.last_report = Some(now);
        // The count falls if the server starts over.
        let (since, base) = match self.first {
            Some((since, base)) if received >= base => (since, base),
            _ => *self.first.insert((now, received)),
        };
        let left = total.and_then(|t| time_left(received - base, now - since, t - received));
        (self.observer)(&Progress::Download { version: self.version, received, total, left });
    }
}

/// Extrapolates from the mean rate so far.
fn time_left(received: u64, elapsed: Duration, remaining: u64) -> Option<Duration> {
    if received == 0 || elapsed < SHORTEST_MEASURED {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * remaining as f64 / received as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: ServerVersion = ServerVersion { major: 18, minor: 6 };

    #[test]
    fn time_left_follows_from_the_mean_rate() {
        let two = Duration::from_secs(2);
        assert_eq!(time_left(1000, two, 4000), Some(Duration::from_secs(8)));
        assert_eq!(time_left(1000, two, 0), Some(Duration::ZERO));
        assert_eq!(time_left(0, two, 4000), None, "nothing arrived");
        assert_eq!(time_left(1000, Duration::from_millis(1), 4000), None, "too early");
    }

    #[test]
    fn the_first_and_the_last_count_are_reported_and_few_between() {
        let mut seen = Vec::new();
        let mut observer = |progress: &Progress| seen.push(progress.clone());
        let mut meter = Meter::new(VERSION, &mut observer);
        for received in 500..=1000 {
            meter.count(received, Some(1000));
        }
        let counts: Vec<u64> = seen
            .iter()
            .map(|p| match p {
                Progress::Download { received, .. } => *received,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((counts.first(), counts.last()), (Some(&500), Some(&1000)));
        assert!(counts.len() < 100, "{counts:?}");
    }
}
