//! A server-side delay before each flush, against none. The truth is measured by psql in the same
//! minutes: single INSERTs from a plain file, without pgio's code, some of them before each trial,
//! because the speed of flushes varies over time. Telemetry is off in these experiments: sampling wakes
//! the processor, which then ends the server's sleep later, and psql runs without it.

use std::fs;
use std::path::Path;

use postgres::NoTls;

use super::rounds::{Plan, Round, RoundResult, run_rounds};
use super::server::private;
use pgio::cli::exit::{FAILED, FILES, Failure, Outcome};
use pgio::experiment::event::Event;
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::pg::private::PrivateCluster;

const DELAY: &str = "commit_delay = 20000, commit_siblings = 0";
/// The INSERT with its commit, which psql times.
const METRIC: &str = "transaction_latency_mean";
/// INSERTs per turn; both kinds take about equally long on a disk that flushes in a millisecond or two.
const PLAIN: usize = 150;
const DELAYED: usize = 60;
/// Turns before each trial for each second of its window: with fewer, psql's measurement would be less
/// certain than pgio's narrowest interval.
const TURNS: f64 = 2.0;

pub(super) fn run(plan: &Plan) -> Outcome {
    let cluster = private(plan.pg, None, &[])?;
    let dsn = cluster.primary_conninfo();
    let mut client = postgres::Client::connect(&dsn, NoTls).map_err(failed)?;
    // The columns are those of the workload.
    client.batch_execute("CREATE TABLE plain (n integer, filler text)").map_err(failed)?;
    drop(client);
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::new(FILES, e).context("cannot make a temporary directory"))?;
    let text = format!(
        "{}telemetry = \"0\"\nprimary = \"{METRIC}\"\n\n[target]\ndsn = \"{dsn}\"\n\n[workload]\nkind = \"commit\"\nsessions = 1\n\n\
         [[condition]]\nname = \"prompt\"\n\n[[condition]]\nname = \"delayed\"\npostgres = {{ {DELAY} }}\n",
        plan.head("commit-delay", false)
    );
    let count = (TURNS * plan.window.as_secs_f64()).ceil() as usize;
    run_rounds(plan, "ms", |round| {
        let mut seen = Ok(Vec::new());
        let analysis = round.analyze_with_events(&text, &mut |event| {
            if let (Event::Begins { .. }, Ok(all)) = (event, &mut seen)
                && let Err(failure) =
                    turns(round, &cluster, scratch.path(), count).map(|further| all.extend(further))
            {
                seen = Err(failure);
            }
        })?;
        let seen = seen?;
        let n = seen.len() as f64;
        let truth = seen.iter().sum::<f64>() / n;
        let variance = seen.iter().map(|s| (s - truth).powi(2)).sum::<f64>() / (n - 1.0);
        let remark = format!("psql: ± {:.3}", 1e3 * 1.96 * (variance / n).sqrt());
        let found = analysis.primary("delayed");
        Ok(RoundResult { remark, ..RoundResult::for_difference(found, 1e3, 1e3 * truth) })
    })
}

/// Returns the additional seconds of a commit with the delay, one value per turn. A turn ends when the
/// user requests a stop: a terminal's Ctrl-C reaches psql directly, but a signal to pgio alone does
/// not.
fn turns(
    round: &Round<'_>,
    cluster: &PrivateCluster,
    scratch: &Path,
    count: usize,
) -> Result<Vec<f64>, Failure> {
    let settings = format!("SET {};\n", DELAY.replace(", ", ";\nSET "));
    let mean = |settings: &str, inserts| {
        let mean = mean_of_psql(cluster, scratch, settings, inserts);
        // Restore the setting even after a failure.
        round.check_interrupted().and(mean)
    };
    (0..count)
        .map(|_| {
            let plain = mean("", PLAIN)?;
            Ok(mean(&settings, DELAYED)? - plain)
        })
        .collect()
}

/// Returns the mean seconds of an INSERT that commits by itself, from psql's \timing.
fn mean_of_psql(
    cluster: &PrivateCluster,
    scratch: &Path,
    settings: &str,
    inserts: usize,
) -> Result<f64, Failure> {
    let insert = "INSERT INTO plain VALUES (1, NULL);\n";
    let file = scratch.join("inserts.sql");
    // The first INSERTs fill the session's caches.
    let text = format!("{settings}{}\\timing on\n{}", insert.repeat(5), insert.repeat(inserts));
    fs::write(&file, text)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot write {}", file.display())))?;
    let psql = CommandLine::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &cluster.primary_conninfo(), "-f"])
        .arg(&file)
        .hide_env("PG")
        .env("LC_ALL", "C");
    let output = Local.run(&psql).map_err(failed)?;
    let times: Vec<f64> = output.lines().filter_map(milliseconds).collect();
    if times.len() != inserts {
        let text = format!("psql timed {} of {inserts} INSERTs", times.len());
        return Err(Failure::message(FAILED, text));
    }
    Ok(times.iter().sum::<f64>() / inserts as f64 / 1e3)
}

/// Parses `Time: 1234.567 ms (00:01.235)`.
fn milliseconds(line: &str) -> Option<f64> {
    line.strip_prefix("Time: ")?.split_whitespace().next()?.parse().ok()
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot measure the truth with psql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psql_timings_are_parsed_with_and_without_minutes() {
        assert_eq!(milliseconds("Time: 21.104 ms"), Some(21.104));
        assert_eq!(milliseconds("Time: 1234.567 ms (00:01.235)"), Some(1234.567));
        assert_eq!(milliseconds("INSERT 0 1"), None);
    }
}
