//! Two servers that differ in the reads per second that their disks allow: 1000 and 950. All reads
//! go to the disk, so the true ratio is 0.95. What the devices really did is counted beside it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use benchmath::summary;

use super::disk::{Disk, enter_namespace};
use super::{Judged, Plan, each, private};
use crate::cli::exit::Failure;
use crate::cli::{Outcome, connection, setup, state};
use crate::config::ConnectString;
use crate::dataset::LoadSpec;
use crate::experiment::live;
use crate::host::stop::Stop;
use crate::pg::private::{PrivateCluster, VersionRequest};
use crate::units::{Layout, Scale};

const LIMITS: [(&str, u32); 2] = [("full", 1000), ("limited", 950)];
/// The first version that can go past the page cache is 16.
const MAJOR: u32 = 18;
const SCALE: &str = "512M";
/// Direct I/O, little memory, and nothing that would read or write by itself.
const SETTINGS: &[(&str, &str)] = &[
    ("debug_io_direct", "data"),
    ("shared_buffers", "16MB"),
    ("autovacuum", "off"),
    ("max_wal_size", "2GB"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
];

/// One side: a server and its disk, in the order in which they must go.
#[derive(Debug)]
struct Side {
    name: &'static str,
    cluster: PrivateCluster,
    disk: Disk,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    enter_namespace()?;
    let sides = LIMITS
        .map(|(name, iops)| Side::make(name, iops, plan))
        .into_iter()
        .collect::<Result<Vec<Side>, Failure>>()?;
    let text = text(plan, &sides);
    let truth = f64::from(LIMITS[1].1) / f64::from(LIMITS[0].1);
    each(plan, "ratio", |round| {
        let meters: Vec<Meter> = sides.iter().map(|s| Meter::start(&s.disk.stat_file())).collect();
        let analysis = round.analysis(&text)?;
        let reads: Vec<String> = meters.into_iter().map(|m| format!("{:.0}", m.stop())).collect();
        let mut judged = Judged::of_ratio(analysis.primary(LIMITS[1].0), truth);
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
    // Eight readers, each with one read in flight, keep the disk at its limit.
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
    fn make(name: &'static str, read_iops: u32, plan: &Plan) -> Result<Side, Failure> {
        let disk = Disk::make(name, read_iops)?;
        let pg = plan.pg.or(Some(VersionRequest::major(MAJOR)));
        let cluster = private(pg, Some(disk.path()), SETTINGS)?;
        load(&cluster)?;
        // Not before: loading may take what it needs.
        disk.limit(&cluster.data_dir())?;
        Ok(Side { name, cluster, disk })
    }
}

fn load(cluster: &PrivateCluster) -> Outcome {
    let run_id = state::new_run_id();
    let params = connection::params(&ConnectString::new(cluster.primary_conninfo()), &run_id)?;
    let (mut admin, _) = live::open_admin(&params, &run_id)?;
    let scale: Scale = SCALE.parse().expect("a valid size");
    let spec = LoadSpec {
        tables: 1,
        streams: 1,
        blocks: scale.blocks(),
        scale: SCALE.to_owned(),
        seed: 42,
        base_table: false,
        tablespace: None,
        layout: Layout::default(),
        scan: None,
    };
    setup::load(&mut admin, &params, &spec, &Stop::new(), false)?;
    Ok(())
}

/// Reads/s of a device while it is busy, taken beside the experiment.
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

    /// The devices take turns, so most of the time each rests: of its rates, the 90th percentile.
    fn stop(self) -> f64 {
        self.done.store(true, Ordering::Relaxed);
        let rates = self.thread.join().unwrap_or_default();
        summary::quantile(&rates, 0.9).unwrap_or(f64::NAN)
    }
}

/// The first number of the file.
fn reads(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
