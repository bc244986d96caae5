//! Compares the client-side engine with `pgbench -M prepared`: the same statement with the same random
//! keys on the same server and socket, in turn. Compared are the client's CPU time per query, the
//! queries per second, and the time to connect a thousand sessions.
//!
//! The client's CPU time is its whole process's as the kernel counts it: for pgbench after its
//! end, for pgio, whose process also reads evidence and counters, between the first and the last
//! progress event inside the window.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::server::{Bench, metric, spread};
use pgio::cli::exit::{FAILED, Failure, Outcome, REFUSED};
use pgio::cli::output;
use pgio::config::Layer;
use pgio::config::value::EngineName;
use pgio::pg::private::VersionRequest;
use pgio::workload::{Setup, Workload};
use pgio_results::units::Scale;

/// Connections of the last case, for which the server is configured.
const MANY: u32 = 1000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Pairs of runs
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Length of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    /// The program to compare with; default: next to the server's programs, or in PATH
    #[arg(long, value_name = "FILE")]
    pgbench: Option<PathBuf>,
    #[arg(long, value_name = "VERSION", default_value = "15")]
    pg: VersionRequest,
}

/// One run of either client.
#[derive(Debug, Clone, Copy)]
struct Figures {
    tps: f64,
    /// Microseconds of the client's CPU per query.
    cpu: f64,
    /// Seconds until all connections were open.
    connecting: f64,
}

type Value = fn(&Figures) -> f64;

pub(super) fn run(args: &Args) -> Outcome {
    let scale: Scale = "200M".parse().expect("a valid size");
    let mut bench = Bench::start(
        Some(args.pg),
        &[
            ("shared_buffers", "1GB"),
            ("max_wal_size", "4GB"),
            ("autovacuum", "off"),
            ("max_connections", &(MANY + 20).to_string()),
        ],
    )?;
    let pgbench = match &args.pgbench {
        Some(pgbench) => pgbench.clone(),
        None => pgbench_path(&bench.cluster.binaries().directory),
    };
    bench.load(&scale, 1, false)?;
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::new(FAILED, e).context("cannot make a temporary directory"))?;
    let script = scratch.path().join("read.sql");
    let keys = scale.blocks();
    let text =
        format!("\\set k random(1, {keys})\nSELECT scratch FROM public.pgio1 WHERE mykey = :k;\n");
    fs::write(&script, text)
        .map_err(|e| Failure::new(FAILED, e).context("cannot write pgbench's script"))?;
    output::line(&format!(
        "SELECT of one cached row by key, prepared, unix socket, {} pairs of {} s\n",
        args.rounds, args.seconds
    ));
    output::line("connections  client     queries/s  CPU µs/query  connecting ms");
    for connections in [1, 64, MANY] {
        let theirs = Pgbench { program: &pgbench, script: &script, connections, args };
        let (mut ours_all, mut theirs_all) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            // Alternate the first client, so that both share the effects of the previous run.
            let order = if round % 2 == 0 { [true, false] } else { [false, true] };
            for pgbench in order {
                if pgbench {
                    theirs_all.push(theirs.run(&mut bench)?);
                } else {
                    ours_all.push(ours(&mut bench, connections, args.seconds)?);
                }
            }
        }
        print_ratios(connections, &ours_all, &theirs_all);
    }
    Ok(())
}

fn print_ratios(connections: u32, ours: &[Figures], theirs: &[Figures]) {
    let median = |all: &[Figures], value: Value| {
        let values: Vec<f64> = all.iter().map(value).collect();
        benchmath::summary::quantile(&values, 0.5).unwrap_or(f64::NAN)
    };
    for (name, all) in [("pgbench", theirs), ("pgio", ours)] {
        output::line(&format!(
            "{connections:11}  {name:9}  {:9.0}  {:12.2}  {:13.1}",
            median(all, |f| f.tps),
            median(all, |f| f.cpu),
            median(all, |f| f.connecting) * 1e3,
        ));
    }
    let ratios = |value: Value| -> Vec<f64> {
        ours.iter().zip(theirs).map(|(o, t)| value(o) / value(t)).collect()
    };
    // With few connections, the first session takes most of the time.
    let shown = if connections == MANY { 3 } else { 2 };
    let all: [(&str, Value); 3] =
        [("queries/s", |f| f.tps), ("CPU per query", |f| f.cpu), ("connecting", |f| f.connecting)];
    for (name, value) in all.into_iter().take(shown) {
        output::line(&format!("{:24}pgio/pgbench, {name}: {}", "", spread(&ratios(value), 2)));
    }
}

fn ours(bench: &mut Bench, connections: u32, seconds: u64) -> Result<Figures, Failure> {
    let layer = Layer {
        update_pct: Some(0),
        work_unit: Some(1),
        num_schemas: Some(1),
        num_threads: Some(connections),
        run_time: Some(Duration::from_secs(seconds)),
        engine: Some(EngineName::Client),
        ..Layer::default()
    };
    let slob: Arc<dyn Workload> = Arc::new(bench.loaded(layer)?);
    let connecting = connect(bench, &slob)?;
    let begun = Instant::now();
    let mut span = None;
    let trial = bench.observed_trial(&slob, Duration::ZERO, None, &mut |_| {
        let now = (begun.elapsed().as_secs_f64(), own_cpu());
        let (first, _) = *span.get_or_insert((now, now));
        span = Some((first, now));
    })?;
    let ((from, cpu_from), (to, cpu_to)) = span.unwrap_or_default();
    let tps = metric(&trial, "calls_per_second");
    Ok(Figures { tps, cpu: (cpu_to - cpu_from) / (to - from) * 1e6 / tps, connecting })
}

/// Returns the seconds until the sessions are ready; closes them afterwards.
fn connect(bench: &mut Bench, workload: &Arc<dyn Workload>) -> Result<f64, Failure> {
    let setup = Setup {
        params: bench.params.clone(),
        settings: Vec::new(),
        reads_settings: false,
        warmup: Duration::ZERO,
        seed: 42,
        stop: bench.stop.clone(),
        opener: None,
        generator: Default::default(),
    };
    let begun = Instant::now();
    let ready = Arc::clone(workload).prepare(setup, &mut bench.admin)?;
    let took = begun.elapsed().as_secs_f64();
    drop(ready);
    wait_until_alone(bench)?;
    Ok(took)
}

/// Waits until server processes have ended, because they would be charged to the next run.
fn wait_until_alone(bench: &mut Bench) -> Outcome {
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let row = bench
            .admin
            .query_one(others, &[])
            .map_err(|e| Failure::new(FAILED, e).context("cannot count the sessions"))?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

struct Pgbench<'a> {
    program: &'a Path,
    script: &'a Path,
    connections: u32,
    args: &'a Args,
}

impl Pgbench<'_> {
    fn run(&self, bench: &mut Bench) -> Result<Figures, Failure> {
        // pgbench's time includes connecting, so many connections may leave no time for queries.
        let mut connecting = u64::from(self.connections / 250);
        loop {
            match self.run_for(bench, self.args.seconds + connecting)? {
                Some(figures) => return Ok(figures),
                None if connecting > 120 => {
                    return Err(Failure::message(
                        FAILED,
                        "pgbench has no time left for queries after connecting",
                    ));
                }
                None => connecting = 2 * connecting.max(1),
            }
        }
    }

    /// Returns `None` if no time was left for queries.
    fn run_for(&self, bench: &mut Bench, seconds: u64) -> Result<Option<Figures>, Failure> {
        wait_until_alone(bench)?;
        let before = childrens_cpu();
        let ran = Command::new(self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=1", "--file"])
            .arg(self.script)
            .arg(format!("--client={}", self.connections))
            .arg(format!("--time={seconds}"))
            .arg(bench.cluster.primary_conninfo())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| {
                Failure::new(REFUSED, e)
                    .context(format!("cannot run {}; give --pgbench", self.program.display()))
            })?;
        let cpu = childrens_cpu() - before;
        let (output, complained) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        if !ran.status.success() {
            return Err(Failure::message(FAILED, format!("pgbench failed: {complained}")));
        }
        let value = |label: &str| number_after(&output, label);
        match (
            value("tps = "),
            value("transactions actually processed: "),
            value("initial connection time = "),
        ) {
            (Some(tps), Some(queries), Some(ms)) => {
                Ok(Some(Figures { tps, cpu: cpu * 1e6 / queries, connecting: ms / 1e3 }))
            }
            (_, Some(0.0), _) => Ok(None),
            _ => Err(Failure::message(FAILED, format!("cannot parse pgbench's output: {output}"))),
        }
    }
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let after = &text[text.find(label)? + label.len()..];
    after.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns pgbench's path in Debian's packages, or its name for a search in PATH.
fn pgbench_path(directory: &Path) -> PathBuf {
    let path = directory.join("pgbench");
    if path.exists() { path } else { PathBuf::from("pgbench") }
}

/// Returns the CPU seconds of this process, all threads.
fn own_cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Returns the CPU seconds of child processes that were waited for, in steps of 10 ms.
fn childrens_cpu() -> f64 {
    // After the name, which may contain spaces: cutime and cstime are fields 16 and 17 of proc(5).
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(13) + ticks(14)) / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_from_pgbench_output() {
        let output = "number of transactions actually processed: 240313\n\
                    number of failed transactions: 0 (0.000%)\n\
                    initial connection time = 3.024 ms\ntps = 48087.2 (without initial connection time)\n";
        assert_eq!(number_after(output, "tps = "), Some(48087.2));
        assert_eq!(number_after(output, "transactions actually processed: "), Some(240_313.0));
        assert_eq!(number_after(output, "initial connection time = "), Some(3.024));
        assert_eq!(number_after(output, "latency average = "), None);
    }

    #[test]
    fn childrens_cpu_includes_the_time_of_a_child() {
        let before = childrens_cpu();
        assert!(before.is_finite());
        let loops = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(childrens_cpu() > before);
    }
}
