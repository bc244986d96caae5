//! The workload `device`: fio in a trial, in the place of sessions.
//!
//! The place is looked at anew and filled before every trial, since a condition may have mounted or
//! made another; the server beside it rests. The window opens when fio's first I/O and its warm-up
//! are past, which is seen by the kernel's count of the process's bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::json;

use super::place::{Consent, Place};
use super::{Bench, CLASS, DeviceError, Extent as Amount, Job, SMALLEST_REGION, Test};
use crate::config::resolve::{DeviceSettings, Extent};
use crate::host::Host;
use crate::host::stop::Stop;
use crate::results::model::{DatasetInfo, WorkloadInfo};
use crate::rng::derive;
use crate::workload::error::EngineError;
use crate::workload::outcome::{Progress, WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Setup};
use crate::workload::session::server_clock;
use crate::workload::{Totals, Workload};

const HINT: &str = "; if that is meant, write uuid = \"...\" beside destroy = true";

#[derive(Debug)]
pub struct Device {
    settings: DeviceSettings,
    /// As the file or the target has it.
    path: String,
    host: Arc<Host>,
}

/// fio at a place that is written once and waits for its window.
#[derive(Debug)]
struct PreparedFio {
    bench: Bench,
    job: Job,
    warmup: Duration,
    stop: Stop,
}

impl Device {
    /// `device` is the target's, by the kernel's name. Refuses, before anything is changed, what
    /// could not be measured or must not be written to.
    pub fn new(
        settings: DeviceSettings,
        device: Option<&str>,
        host: Arc<Host>,
    ) -> Result<Device, DeviceError> {
        let of_target = || device.map(|name| format!("/dev/{name}"));
        let path = settings.path.clone().or_else(of_target).ok_or_else(|| {
            DeviceError::Place(
                "the workload `device` has no place: write path = in [workload], or device = in its target"
                    .to_owned(),
            )
        })?;
        let device = Device { settings, path, host };
        device.place()?;
        Ok(device)
    }

    fn test(&self) -> Test {
        let DeviceSettings { test, block_size, depth, .. } = self.settings;
        Test { kind: test, block: block_size, depth }
    }

    /// The place as it is now, and how much of it is worked on.
    fn place(&self) -> Result<(Place, u64, bool), DeviceError> {
        let place = Place::find(&*self.host, &self.path)?;
        let uuids: Vec<&str> = self.settings.uuid.iter().map(String::as_str).collect();
        let consent = Consent { destroy: self.settings.destroy, uuids: &uuids, hint: HINT };
        let writes = place.may_write(&*self.host, self.host.name(), consent)?;
        if !writes && self.test().writes() {
            return Err(DeviceError::Place(format!(
                "the workload `device` would write over what {} holds: write destroy = true if that may be lost, path = a directory for a scratch file, or test = \"random_read\"",
                self.path
            )));
        }
        let region = place.region(self.settings.size)?;
        if region < SMALLEST_REGION.max(self.settings.block_size) {
            return Err(DeviceError::Place(format!(
                "size is too small for {}: 4M is the least, and one block",
                self.path
            )));
        }
        Ok((place, region, writes))
    }
}

impl Participants for PreparedFio {
    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        _extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let (clock, asked) = (server_clock(admin)?, Instant::now());
        let (warmup, mut first, mut opened) = (self.warmup, None, None);
        let ran = self.bench.run(&self.job, &self.stop, &mut |bytes| {
            let begun = *first.get_or_insert_with(Instant::now);
            if bytes == 0 {
                first = None;
            } else if begun.elapsed() >= warmup {
                let at = *opened.get_or_insert_with(|| {
                    let at = begun + warmup;
                    listener(admin, WindowEvent::Opened(at));
                    at
                });
                let elapsed = at.elapsed().as_secs_f64();
                listener(admin, WindowEvent::Progress(Progress { elapsed, ..Progress::default() }));
            }
        })?;
        let now = Instant::now();
        let seconds = Duration::from_secs_f64(ran.seconds);
        let opened = opened.unwrap_or_else(|| {
            let at = now.checked_sub(seconds).unwrap_or(now);
            listener(admin, WindowEvent::Opened(at));
            at
        });
        listener(admin, WindowEvent::Closed((opened + seconds).min(now)));
        let mut totals = Totals::default();
        totals.histograms.insert(CLASS.name().to_owned(), ran.latency);
        let started = clock + opened.saturating_duration_since(asked).as_secs_f64();
        Ok(WindowOutcome { totals, seconds: ran.seconds, ..WindowOutcome::new(started) })
    }
}

impl Workload for Device {
    fn info(&self) -> WorkloadInfo {
        let DeviceSettings { size, block_size, depth, test, .. } = self.settings;
        WorkloadInfo {
            kind: "device".to_owned(),
            primary_metric: self.test().metric().to_owned(),
            keys: BTreeMap::from([
                ("path".to_owned(), json!(self.path)),
                ("test".to_owned(), json!(test.name())),
                ("size".to_owned(), json!(size)),
                ("block_size".to_owned(), json!(block_size)),
                ("depth".to_owned(), json!(depth)),
            ]),
        }
    }

    fn extent(&self) -> Extent {
        Extent::Time(self.settings.run_time)
    }

    /// Opens the place and writes all of it once, where it may be written.
    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        _admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let Setup { warmup, seed, stop, .. } = setup;
        let (place, region, writes) = self.place()?;
        let mut bench = Bench::open(&self.host, &place, region)?;
        let seed = derive(seed, "device", 0) >> 11;
        if writes {
            let extent = Amount::Bytes(region);
            bench.run(&Job { test: Test::FILL, region, extent, seed }, &stop, &mut |_| {})?;
        }
        let extent = Amount::Time { warmup, window: self.settings.run_time };
        let job = Job { test: self.test(), region, extent, seed };
        Ok(Box::new(PreparedFio { bench, job, warmup, stop }))
    }

    fn before_trial(&self, _admin: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }

    fn dataset(&self, _admin: &mut Client) -> Result<Option<DatasetInfo>, postgres::Error> {
        Ok(None)
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let operations = totals.count(CLASS.name()) as f64;
        let bytes = operations * self.settings.block_size as f64;
        vec![
            ("device_bytes_per_second", Some(bytes / seconds)),
            ("device_operations_per_second", Some(operations / seconds)),
        ]
    }

    fn clean_up(&self, _admin: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }
}
