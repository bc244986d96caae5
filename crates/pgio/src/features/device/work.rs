//! The workload `device`: fio takes the place of sessions in a trial.
//!
//! The place is examined and filled before every trial, because a condition may have mounted or created
//! another one; the server is idle. The window opens when fio has finished its first I/O and its
//! warm-up, as seen in the kernel's byte count of the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::place::{Consent, Place};
use super::{
    Bench, CLASS, DeviceError, DeviceSettings, Extent as Amount, Job, SMALLEST_REGION, Test, bench,
};
use crate::config::resolve::Extent;
use crate::host::Host;
use crate::host::stop::Stop;
use crate::host::storage::path_of;
use crate::rng::derive;
use crate::workload::clock::{Opener, Start, wait_until};
use crate::workload::error::EngineError;
use crate::workload::participants::{
    Generator, Participants, Progress, Setup, WindowEvent, WindowOutcome,
};
use crate::workload::shared::{Coordinator, Part, PartKind, SharedWork};
use crate::workload::{SessionSettings, Totals, Workload};
use pgio_results::model::WorkloadInfo;

const UUID_HINT: &str = "; if its data may be lost, write uuid = \"...\" beside destroy = true";

#[derive(Debug)]
pub(super) struct Device {
    settings: DeviceSettings,
    /// The place as given in the file or by the target.
    path: String,
    host: Arc<Host>,
}

/// fio with a place that has been written once; it waits for its window.
#[derive(Debug)]
struct PreparedFio {
    bench: Bench,
    job: Job,
    /// A part of the run that does not count.
    warmup: Duration,
    stop: Stop,
    /// Agrees with other drivers on the moment of the start.
    opener: Option<Arc<dyn Opener>>,
}

impl Device {
    /// `device` is the target's device by its kernel name or a path.
    pub(super) fn new(
        settings: DeviceSettings,
        device: Option<&str>,
        host: Arc<Host>,
    ) -> Result<Device, DeviceError> {
        let device_path = || device.map(path_of);
        let path = settings.path.clone().or_else(device_path).ok_or_else(|| {
            DeviceError::Place(
                "the workload `device` requires a place: write path = in [workload], or device = in its target"
                    .to_owned(),
            )
        })?;
        Ok(Device { settings, path, host })
    }

    /// Refuses, before anything is changed, a host without fio, and a place that cannot be measured or must not be
    /// written.
    pub(super) fn check_place(&self) -> Result<(), DeviceError> {
        bench::check_installed(&self.host)?;
        self.place().map(drop)
    }

    /// Opens the place and, if allowed, writes the whole region once.
    fn prepare_here(
        &self,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let part = u64::from(setup.first_session());
        let Setup { mut warmup, seed, stop, opener, .. } = setup;
        let (place, region, writes) = self.place()?;
        let mut bench = Bench::open(&self.host, &place, region)?;
        let seed = derive(seed, "device", part) >> 11;
        if writes {
            let extent = Amount::Bytes(region);
            bench.run(&Job { test: Test::FILL, region, extent, seed }, &stop, &mut |_| {
                opener.iter().for_each(|opener| opener.keep_alive());
            })?;
        }
        let job = |warmup, window, seed| {
            let extent = Amount::Time { warmup, window };
            Job { test: self.test(), region, extent, seed }
        };
        if let Some(opener) = opener.as_ref().filter(|_| !warmup.is_zero()) {
            // Drivers begin the window together, whenever each has warmed up.
            wait_until(opener.warm_up(admin, Duration::ZERO)?.at);
            let seed = derive(seed, "device-warm-up", 0) >> 11;
            bench.run(&job(Duration::ZERO, warmup, seed), &stop, &mut |_| {})?;
            warmup = Duration::ZERO;
        }
        let job = job(warmup, self.settings.run_time, seed);
        Ok(Box::new(PreparedFio { bench, job, warmup, stop, opener }))
    }

    fn test(&self) -> Test {
        let DeviceSettings { test, block_size, depth, .. } = self.settings;
        Test { kind: test, block: block_size, depth }
    }

    /// Returns the current place, the size of the region, and whether it may be written.
    fn place(&self) -> Result<(Place, u64, bool), DeviceError> {
        let place = Place::find(&*self.host, &self.path)?;
        let uuids: Vec<&str> = self.settings.uuid.iter().map(String::as_str).collect();
        let consent = Consent { destroy: self.settings.destroy, uuids: &uuids, hint: UUID_HINT };
        let writes = place.may_write(&*self.host, self.host.name(), consent)?;
        if !writes && self.test().writes() {
            return Err(DeviceError::Place(format!(
                "the workload `device` would overwrite {}: write destroy = true if its data may be lost, path = a directory for a scratch file, or test = \"random_read\"",
                self.path
            )));
        }
        let region = place.region(self.settings.size)?;
        if region < SMALLEST_REGION.max(self.settings.block_size) {
            return Err(DeviceError::Place(format!(
                "size is too small for {}: it must be at least 4M and one block",
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
        let start = Start::agree_on_window(self.opener.as_ref(), admin, Duration::ZERO)?;
        wait_until(start.at);
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
        let started = start.epoch + opened.saturating_duration_since(start.at).as_secs_f64();
        Ok(WindowOutcome { totals, seconds: ran.seconds, ..WindowOutcome::new(started) })
    }
}

/// What each process does, on its own host.
#[derive(Serialize, Deserialize)]
struct DevicePart {
    settings: DeviceSettings,
    path: String,
}

impl DevicePart {
    fn read(part: &Part) -> Result<Device, EngineError> {
        let DevicePart { settings, path } = part.read()?;
        Ok(Device { settings, path, host: Arc::new(Host::local()) })
    }
}

pub(super) const PART: PartKind = PartKind {
    name: "device",
    check: |part| Ok(DevicePart::read(part)?.check_place()?),
    prepare: |part, setup, admin| DevicePart::read(part)?.prepare_here(setup, admin),
};

impl SharedWork for Device {
    fn sessions(&self) -> Option<usize> {
        None
    }

    fn part(&self, _: usize, _: usize) -> Result<Part, EngineError> {
        PART.write(&DevicePart { settings: self.settings.clone(), path: self.path.clone() })
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

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        match setup.generator.clone() {
            Generator::Others(others) => others.prepare(&*self, setup, admin),
            Generator::Alone | Generator::Part(_) => self.prepare_here(setup, admin),
        }
    }

    fn check_others(&self, others: &dyn Coordinator, stop: &Stop) -> Result<(), EngineError> {
        others.check(self, stop)
    }

    fn session_settings(&self) -> SessionSettings {
        SessionSettings::Nowhere
    }

    fn divisible(&self) -> Option<u32> {
        None
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let operations = totals.count(CLASS.name()) as f64;
        let bytes = operations * self.settings.block_size as f64;
        vec![
            ("device_bytes_per_second", Some(bytes / seconds)),
            ("device_operations_per_second", Some(operations / seconds)),
        ]
    }
}
