//! Two servers whose disks allow different read rates: 1000 and 950 reads per second by default. All
//! misses go to the disk, because direct I/O bypasses the page cache, and both servers miss equally
//! often, because their buffers are filled equally before the disks are limited. So the true ratio is
//! the limits' ratio. The actual reads of the devices are counted as well.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use benchmath::summary;

use super::disk::{Disk, enter_namespace};
use super::rounds::{Plan, RoundResult, load, private, run_rounds};
use pgio::cli::exit::{FAILED, Failure, Outcome, USAGE};
use pgio::pg::private::{PrivateCluster, VersionRequest};

const NAMES: [&str; 2] = ["full", "limited"];
/// PostgreSQL 16 is the first version with direct I/O.
const MAJOR: u32 = 18;
const SCALE: &str = "512M";
/// Direct I/O, little memory, and no background reads or writes.
const SETTINGS: &[(&str, &str)] = &[
    ("debug_io_direct", "data"),
    ("autovacuum", "off"),
    ("max_wal_size", "2GB"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
];

/// A server and its disk, in the order in which they must be dropped.
#[derive(Debug)]
struct Side {
    name: &'static str,
    cluster: PrivateCluster,
    disk: Disk,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plan: Plan,
    /// Reads per second of the two disks; their ratio is the truth
    #[arg(long, value_name = "FULL,LIMITED", value_delimiter = ',', default_values_t = [1000, 950])]
    limits: Vec<u32>,
    /// shared_buffers of each server; the data are 512M and bypass the page cache
    #[arg(long, value_name = "SIZE", default_value = "16MB")]
    shared_buffers: String,
}

pub(super) fn run(args: &Args) -> Outcome {
    let plan = &args.plan;
    let limits = match args.limits.as_slice() {
        [full, limited] if *full > 0 && *limited > 0 => [*full, *limited],
        _ => {
            let text = "--limits takes two numbers above 0, such as 1000,500";
            return Err(Failure::message(USAGE, text));
        }
    };
    enter_namespace()?;
    let sides = NAMES
        .into_iter()
        .zip(limits)
        .map(|(name, iops)| Side::make(name, iops, args))
        .collect::<Result<Vec<Side>, Failure>>()?;
    let text = text(plan, &sides);
    let truth = f64::from(limits[1]) / f64::from(limits[0]);
    run_rounds(plan, "ratio", |round| {
        let meters: Vec<Meter> = sides.iter().map(|s| Meter::start(&s.disk.stat_file())).collect();
        let analysis = round.analysis(&text)?;
        let reads: Vec<String> = meters.into_iter().map(|m| format!("{:.0}", m.stop())).collect();
        let mut judged = RoundResult::for_ratio(analysis.primary(NAMES[1]), truth);
        judged.remark = format!("devices: {} reads/s", reads.join(" and "));
        Ok(judged)
    })
}

fn text(plan: &Plan, sides: &[Side]) -> String {
    let mut text = plan.head("read-iops", false);
    for side in sides {
        let dsn = side.cluster.primary_conninfo();
        text += &format!("\n[targets.{}]\ndsn = \"{dsn}\"\n", side.name);
    }
    // Eight readers with one read in flight each keep the disk at its limit.
    text += &format!(
        "\n[workload]\nkind = \"slob\"\nscale = \"{SCALE}\"\nnum_schemas = 1\nnum_threads = 8\n\
         work_unit = 1\nupdate_pct = 0\naccess = \"index\"\n"
    );
    for side in sides {
        text += &format!("\n[[condition]]\nname = \"{0}\"\ntarget = \"{0}\"\n", side.name);
    }
    text
}

impl Side {
    fn make(name: &'static str, read_iops: u32, args: &Args) -> Result<Side, Failure> {
        let disk = Disk::make(name, read_iops)?;
        let pg = args.plan.pg.or(Some(VersionRequest::major(MAJOR)));
        let settings = [SETTINGS, &[("shared_buffers", args.shared_buffers.as_str())]].concat();
        let cluster = private(pg, Some(disk.path()), &settings)?;
        load(&cluster, SCALE)?;
        fill(&cluster)?;
        // Set the limits after loading.
        disk.limit(&cluster.data_dir())?;
        Ok(Side { name, cluster, disk })
    }
}

/// Reads the index and as many blocks of the table as fit into the buffers: a cache that fills during
/// the experiment would fill faster on the faster disk.
fn fill(cluster: &PrivateCluster) -> Outcome {
    let mut client = pgio_connect::Client::connect(&cluster.primary_conninfo()).map_err(failed)?;
    let sql = "CREATE EXTENSION pg_prewarm; SELECT pg_prewarm('pgio1'); \
               SELECT pg_prewarm(indexrelid) FROM pg_index WHERE indrelid = 'pgio1'::regclass";
    client.batch_execute(sql).map_err(failed)
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot fill the buffers by pg_prewarm")
}

/// Measures the reads per second of a device while it is busy, alongside the experiment.
#[derive(Debug)]
struct Meter {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Meter {
    const EVERY: Duration = Duration::from_millis(500);

    fn start(stat: &Path) -> Meter {
        let (stat, done) = (stat.to_owned(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&done);
        let thread = thread::spawn(move || {
            let mut rates = Vec::new();
            let mut last = (Instant::now(), reads(&stat));
            while !flag.load(Ordering::Relaxed) {
                thread::sleep(Self::EVERY);
                let now = (Instant::now(), reads(&stat));
                rates.push((now.1 - last.1) as f64 / (now.0 - last.0).as_secs_f64());
                last = now;
            }
            rates
        });
        Meter { done, thread }
    }

    /// The devices take turns, so each is mostly idle: use the 90th percentile of its rates.
    fn stop(self) -> f64 {
        self.done.store(true, Ordering::Relaxed);
        let rates = self.thread.join().unwrap_or_default();
        summary::quantile(&rates, 0.9).unwrap_or(f64::NAN)
    }
}

/// Returns the first number of the file.
fn reads(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
