//! Runs one trial on several servers in one window: each server's trial on a thread of its own, as alone, with a
//! common warm-up, a common start and a common end.
//!
//! Hosts are observed once for all servers, so that a neighbor's work is not taken for foreign load. The record
//! is the sum (`combine`) with each server's own. The threads meet before the warm-up, to agree on the start, and after
//! the last operation: each has a [`RendezvousMember`] that sends messages and waits for the answer, and
//! [`coordinate`] releases all at once. If one fails, the others are stopped: a window without it is another
//! condition. The start is a moment of this machine's monotonic clock, far enough ahead for every server to know it in
//! time.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::combine::{HostObservations, ServerTrial, combine};
use super::{Request, TrialResult};
use crate::host::stop::Stop;
use crate::rng::derive;
use crate::telemetry::{Recorder, TelemetrySources};
use crate::treatment::InForce;
use crate::workload::clock::{COMMON_LEAD, ClockReading, Opener, Start, common_lead, wait_until};
use crate::workload::{EngineError, Progress, Totals};
use pgio_connect::Client;
use pgio_results::joint::ClockOffset;

/// The servers of one trial; all run the same workload.
#[derive(Debug)]
pub struct JointTrial<'a> {
    /// By target; at least two. The first stands for all where a record has room for one.
    pub requests: Vec<(String, Request<'a>)>,
    /// Stops this trial alone; all requests have it.
    pub stop: &'a Stop,
    /// The metrics whose single servers are compared; the targets share the sum of the first.
    pub asked: &'a [&'a str],
}

/// Runs the trial. `in_force` and `admins` are in the order of the requests.
pub fn run(
    mut joint: JointTrial<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    mut admins: Vec<&mut Client>,
    observe: &mut dyn FnMut(Progress),
) -> TrialResult {
    let (sender, messages) = mpsc::channel();
    let mut answers = Vec::new();
    for (number, (name, request)) in joint.requests.iter_mut().enumerate() {
        let (answer, own) = mpsc::channel();
        answers.push(answer);
        request.member = Some(Arc::new(RendezvousMember::new(number, sender.clone(), own)));
        // No two servers visit the same keys in the same order.
        request.seed = derive(request.seed, &format!("target {name}"), 0) >> 11;
    }
    let requests = &joint.requests;
    let observed = telemetry_sources(requests, &mut admins);
    let window = requests[0].1.workload.extent().time();
    let mut hosts: Option<Recorder<'_>> = None;
    let measured: Vec<TrialResult> = thread::scope(|scope| {
        let each = requests.iter().zip(in_force.iter_mut()).zip(admins);
        let threads: Vec<_> = each
            .map(|(((_, request), own), admin)| {
                let messages = sender.clone();
                // Dropped with the work if no thread may start.
                let notice = EndNotice { messages, complete: false };
                let work = move || {
                    let mut end = notice;
                    let measured = super::run(request, own, admin, &mut |progress| {
                        request.member.iter().for_each(|member| member.progress(progress));
                    });
                    // A trial that lost a driver has an outcome, but no window that others could share.
                    end.complete = measured.error.is_none();
                    measured
                };
                (request, thread::Builder::new().spawn_scoped(scope, work))
            })
            .collect();
        coordinate(&messages, answers, joint.stop, &mut |meeting| match meeting {
            RendezvousEvent::Ready => hosts = Recorder::for_hosts(&observed, window),
            RendezvousEvent::Opened(at) => hosts.iter_mut().for_each(|hosts| hosts.opened(at)),
            RendezvousEvent::Closed(at) => hosts.iter_mut().for_each(|hosts| hosts.closed(at)),
            RendezvousEvent::Progress(progress) => observe(progress),
        });
        let joined = threads.into_iter().map(|(request, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(source) => {
                super::not_begun(request, EngineError::Thread { purpose: "a server", source })
            }
        });
        joined.collect()
    });
    let servers = requests.iter().zip(measured);
    let servers =
        servers.map(|((name, request), measured)| ServerTrial { name, request, measured });
    let observations = hosts.and_then(Recorder::finish);
    let observations = observations.map(|(telemetry, series, warnings)| HostObservations {
        telemetry,
        series,
        warnings,
    });
    combine(servers.collect(), observations, joint.asked, in_force)
}

/// Returns what is observed on each target, with the process of a session that stays open; none if telemetry is off.
fn telemetry_sources<'a>(
    requests: &[(String, Request<'a>)],
    admins: &mut [&mut Client],
) -> Vec<(&'a TelemetrySources, Option<i32>)> {
    let pid = |admin: &mut Client| {
        let row = admin.query_one("SELECT pg_backend_pid()", &[]).ok()?;
        row.try_get(0).ok()
    };
    let each = requests.iter().zip(admins);
    each.filter_map(|((_, request), admin)| Some((request.sources?, pid(admin)))).collect()
}

/// A message of a member's thread; the number is the member's.
#[derive(Debug)]
enum Message {
    Arrived(usize, MeetingPoint),
    Progress(usize, Progress),
    /// The thread has ended; a trial that is not complete stops all others.
    Ended {
        complete: bool,
    },
}

/// Where members wait for each other.
#[derive(Debug, Clone, Copy)]
enum MeetingPoint {
    /// Ready to warm up.
    Prepared,
    /// Ready to start, with the lead that this member needs.
    Ready(Duration),
    /// The last operation ended at this moment.
    Closed(Instant),
}

/// One server's part in the meeting.
#[derive(Debug)]
pub struct RendezvousMember {
    number: usize,
    messages: Sender<Message>,
    /// The answer: the start, or the present for other points.
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

impl RendezvousMember {
    fn new(
        number: usize,
        messages: Sender<Message>,
        answers: Receiver<Instant>,
    ) -> RendezvousMember {
        RendezvousMember { number, messages, answers: answers.into(), record: Mutex::default() }
    }

    /// Waits until all others are prepared as well.
    pub(super) fn wait_prepared(&self) -> Result<(), EngineError> {
        self.wait_at(MeetingPoint::Prepared).map(drop)
    }

    /// Waits until all others have ended their work: sessions that disconnect earlier would be missing from the
    /// hosts' last lists of processes.
    pub(super) fn wait_closed(&self, at: Instant) {
        // After an error of another member there is nothing to wait for.
        let _ = self.wait_at(MeetingPoint::Closed(at));
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

    fn wait_at(&self, point: MeetingPoint) -> Result<Instant, EngineError> {
        let stopped = |()| EngineError::Stopped;
        self.messages.send(Message::Arrived(self.number, point)).map_err(|_| stopped(()))?;
        let answers = self.answers.lock().expect("no holder of the lock panics");
        answers.recv().map_err(|_| stopped(()))
    }
}

impl Opener for RendezvousMember {
    fn start(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        let reading = ClockReading::take(admin)?;
        let needed = lead.max(common_lead(reading.slowest));
        self.record().before = Some(reading);
        let at = self.wait_at(MeetingPoint::Ready(needed))?;
        Ok(Start { at, epoch: reading.epoch_at(at) })
    }
}

/// Reports the end of a member's thread, also if it panics.
#[derive(Debug)]
struct EndNotice {
    messages: Sender<Message>,
    complete: bool,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Ended { complete: self.complete });
    }
}

/// What the coordinator reports.
#[derive(Debug, Clone, Copy)]
enum RendezvousEvent {
    /// All are ready; none has the start yet.
    Ready,
    Opened(Instant),
    Progress(Progress),
    /// All have ended, the last one at this moment; their sessions are still connected.
    Closed(Instant),
}

/// Runs the meeting until all threads have ended. `stop` stops the members without stopping the run.
fn coordinate(
    messages: &Receiver<Message>,
    mut answers: Vec<Sender<Instant>>,
    stop: &Stop,
    observe: &mut dyn FnMut(RendezvousEvent),
) {
    let count = answers.len();
    let mut arrived: Vec<Option<MeetingPoint>> = vec![None; count];
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
            Message::Arrived(number, point) => {
                arrived[number] = Some(point);
                let all: Option<Vec<MeetingPoint>> = arrived.iter().copied().collect();
                let Some(points) = all.filter(|_| !answers.is_empty()) else { continue };
                arrived.fill(None);
                release(&points, &answers, observe);
            }
        }
    }
}

fn release(
    points: &[MeetingPoint],
    answers: &[Sender<Instant>],
    observe: &mut dyn FnMut(RendezvousEvent),
) {
    let mut lead: Option<Duration> = None;
    let mut closed: Option<Instant> = None;
    for point in points {
        match point {
            MeetingPoint::Prepared => {}
            MeetingPoint::Ready(needed) => lead = lead.max(Some(*needed)),
            MeetingPoint::Closed(at) => closed = closed.max(Some(*at)),
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
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::thread;

    /// Runs members on threads; each does `work` with its number. Returns what was reported, and whether the
    /// members were stopped.
    fn meeting(
        count: usize,
        work: impl Fn(usize, &RendezvousMember) -> Result<(), EngineError> + Sync,
    ) -> (Vec<RendezvousEvent>, bool) {
        let (sender, messages) = mpsc::channel();
        let (mut answers, mut members) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (answer, own) = mpsc::channel();
            answers.push(answer);
            members.push(Arc::new(RendezvousMember::new(number, sender.clone(), own)));
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
            let at =
                member.wait_at(MeetingPoint::Ready(Duration::from_millis(100 * number as u64)))?;
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
        let (seen, _) = meeting(2, |_, member| member.wait_at(MeetingPoint::Ready(long)).map(drop));
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
            match member.wait_at(MeetingPoint::Ready(COMMON_LEAD)) {
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
