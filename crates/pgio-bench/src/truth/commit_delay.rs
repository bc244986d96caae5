//! A server-side delay before each flush, against none. The truth is measured by psql in the same
//! minutes: loops of single INSERTs from a plain file, without pgio's code, some of them before each trial,
//! because the speed of flushes varies over time. Telemetry is off in these experiments: sampling wakes
//! the processor, which then ends the server's sleep later, and psql runs without it. The loops run and are timed
//! inside the server, as pgio's sessions are: a psql that waits for each commit has been idle for 20 ms when it is
//! answered, and needs 0.1 ms more to wake up.

use std::fs;
use std::path::Path;

use benchmath::signed_rank;

use super::rounds::{Plan, Round, RoundResult, private, run_rounds};
use pgio::cli::exit::{FAILED, FILES, Failure, Outcome};
use pgio::experiment::event::Event;
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::pg::private::PrivateCluster;

const DELAY: &str = "commit_delay = 20000, commit_siblings = 0";
/// The INSERT with its commit, as in psql's loops.
const METRIC: &str = "transaction_latency_mean";
/// Turns of psql before each trial for each second of its window: with fewer, psql's measurement would be less
/// certain than pgio's narrowest interval.
const TURNS: f64 = 6.0;
/// How often a turn does the INSERTs of both kinds, each for about 200 ms.
const TIMES: usize = 3;

struct Inserts {
    /// INSERTs that are not timed: they fill the session's caches, or are the guard of a slice.
    before: usize,
    timed: usize,
}

const PLAIN_INSERTS: Inserts = Inserts { before: 50, timed: 450 };
const DELAYED_INSERTS: Inserts = Inserts { before: 1, timed: 9 };

pub(super) fn run(plan: &Plan) -> Outcome {
    let cluster = private(plan.pg, None, &[])?;
    let dsn = cluster.primary_conninfo();
    let mut client = pgio_connect::Client::connect(&dsn).map_err(failed)?;
    // The columns are the workload's.
    client.batch_execute("CREATE TABLE plain (n integer, filler text)").map_err(failed)?;
    drop(client);
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::new(FILES, e).context("cannot make a temporary directory"))?;
    let text = format!(
        "{}telemetry = \"0\"\nprimary = \"{METRIC}\"\n\n[target]\ndsn = \"{dsn}\"\n\n[workload]\nkind = \"commit\"\nsessions = 1\n\n\
         [[condition]]\nname = \"prompt\"\n\n[[condition]]\nname = \"delayed\"\npostgres = {{ {DELAY} }}\n",
        plan.head("commit-delay", false)
    );
    let script = scratch.path().join("inserts.sql");
    fs::write(&script, turn_script()).map_err(|e| {
        Failure::new(FILES, e).context(format!("cannot write {}", script.display()))
    })?;
    let count = (TURNS * plan.window.as_secs_f64()).ceil() as usize;
    run_rounds(plan, "ms", |round| {
        let mut seen = Ok(Vec::new());
        let analysis = round.analyze_with_events(&text, &mut |event| {
            if let (Event::Begins { .. }, Ok(all)) = (event, &mut seen)
                && let Err(failure) =
                    turns(round, &cluster, &script, count).map(|further| all.extend(further))
            {
                seen = Err(failure);
            }
        })?;
        let seen = seen?;
        // As an effect describes the typical block: a mean would contain the rare delay of a whole machine.
        let typical = signed_rank::test(&seen, 0.05);
        let Some((truth, (low, high))) = typical.and_then(|t| Some((t.estimate, t.bounds?))) else {
            return Err(Failure::message(FAILED, "too few turns of psql: use longer windows"));
        };
        let remark = format!("psql: {:.3} to {:.3}", 1e3 * low, 1e3 * high);
        let found = analysis.primary("delayed");
        Ok(RoundResult { remark, ..RoundResult::for_difference(found, 1e3, 1e3 * truth) })
    })
}

fn turn_script() -> String {
    let part = |name: &str, settings: &str, Inserts { before, timed }: Inserts| {
        LOOP.replace("{settings}", settings)
            .replace("{before}", &before.to_string())
            .replace("{timed}", &timed.to_string())
            .replace("{name}", name)
    };
    let set = format!("SET {};", DELAY.replace(", ", "; SET "));
    let reset = "RESET commit_delay; RESET commit_siblings;";
    let both = part(PLAIN, reset, PLAIN_INSERTS) + &part(DELAYED, &set, DELAYED_INSERTS);
    both.repeat(TIMES)
}

/// Prints the name and the mean seconds of an INSERT with its commit.
const LOOP: &str = "\
{settings}
DO $$
DECLARE
    began timestamptz;
BEGIN
    FOR i IN 1..{before} LOOP
        INSERT INTO plain VALUES (1, NULL);
        COMMIT;
    END LOOP;
    began := clock_timestamp();
    FOR i IN 1..{timed} LOOP
        INSERT INTO plain VALUES (1, NULL);
        COMMIT;
    END LOOP;
    PERFORM set_config('plain.seconds',
        (extract(epoch FROM clock_timestamp() - began) / {timed})::text, false);
END
$$;
SELECT '{name}', current_setting('plain.seconds');
";

/// What psql prints beside the time of each kind.
const PLAIN: &str = "plain";
const DELAYED: &str = "delayed";

/// Returns the additional seconds of a commit with the delay, one value per turn. A turn ends when the
/// user requests a stop: a terminal's Ctrl-C reaches psql directly, but a signal to pgio alone does
/// not.
fn turns(
    round: &Round<'_>,
    cluster: &PrivateCluster,
    script: &Path,
    count: usize,
) -> Result<Vec<f64>, Failure> {
    let turn = |_| {
        let difference = difference_of_psql(cluster, script);
        round.check_interrupted().and(difference)
    };
    (0..count).map(turn).collect()
}

/// Returns how much longer an INSERT takes that commits by itself with the delay, in seconds.
fn difference_of_psql(cluster: &PrivateCluster, script: &Path) -> Result<f64, Failure> {
    let psql = CommandLine::new("psql")
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &cluster.primary_conninfo()])
        .arg("-f")
        .arg(script)
        .hide_env("PG")
        .env("LC_ALL", "C");
    let output = Local.run(&psql).map_err(failed)?;
    match [PLAIN, DELAYED].map(|kind| mean(&output, kind)) {
        [Some(plain), Some(delayed)] => Ok(delayed - plain),
        _ => Err(Failure::message(FAILED, "psql did not time the INSERTs of both kinds")),
    }
}

/// The mean of the times of this kind.
fn mean(output: &str, kind: &str) -> Option<f64> {
    let time = |line: &str| line.strip_prefix(kind)?.strip_prefix('|')?.trim().parse().ok();
    let times: Vec<f64> = output.lines().filter_map(time).collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot measure the truth with psql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_each_kind_are_found() {
        let output = "plain|0.0010\ndelayed|0.021\nplain|0.0030\ndelayed|0.023\n";
        assert_eq!((mean(output, PLAIN), mean(output, DELAYED)), (Some(0.002), Some(0.022)));
        assert_eq!(mean("delayed|\n", DELAYED), None);
        let script = turn_script();
        assert_eq!(script.matches("SET commit_delay = 20000; SET commit_siblings = 0;").count(), 3);
        assert_eq!(script.matches("1..450 LOOP").count(), 3);
        assert!(!script.contains('{'), "{script}");
    }
}
