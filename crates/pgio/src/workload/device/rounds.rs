//! Measures one or two places by all tests, round by round. Each round runs every test on each place, in an order
//! drawn for each test, so that drift affects all places alike.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Bench, DeviceError, Extent, FioResult, Job, Place, Test};
use crate::host::stop::Stop;
use crate::rng::{SplitMix64, derive};
use pgio_results::device::{DevicePlace, DeviceRecord, DeviceRun, DeviceTest};

/// The rounds of one measurement. All places have a bench.
#[derive(Debug)]
pub struct Rounds {
    pub places: Vec<Place>,
    pub benches: Vec<Bench>,
    pub tests: Vec<(Test, Extent)>,
    /// Whether the region of each place is written once before measuring: reads of blocks that were never written do
    /// not reach the medium.
    pub fill: Vec<bool>,
    pub region: u64,
    pub rounds: u32,
    pub seed: u64,
}

/// What is being done.
#[derive(Debug)]
pub struct Step<'a> {
    pub place: &'a str,
    /// The test, and the number of its round; `None` while the region is written once.
    pub test: Option<(u32, String)>,
    /// Time that is left, if runs so far tell.
    pub left: Option<Duration>,
}

impl Rounds {
    /// Runs all rounds. `progress` receives what is being done.
    pub fn record(
        mut self,
        stop: &Stop,
        progress: &mut dyn FnMut(&Step<'_>),
    ) -> Result<DeviceRecord, DeviceError> {
        let mut record = DeviceRecord {
            fio: self.benches.first().map(|b| b.version.clone()).unwrap_or_default(),
            started_at: Timestamp::now().to_string(),
            seed: self.seed,
            rounds: self.rounds,
            region_bytes: self.region,
            places: self.places.iter().map(stored_place).collect(),
            tests: self.tests.iter().map(|(test, _)| stored_test(test)).collect(),
            runs: Vec::new(),
        };
        for place in 0..self.places.len() {
            if self.fill[place] {
                progress(&Step { place: &self.places[place].name, test: None, left: None });
                let extent = Extent::Bytes(self.region);
                self.job(place, Test::FILL, extent, 0, stop)?;
            }
        }
        let mut order = SplitMix64::new(derive(self.seed, "order", 0));
        let began = Instant::now();
        let runs = self.rounds as usize * self.tests.len() * self.places.len();
        for round in 1..=self.rounds {
            for (test, extent) in self.tests.clone() {
                let mut places: Vec<usize> = (0..self.places.len()).collect();
                order.shuffle(&mut places);
                for place in places {
                    let done = record.runs.len();
                    let left = (runs - done) as f64 / done as f64;
                    let left = (done > 0).then(|| began.elapsed().mul_f64(left));
                    let (name, test_of_round) = (&self.places[place].name, (round, test.name()));
                    progress(&Step { place: name, test: Some(test_of_round), left });
                    let ran = self.job(place, test, extent, round, stop)?;
                    record.runs.push(stored_run(round, place, &test, &ran));
                }
            }
        }
        Ok(record)
    }

    /// Both targets use the same offsets; each round uses others.
    fn job(
        &mut self,
        place: usize,
        test: Test,
        extent: Extent,
        round: u32,
        stop: &Stop,
    ) -> Result<FioResult, DeviceError> {
        let seed = derive(self.seed, &test.name(), u64::from(round)) >> 11;
        let job = Job { test, region: self.region, extent, seed };
        self.benches[place].run(&job, stop, &mut |_| {})
    }
}

fn stored_place(place: &Place) -> DevicePlace {
    DevicePlace {
        name: place.name.clone(),
        kind: place.kind.name().to_owned(),
        path: place.path.display().to_string(),
        sector_bytes: place.sector,
    }
}

fn stored_test(test: &Test) -> DeviceTest {
    DeviceTest {
        name: test.name(),
        kind: test.kind.name().to_owned(),
        block_bytes: test.block,
        depth: test.depth,
        metric: test.metric().to_owned(),
    }
}

fn stored_run(round: u32, place: usize, test: &Test, ran: &FioResult) -> DeviceRun {
    DeviceRun {
        round,
        test: test.name(),
        place,
        seconds: ran.seconds,
        operations: ran.operations,
        bytes: ran.bytes,
        metrics: ran.metrics().into_iter().collect(),
    }
}
