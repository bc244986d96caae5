//! Builds the arguments of fio and parses its output; both are pure.
//!
//! I/O is always direct, so that it bypasses the operating system's cache; one thread means one process
//! to stop. Latency is from submission to completion (`lat_ns`), in a histogram of pgio's buckets.
//! Source: fio's HOWTO, sections "JSON+ output" and "I/O depth".

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{CLASS, DeviceTest, Test};
use crate::host::json;
use pgio_results::histogram::{BUCKETS, Histogram, bucket_of};
use pgio_results::latency;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    pub test: Test,
    /// The size of the region at the start of the place; fio touches nothing beyond it.
    pub region: u64,
    pub extent: Extent,
    /// The seed of the random offsets.
    pub seed: u64,
}

/// The amount of work of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Bytes(u64),
    Time {
        /// Time that is not measured.
        warmup: Duration,
        window: Duration,
    },
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FioResult {
    pub operations: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
    pub latency: Histogram,
}

impl FioResult {
    /// Metrics by the names of the metrics table.
    pub(super) fn metrics(&self) -> Vec<(String, f64)> {
        let latencies = latency::class_metrics(CLASS, &self.latency);
        [
            ("device_bytes_per_second".to_owned(), self.bytes_per_second),
            ("device_operations_per_second".to_owned(), self.operations_per_second),
        ]
        .into_iter()
        .chain(latencies.into_iter().map(|(name, reading)| (name.to_owned(), reading.seconds())))
        .collect()
    }
}

impl Job {
    pub(super) fn arguments(&self, file: &str) -> Vec<String> {
        let Test { block, depth, kind } = self.test;
        let direction = match kind {
            DeviceTest::Throughput | DeviceTest::Latency => "write",
            DeviceTest::RandomRead => "randread",
            DeviceTest::RandomWrite => "randwrite",
        };
        // Depth 1 is synchronous I/O; a larger depth needs an asynchronous engine.
        let engine = if depth == 1 { "psync" } else { "libaio" };
        let seconds = |d: Duration| format!("{}ms", d.as_millis());
        let mut arguments = vec![
            "--name=pgio".to_owned(),
            // fio treats a colon as the end of a file name.
            format!("--filename={}", file.replace('\\', "\\\\").replace(':', "\\:")),
            format!("--rw={direction}"),
            format!("--bs={block}"),
            format!("--iodepth={depth}"),
            format!("--ioengine={engine}"),
            format!("--size={}", self.region / block * block),
            format!("--randseed={}", self.seed),
        ];
        match self.extent {
            Extent::Bytes(bytes) => arguments.push(format!("--io_size={bytes}")),
            Extent::Time { warmup, window } => arguments.extend([
                "--time_based".to_owned(),
                format!("--ramp_time={}", seconds(warmup)),
                format!("--runtime={}", seconds(window)),
            ]),
        }
        arguments.extend(CONSTANT.iter().map(|a| (*a).to_owned()));
        arguments
    }
}

const CONSTANT: &[&str] = &[
    "--direct=1",
    "--thread",
    // A missing name is a mistake; do not create a file in /dev.
    "--allow_file_create=0",
    // As a second safeguard, fio refuses to write to a mounted device.
    "--allow_mounted_write=0",
    "--clat_percentiles=0",
    "--lat_percentiles=1",
    "--eta=never",
    "--output-format=json+",
];

#[derive(Deserialize)]
struct Answer {
    jobs: Vec<JobAnswer>,
}

#[derive(Deserialize)]
struct JobAnswer {
    #[serde(default)]
    error: i64,
    read: Side,
    write: Side,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    total_ios: u64,
    /// In milliseconds.
    runtime: u64,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    /// Nothing where there was nothing to divide by, as in the direction that did not run.
    max: Option<f64>,
    mean: Option<f64>,
    /// Counts by latency in nanoseconds.
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// Parses fio's stdout; messages may precede the object.
pub(super) fn parse(text: &str, writes: bool) -> Result<FioResult, String> {
    let begins = |(at, _): &(usize, &str)| *at == 0 || text[..*at].ends_with('\n');
    let (start, _) = text.match_indices('{').find(begins).ok_or("the output contains no JSON")?;
    let answer = json::parse(text[start..].trim_end()).map_err(|e| e.to_string())?;
    let answer: Answer = serde_json::from_value(answer).map_err(|e| e.to_string())?;
    let job = answer.jobs.into_iter().next().ok_or("the output contains no job")?;
    if job.error != 0 {
        return Err(format!("the job ended with error {}", job.error));
    }
    let side = if writes { job.write } else { job.read };
    if side.total_ios == 0 {
        return Err("no operation completed within the time".to_owned());
    }
    let latency = side.lat_ns.histogram()?;
    let seconds = (side.runtime as f64 / 1e3).max(1e-3);
    Ok(FioResult {
        operations: side.total_ios,
        bytes: side.io_bytes,
        seconds,
        bytes_per_second: side.io_bytes as f64 / seconds,
        operations_per_second: side.total_ios as f64 / seconds,
        latency,
    })
}

impl Latency {
    fn histogram(&self) -> Result<Histogram, String> {
        let mut counts = vec![0; BUCKETS];
        for (ns, count) in &self.bins {
            let ns: f64 = ns.parse().map_err(|_| format!("`{ns}` is not a latency"))?;
            let counted: &mut u64 = &mut counts[bucket_of(ns).clamp(1, BUCKETS) - 1];
            *counted = counted.saturating_add(*count);
        }
        let all = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        if all == 0 {
            return Err("the output contains no latencies; fio 3 or later is required".to_owned());
        }
        let (mean, max) =
            self.mean.zip(self.max).ok_or("the output has latencies without a mean")?;
        Ok(Histogram::from_parts(&counts, mean * all as f64, max)
            .expect("BUCKETS counts are never too many"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::REGION;
    use super::*;

    const WRITTEN: &str = include_str!("testdata/fio-3.33-write.json");

    #[test]
    fn output_of_fio_is_parsed() {
        let ran = parse(WRITTEN, true).unwrap();
        assert_eq!((ran.operations, ran.bytes), (1000, 4_096_000));
        assert_eq!(ran.latency.count(), 1000);
        let mean = ran.latency.answered_mean_ns().unwrap() / 1e9;
        assert!(
            (mean * 1000.0 / ran.seconds - 1.0).abs() < 0.2,
            "{mean} × 1000 in {}",
            ran.seconds
        );
        assert!((ran.operations_per_second - 1000.0 / ran.seconds).abs() < 1e-6);
        assert!(parse(WRITTEN, false).unwrap_err().contains("no operation"));
        let noted =
            format!("note: both iodepth >= 1 and synchronous I/O engine are selected\n{WRITTEN}");
        assert_eq!(parse(&noted, true).unwrap(), ran);
        let unused = WRITTEN.replace("\"mean\" : 0.000000", "\"mean\" : -nan");
        assert_eq!(parse(&unused, true).unwrap(), ran);
    }

    #[test]
    fn fuzzed_output_is_parsed_or_refused() {
        let side = r#"{"total_ios": 3, "io_bytes": 12, "runtime": 5,
"lat_ns": {"mean": 7.5, "max": 9, "bins": {"7": 2, "9000": 1}}}"#;
        let short = &format!(
            "note\n{{\"jobs\": [{{\"error\": 0, \"read\": {side},\n\"write\": {side}}}]}}"
        );
        assert_eq!(parse(short, true).unwrap().operations, 3);
        pgio_fuzz::fuzz(&[short.as_str(), WRITTEN], |bytes| {
            if let Err(why) = parse(&String::from_utf8_lossy(bytes), true) {
                assert!(!why.is_empty());
            }
        });
    }

    #[test]
    fn invalid_output_is_refused() {
        assert!(parse("fio: nothing\n", true).unwrap_err().contains("no JSON"));
        assert!(parse("{}", true).unwrap_err().contains("jobs"));
        let failed = WRITTEN.replacen("\"error\" : 0", "\"error\" : 5", 1);
        assert_eq!(parse(&failed, true).unwrap_err(), "the job ended with error 5");
    }

    #[test]
    fn a_name_with_a_colon_stays_one_name() {
        let test = Test { kind: DeviceTest::RandomRead, block: 8192, depth: 32 };
        let window = Duration::from_secs(3);
        let extent = Extent::Time { warmup: Duration::from_millis(500), window };
        let job = Job { test, region: REGION + 1, extent, seed: 7 };
        let arguments = job.arguments("/dev/disk/by-path/pci-0000:00").join(" ");
        for expected in [
            r"--filename=/dev/disk/by-path/pci-0000\:00 ",
            "--rw=randread --bs=8192 --iodepth=32 --ioengine=libaio --size=536870912 ",
            "--time_based --ramp_time=500ms --runtime=3000ms",
        ] {
            assert!(arguments.contains(expected), "{arguments}");
        }
    }
}
