//! Runs one trial on several servers in one window: each server's trial on a thread of its own, as alone, with a
//! common warm-up, a common start and a common end.
//!
//! Hosts are observed once for all servers, so that a neighbor's work is not taken for foreign load. The record
//! is the sum (`combine`) with each server's part. Next: `rendezvous`, where the threads wait for each other.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use postgres::Client;

use super::TrialResult;
use super::combine::{HostObservations, Part, combine};
use super::rendezvous::{EndNotice, Member, RendezvousEvent, coordinate};
use super::request::Request;
use crate::host::stop::Stop;
use crate::rng::derive;
use crate::telemetry::{Recorder, TelemetrySources};
use crate::treatment::InForce;
use crate::workload::{EngineError, Progress};

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
        request.member = Some(Arc::new(Member::new(number, sender.clone(), own)));
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
    let parts = requests.iter().zip(measured);
    let parts = parts.map(|((name, request), measured)| Part { name, request, measured });
    let observations = hosts.and_then(Recorder::finish);
    let observations = observations.map(|(telemetry, series, warnings)| HostObservations {
        telemetry,
        series,
        warnings,
    });
    combine(parts.collect(), observations, joint.asked, in_force)
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
