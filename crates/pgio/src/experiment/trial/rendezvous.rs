//! Where the servers of a joint window meet: before the warm-up, to agree on the start, and after the last operation.
//!
//! Each server's trial runs on a thread of its own, as it would alone; its [`Member`] sends messages and waits for
//! the answer. [`coordinate`] releases all at once. If one fails, the others are stopped: a window without it is
//! another condition. The start is a moment of this machine's monotonic clock, far enough ahead for every server
//! to know it in time. Next: `joint`, which starts the threads.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::host::stop::Stop;
use crate::workload::clock::{COMMON_LEAD, ClockReading, Opener, Start, common_lead, wait_until};
use crate::workload::{EngineError, Progress, Totals};
use pgio_results::joint::ClockOffset;

/// A message of a member's thread; the number is the member's.
#[derive(Debug)]
pub(super) enum Message {
    Arrived(usize, Stage),
    Progress(usize, Progress),
    /// The thread has ended; a trial that is not complete stops all others.
    Ended {
        complete: bool,
    },
}

/// Where members wait for each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// Ready to warm up.
    Prepared,
    /// Ready to start, with the lead that this member needs.
    Ready(Duration),
    /// The last operation ended at this moment.
    Closed(Instant),
}

/// One server's part in the meeting.
#[derive(Debug)]
pub struct Member {
    number: usize,
    messages: Sender<Message>,
    /// The answer: the start, or the present for other stages.
    answers: Mutex<Receiver<Instant>>,
    record: Mutex<MemberRecord>,
}

/// What a member's trial leaves for the sum.
#[derive(Debug, Default)]
pub(super) struct MemberRecord {
    pub(super) before: Option<ClockReading>,
    pub(super) after: Option<ClockReading>,
    /// Seconds from the agreed start to the start of its first session.
    pub(super) first: f64,
    pub(super) totals: Totals,
}

impl MemberRecord {
    /// Returns the clock as it is stored.
    pub(super) fn clock(&self) -> Option<ClockOffset> {
        let before = self.before?;
        Some(ClockOffset {
            round_trip_seconds: before.round_trip.as_secs_f64(),
            slowest_seconds: before.slowest.as_secs_f64(),
            began_seconds: self.first,
            moved_seconds: self.after.map(|after| after.drift_since(&before)),
        })
    }
}

impl Member {
    pub(super) fn new(
        number: usize,
        messages: Sender<Message>,
        answers: Receiver<Instant>,
    ) -> Member {
        Member { number, messages, answers: answers.into(), record: Mutex::default() }
    }

    /// Waits until all others are prepared as well.
    pub(super) fn wait_prepared(&self) -> Result<(), EngineError> {
        self.wait_at(Stage::Prepared).map(drop)
    }

    /// Waits until all others have ended their work: sessions that disconnect earlier would be missing from the
    /// hosts' last lists of processes.
    pub(super) fn wait_closed(&self, at: Instant) {
        // After an error of another member there is nothing to wait for.
        let _ = self.wait_at(Stage::Closed(at));
    }

    pub(super) fn progress(&self, progress: Progress) {
        // The coordinator outlives the threads.
        let _ = self.messages.send(Message::Progress(self.number, progress));
    }

    /// Keeps the work for the sum, and reads the clock once more.
    pub(super) fn record_work(&self, totals: &Totals, first: f64, admin: &mut Client) {
        let mut record = self.record();
        record.totals.clone_from(totals);
        record.first = if first.is_finite() { first } else { 0.0 };
        // Without a second reading the check says so.
        record.after = ClockReading::take(admin).ok();
    }

    pub(super) fn record(&self) -> std::sync::MutexGuard<'_, MemberRecord> {
        self.record.lock().expect("no holder of the lock panics")
    }

    fn wait_at(&self, stage: Stage) -> Result<Instant, EngineError> {
        let stopped = |()| EngineError::Stopped;
        self.messages.send(Message::Arrived(self.number, stage)).map_err(|_| stopped(()))?;
        let answers = self.answers.lock().expect("no holder of the lock panics");
        answers.recv().map_err(|_| stopped(()))
    }
}

impl Opener for Member {
    fn start(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        let reading = ClockReading::take(admin)?;
        let needed = lead.max(common_lead(reading.slowest));
        self.record().before = Some(reading);
        let at = self.wait_at(Stage::Ready(needed))?;
        Ok(Start { at, epoch: reading.epoch_at(at) })
    }
}

/// Reports the end of a member's thread, also if it panics.
#[derive(Debug)]
pub(super) struct EndNotice {
    pub(super) messages: Sender<Message>,
    pub(super) complete: bool,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Ended { complete: self.complete });
    }
}

/// What the coordinator reports.
#[derive(Debug, Clone, Copy)]
pub(super) enum RendezvousEvent {
    /// All are ready; none has the start yet.
    Ready,
    Opened(Instant),
    Progress(Progress),
    /// All have ended, the last one at this moment; their sessions are still connected.
    Closed(Instant),
}

/// Runs the meeting until all threads have ended. `stop` stops the members without stopping the run.
pub(super) fn coordinate(
    messages: &Receiver<Message>,
    mut answers: Vec<Sender<Instant>>,
    stop: &Stop,
    observe: &mut dyn FnMut(RendezvousEvent),
) {
    let count = answers.len();
    let mut arrived: Vec<Option<Stage>> = vec![None; count];
    let mut progress = vec![Progress::default(); count];
    let mut ended = 0;
    while ended < count {
        let Ok(message) = messages.recv() else { return };
        match message {
            Message::Progress(number, own) => {
                progress[number] = own;
                observe(RendezvousEvent::Progress(sum(&progress)));
            }
            Message::Ended { complete } => {
                ended += 1;
                if !complete && !answers.is_empty() {
                    stop.request();
                    // Those who wait learn it by the end of their channel.
                    answers.clear();
                }
            }
            Message::Arrived(number, stage) => {
                arrived[number] = Some(stage);
                let all: Option<Vec<Stage>> = arrived.iter().copied().collect();
                let Some(stages) = all.filter(|_| !answers.is_empty()) else { continue };
                arrived.fill(None);
                release(&stages, &answers, observe);
            }
        }
    }
}

fn release(
    stages: &[Stage],
    answers: &[Sender<Instant>],
    observe: &mut dyn FnMut(RendezvousEvent),
) {
    let mut lead: Option<Duration> = None;
    let mut closed: Option<Instant> = None;
    for stage in stages {
        match stage {
            Stage::Prepared => {}
            Stage::Ready(needed) => lead = lead.max(Some(*needed)),
            Stage::Closed(at) => closed = closed.max(Some(*at)),
        }
    }
    if lead.is_some() {
        observe(RendezvousEvent::Ready);
    }
    if let Some(at) = closed {
        observe(RendezvousEvent::Closed(at));
    }
    let at = Instant::now() + lead.map_or(Duration::ZERO, |needed| needed.max(COMMON_LEAD));
    // A thread that has ended does not receive it, and its end is the next message.
    for answer in answers {
        let _ = answer.send(at);
    }
    if lead.is_some() {
        wait_until(at);
        observe(RendezvousEvent::Opened(at));
    }
}

fn sum(all: &[Progress]) -> Progress {
    let count = all.len() as f64;
    Progress {
        elapsed: all.iter().map(|p| p.elapsed).fold(0.0, f64::max),
        covered: all.iter().map(|p| p.covered).sum::<f64>() / count,
        block_visits: all.iter().map(|p| p.block_visits).sum(),
        blocks_scanned: all.iter().map(|p| p.blocks_scanned).sum(),
        commits: all.iter().map(|p| p.commits).sum(),
        ..Progress::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Runs members on threads; each does `work` with its number. Returns what was reported, and whether the
    /// members were stopped.
    fn meeting(
        count: usize,
        work: impl Fn(usize, &Member) -> Result<(), EngineError> + Sync,
    ) -> (Vec<RendezvousEvent>, bool) {
        let (sender, messages) = mpsc::channel();
        let (mut answers, mut members) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (answer, own) = mpsc::channel();
            answers.push(answer);
            members.push(Arc::new(Member::new(number, sender.clone(), own)));
        }
        let stop = Stop::new();
        let mut seen = Vec::new();
        thread::scope(|scope| {
            for (number, member) in members.iter().enumerate() {
                let (messages, work) = (sender.clone(), &work);
                scope.spawn(move || {
                    let mut end = EndNotice { messages, complete: false };
                    end.complete = work(number, member).is_ok();
                });
            }
            coordinate(&messages, answers, &stop, &mut |event| seen.push(event));
        });
        (seen, stop.requested())
    }

    #[test]
    fn all_get_one_start_with_the_longest_lead() {
        let starts = Mutex::new(Vec::new());
        let began = Instant::now();
        let (seen, stopped) = meeting(3, |number, member| {
            member.wait_prepared()?;
            let at = member.wait_at(Stage::Ready(Duration::from_millis(100 * number as u64)))?;
            starts.lock().unwrap().push(at);
            member.wait_closed(at + Duration::from_secs(number as u64));
            Ok(())
        });
        assert!(!stopped);
        let starts = starts.into_inner().unwrap();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|at| *at == starts[0]) && starts[0] >= began + COMMON_LEAD);
        let [
            RendezvousEvent::Ready,
            RendezvousEvent::Opened(opened),
            RendezvousEvent::Closed(closed),
        ] = seen[..]
        else {
            panic!("{seen:?}")
        };
        assert_eq!((opened, closed), (starts[0], starts[0] + Duration::from_secs(2)));
    }

    #[test]
    fn a_long_round_trip_lengthens_the_lead() {
        let began = Instant::now();
        let long = COMMON_LEAD * 2;
        let (seen, _) = meeting(2, |_, member| member.wait_at(Stage::Ready(long)).map(drop));
        let RendezvousEvent::Opened(at) = seen[1] else { panic!("{seen:?}") };
        assert!(at >= began + long);
    }

    #[test]
    fn the_failure_of_one_member_releases_all_others() {
        let (seen, stopped) = meeting(3, |number, member| {
            member.wait_prepared()?;
            if number == 1 {
                return Err(EngineError::Overdue("gone".to_owned()));
            }
            match member.wait_at(Stage::Ready(COMMON_LEAD)) {
                Err(EngineError::Stopped) => Err(EngineError::Stopped),
                other => panic!("{other:?}"),
            }
        });
        assert!(stopped && seen.is_empty(), "{seen:?}");
    }

    #[test]
    fn progress_adds_up_the_commits_of_all_members() {
        let (seen, _) = meeting(2, |number, member| {
            let commits = 10 * (number as u64 + 1);
            member.progress(Progress { covered: 2.0, commits, ..Progress::default() });
            member.wait_prepared()
        });
        let Some(RendezvousEvent::Progress(last)) = seen.last() else { panic!("{seen:?}") };
        assert_eq!((last.commits, last.covered), (30, 2.0));
    }
}
