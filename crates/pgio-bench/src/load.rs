//! Compares loading the data set with the original's setup.sh, in turn on one server, and counts the
//! pages that the first full read after loading dirties.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio::cli::exit::{FAILED, FILES, Failure, Outcome};
use pgio::cli::output;
use pgio::config::Layer;
use pgio::dataset;
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::pg::private::VersionRequest;
use pgio::workload::Workload;
use pgio_connect::{Endpoint, SimpleQueryMessage};
use pgio_results::units::{Scale, human};

use super::server::{Bench, metric, spread};
use super::upstream::{self, UpstreamArgs, missing};

const TABLES: u32 = 4;
/// Ends setup.sh; not part of loading.
const UPSTREAM_SLEEP: Duration = Duration::from_secs(5);

pub(super) fn run(args: &UpstreamArgs) -> Outcome {
    let scripts = upstream::scripts(&args.upstream)?;
    let scale = match &args.scale {
        Some(scale) => scale.clone(),
        None => "1G".parse::<Scale>().expect("a valid size"),
    };
    let mut bench = Bench::start(Some(args.pg), &[("max_wal_size", "8GB")])?;
    let dir = copy_of(&scripts)?;
    output::line(&format!("{TABLES} tables of {scale}, {TABLES} at a time\n"));
    // The original needs its base table; pgio does not.
    let (mut with_base, mut without) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        bench.settle()?;
        let theirs = original(&bench, dir.path(), &scale)?;
        drop_originals(&mut bench)?;
        let theirs = theirs.as_secs_f64();
        output::line(&format!("round {round}: original {theirs:.1} s"));
        for (base_table, ratios) in [(true, &mut with_base), (false, &mut without)] {
            bench.settle()?;
            let begun = Instant::now();
            bench.load(&scale, TABLES, base_table)?;
            let ours = begun.elapsed().as_secs_f64();
            let dirtied = first_read_dirties(&mut bench)?;
            dataset::destroy(&mut bench.admin)?;
            ratios.push(theirs / ours);
            output::line(&format!(
                "  ours {} pgio_base {ours:.1} s, ratio {:.2}; the first full read dirties {dirtied} pages",
                if base_table { "with" } else { "without" },
                theirs / ours,
            ));
        }
    }
    output::line(&format!("\nours faster, with pgio_base: {}", spread(&with_base, 2)));
    output::line(&format!("ours faster, without:        {}", spread(&without, 2)));
    Ok(())
}

/// Copies setup.sh, because it leaves files in its directory.
fn copy_of(scripts: &Path) -> Result<tempfile::TempDir, Failure> {
    let failed = |e: std::io::Error| Failure::new(FILES, e).context("cannot copy the original");
    let dir = tempfile::tempdir().map_err(failed)?;
    for name in ["setup.sh", "sql/pgio_table_sizes.sql"] {
        let bare = Path::new(name).file_name().map(|n| scripts.join(n)).unwrap_or_default();
        let from = [scripts.join(name), bare]
            .into_iter()
            .find(|p| p.is_file())
            .ok_or_else(|| missing(&format!("{name} does not exist")))?;
        let to = dir.path().join(name);
        fs::create_dir_all(to.parent().unwrap_or(dir.path())).map_err(failed)?;
        fs::copy(from, to).map_err(failed)?;
    }
    Ok(dir)
}

fn original(bench: &Bench, dir: &Path, scale: &Scale) -> Result<Duration, Failure> {
    let conf = format!(
        "NUM_SCHEMAS={TABLES}\nNUM_THREADS={TABLES}\nSCALE={scale}\nCONNECT_STRING=\"{0}\"\nDBNAME={0}\nCREATE_BASE_TABLE=TRUE\n",
        bench.params.dbname
    );
    fs::write(dir.join("pgio.conf"), conf)
        .map_err(|e| Failure::new(FILES, e).context("cannot write the original's pgio.conf"))?;
    let Some(Endpoint::Socket { dir: socket, port }) = bench.params.hosts.first() else {
        return Err(Failure::message(FAILED, "a private cluster has a socket"));
    };
    let command = CommandLine::new("bash")
        .arg("./setup.sh")
        .directory(dir)
        .env("PGHOST", socket)
        .env("PGPORT", port.to_string())
        .env("PGUSER", &bench.params.user);
    let begun = Instant::now();
    Local
        .run(&command)
        .map_err(|e| Failure::new(FAILED, e).context("the original's setup.sh failed"))?;
    Ok(begun.elapsed().saturating_sub(UPSTREAM_SLEEP))
}

/// Drops the tables that the original created, in pgio's own private cluster.
fn drop_originals(bench: &mut Bench) -> Outcome {
    let tables: Vec<String> = (1..=TABLES).map(|n| format!("public.pgio{n}")).collect();
    bench
        .admin
        .batch_execute(&format!("DROP TABLE public.pgio_base, {}", tables.join(", ")))
        .map_err(|e| Failure::new(FAILED, e).context("cannot drop the original's tables"))
}

fn first_read_dirties(bench: &mut Bench) -> Result<i64, Failure> {
    let plan = bench
        .admin
        .simple_query(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT count(scratch) FROM public.pgio1",
        )
        .map_err(|e| Failure::new(FAILED, e).context("cannot read the loaded table"))?;
    let text = plan.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(text.unwrap_or_default())
        .map_err(|e| Failure::new(FAILED, e).context("cannot read the plan"))?;
    Ok(plan[0]["Plan"]["Shared Dirtied Blocks"].as_i64().unwrap_or(-1))
}

pub(super) fn run_updates(window: Duration, pg: Option<VersionRequest>) -> Outcome {
    let scale: Scale = "200M".parse().expect("a valid size");
    let mut bench = Bench::start(pg, &[])?;
    bench.load(&scale, 1, false)?;
    let layer = Layer {
        update_pct: Some(50),
        work_unit: Some(8),
        update_work_unit: Some(8),
        num_schemas: Some(1),
        num_threads: Some(4),
        run_time: Some(window),
        ..Layer::default()
    };
    let workload: Arc<dyn Workload> = Arc::new(bench.loaded(layer)?);
    let trial = bench.trial(&workload, Duration::ZERO)?;
    let size = trial.dataset.as_ref().map_or((0, 0), |d| (d.bytes_before, d.bytes_after));
    output::line(&format!(
        "{} sessions ended of 4, {:.0} rows/s updated, {:.0} deadlocks, size {} before and {} after ({:+.2} %)",
        trial.sessions.len(),
        metric(&trial, "updates_per_second"),
        metric(&trial, "deadlocks"),
        human::bytes(size.0),
        human::bytes(size.1),
        100.0 * (size.1 as f64 / size.0.max(1) as f64 - 1.0),
    ));
    Ok(())
}
