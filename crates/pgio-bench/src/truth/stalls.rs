//! Three trials in ten of one condition are stopped for a third of their window. The report must say
//! so, with the right ratio of total work to total time. The typical block does not show it reliably:
//! at three in ten, its estimate (Hodges-Lehmann, breakdown point 29 %) begins to move.
//!
//! SIGSTOP stops all processes of the server except the first. The truth is the stopped share of the
//! condition's windows. The server delays each flush by 10 ms, so that a timer determines the rate. The
//! rate of a CPU-bound workload would vary more than the stalls change it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::rounds::{Plan, Round, RoundResult, opened_at, private, run_rounds};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::experiment::event::Event;
use pgio_report::report::Statement;
use pgio_verdict::{Analysis, Comparison, STALLS};

const STALLED: &str = "stalling";
/// The stopped part of a window, from this point on.
const STOPPED_SHARE: f64 = 1.0 / 3.0;
const STOP_START: f64 = 0.4;

pub(super) fn run(plan: &Plan) -> Outcome {
    let delay = [("commit_delay", "10000"), ("commit_siblings", "0")];
    let cluster = private(plan.pg, None, &delay)?;
    let pid_file = cluster.data_dir().join("postmaster.pid");
    let text = format!(
        "{}\n[target]\ndsn = \"{}\"\n\n\
         [workload]\nkind = \"commit\"\nsessions = 1\n\n\
         [[condition]]\nname = \"steady\"\n\n[[condition]]\nname = \"{STALLED}\"\n",
        plan.head("stalls", false),
        cluster.primary_conninfo()
    );
    run_rounds(plan, "totals", |round| one(plan, round, &text, &pid_file))
}

fn one(
    plan: &Plan,
    round: &Round<'_>,
    text: &str,
    pid_file: &Path,
) -> Result<RoundResult, Failure> {
    let (windows, opened) = mpsc::channel::<Instant>();
    let window = plan.window;
    let stopper = {
        let pid_file = pid_file.to_owned();
        thread::spawn(move || stop_during_windows(&opened, window, &pid_file))
    };
    let (mut waiting, mut measured) = (false, 0_u32);
    let analysis = round.analyze_with_events(text, &mut |event| match event {
        Event::Begins { planned, condition } => {
            waiting = *condition == STALLED && planned.iter().any(|p| stalls(p.block));
        }
        Event::Progress { progress, .. } if waiting => {
            waiting = false;
            // If the thread has ended, its result below has the reason.
            let _ = windows.send(opened_at(progress));
        }
        Event::Ended { trial, .. } if !trial.is_burn_in() => {
            let place = trial.place.as_ref();
            measured += u32::from(place.is_some_and(|p| p.condition == STALLED));
        }
        _ => {}
    });
    drop(windows);
    let stopped = stopper.join().map_err(|_| failed(anyhow::anyhow!("its thread ended")))??;
    let all = f64::from(measured) * window.as_secs_f64();
    Ok(judged(&analysis?, 1.0 - stopped.as_secs_f64() / all))
}

/// Selects three blocks in ten.
fn stalls(block: u32) -> bool {
    block * 3 % 10 < 3
}

/// Returns the ratio of totals, which counts only if the answer says that it stalls.
fn judged(analysis: &Analysis, truth: f64) -> RoundResult {
    let found = analysis.primary(STALLED);
    let mut stalls = analysis.checks.iter().filter(|f| f.id == STALLS);
    let is_told = stalls.any(|f| f.condition.as_deref() == Some(STALLED))
        && Statement::new(analysis, STALLED).short().contains("it stalls");
    let totals = |c: &Comparison| {
        let totals = c.totals.filter(|_| is_told);
        [
            totals.map(|t| t.ratio),
            totals.and_then(|t| t.interval.low),
            totals.and_then(|t| t.interval.high),
        ]
    };
    let typical = found.and_then(|c| c.ratio).unwrap_or(f64::NAN);
    let told = if is_told { "told" } else { "NOT told" };
    let remark = format!("typical block {typical:.4}; {told}");
    RoundResult { remark, ..RoundResult::new(found, totals, 1.0, truth) }
}

/// Stops the server's processes in each window that opens; returns the total stopped time.
fn stop_during_windows(
    opened: &Receiver<Instant>,
    window: Duration,
    pid_file: &Path,
) -> Result<Duration, Failure> {
    let mut stopped = Duration::ZERO;
    for opened in opened {
        let until = |part: f64| {
            let moment = opened + window.mul_f64(part);
            thread::sleep(moment.saturating_duration_since(Instant::now()));
        };
        until(STOP_START);
        let processes = children(pid_file).map_err(failed)?;
        let began = Instant::now();
        let all = |signal| processes.iter().try_for_each(|pid| kill_process(*pid, signal));
        let sent = all(Signal::STOP);
        until(STOP_START + STOPPED_SHARE);
        // Continue them even if some could not be stopped.
        let again = all(Signal::CONT);
        stopped += began.elapsed();
        sent.and(again).map_err(failed)?;
    }
    Ok(stopped)
}

/// Returns the children of the process whose ID is the file's first line.
fn children(pid_file: &Path) -> anyhow::Result<Vec<Pid>> {
    let text = fs::read_to_string(pid_file)?;
    let pid = text.lines().next().unwrap_or_default().trim().to_owned();
    let children = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let listed = fs::read_to_string(children)?;
    let numbers =
        listed.split_whitespace().map(str::parse::<i32>).collect::<Result<Vec<_>, _>>()?;
    Ok(numbers.into_iter().filter_map(Pid::from_raw).collect())
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot stop the server's processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_selects_three_blocks_in_ten() {
        assert_eq!((1..=10).filter(|block| stalls(*block)).count(), 3);
        assert_eq!((1..=40).filter(|block| stalls(*block)).count(), 12);
    }
}
