//! Runs slices before block 1: to find their length, or to refuse a length shorter than a call.
//!
//! Its trials are not stored: nothing is compared but slices with slices.

use std::time::Duration;

use super::Live;
use crate::config::experiment::Weave;
use crate::experiment::calibration::{self, CalibrationInput, CalibrationPart};
use crate::experiment::event::Event;
use crate::experiment::live::LiveError;
use crate::pg::replication;
use crate::rng::derive;
use crate::workload::{SessionPool, Setup, WeavePlan};
use pgio_results::store::Calibration;
use pgio_verdict as analysis;

impl Live<'_> {
    /// Calibrates the length of slices, or refuses a named one that is too short. An experiment that continues
    /// keeps its length.
    pub fn settle_slice_length(&mut self, continues: bool) -> Result<(), LiveError> {
        match self.results.rules.weave {
            Weave::Off => {}
            Weave::Slices(slice) if !continues => self.refuse_short_slices(slice)?,
            Weave::Slices(_) => {}
            Weave::Auto if continues => {
                let stored = self.results.stored.manifest.weave.as_ref();
                let seconds = stored.and_then(|calibration| calibration.slice_seconds);
                let slice = seconds.map(Duration::try_from_secs_f64).transpose();
                self.checked.weave = slice.map_err(|_| LiveError::StoredSlice)?;
            }
            Weave::Auto => {
                let calibration = self.calibrate()?;
                (self.results.observe)(Event::Calibrated(&calibration));
                self.checked.weave = calibration.slice_seconds.map(Duration::from_secs_f64);
                self.results.stored.manifest.rules.weave_seconds = calibration.slice_seconds;
                self.results.stored.manifest.weave = Some(calibration);
            }
        }
        Ok(())
    }

    fn calibrate(&mut self) -> Result<Calibration, LiveError> {
        let limit = analysis::weave_limit(&self.results.stored.manifest.rules);
        let obstacle = |why| Calibration { obstacle: Some(why), limit, ..Calibration::default() };
        if let Some(why) = self.checked.weave_obstacle.take() {
            return Ok(obstacle(why));
        }
        let cells = self.cells_of_window();
        let [first, _, ..] = cells.as_slice() else {
            return Ok(obstacle("there is one condition".to_owned()));
        };
        let duration = self.counted_time(*first);
        let conditions: Vec<String> =
            cells.iter().map(|cell| self.results.cells[*cell].cell.condition.clone()).collect();
        let baseline = &self.results.stored.manifest.baseline;
        let baseline = conditions.iter().position(|name| name == baseline).unwrap_or(0);
        let blocks = self.results.stored.manifest.blocks;
        let shortest = self.shortest_slice(*first)?;
        let names = conditions.iter().map(String::as_str);
        let settings = analysis::weave_settings(&self.results.stored.manifest, names);
        let (conditions, settings) = (conditions.as_slice(), settings.as_slice());
        let input =
            CalibrationInput { conditions, settings, baseline, duration, blocks, limit, shortest };
        calibration::calibrate(input, &mut |slice, counted, number| {
            self.run_part(&cells, slice, counted, number)
        })
    }

    /// Returns the shortest length of slices that is tried on a cell's server.
    fn shortest_slice(&mut self, cell: usize) -> Result<Duration, LiveError> {
        let name = self.results.cells[cell].target.clone();
        self.reconnect(&name)?;
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        let replication = replication::current(&mut target.admin)?;
        Ok(if replication.is_required() { calibration::FIRST_WITH_STANDBY } else { Duration::ZERO })
    }

    /// Refuses slices that are shorter than a call takes.
    fn refuse_short_slices(&mut self, slice: Duration) -> Result<(), LiveError> {
        let cells = self.cells_of_window();
        if cells.len() < 2 {
            return Ok(());
        }
        let duration = self.counted_time(cells[0]);
        let refused =
            calibration::try_named_length(slice, duration, &mut |slice, counted, number| {
                self.run_part(&cells, slice, counted, number)
            })?;
        let Some(last) = refused else { return Ok(()) };
        let (condition, call) = last.slowest().unwrap_or_default();
        let took = match call {
            Some(call) => format!("takes {:.0} ms", call.as_secs_f64() * 1e3),
            None => "did not end".to_owned(),
        };
        let title = &self.results.cells[cells[condition]].title;
        let slice = slice.as_millis();
        Err(LiveError::ShortSlices(format!(
            "a slice of {slice} ms is shorter than a call, which {took} under `{title}`"
        )))
    }

    /// Returns the cells that share a window, at the middle point of a sweep.
    fn cells_of_window(&self) -> Vec<usize> {
        let middle = self.results.stored.manifest.middle();
        let cells = self.results.cells.iter().enumerate();
        cells.filter(|(_, cell)| cell.cell.point == *middle).map(|(at, _)| at).collect()
    }

    /// Returns the counted time of a cell's window.
    fn counted_time(&self, cell: usize) -> Duration {
        let cell = &self.results.cells[cell];
        self.targets[&cell.target].workloads[cell.work].extent().time().unwrap_or_default()
    }

    fn run_part(
        &mut self,
        cells: &[usize],
        slice: Duration,
        counted: Duration,
        number: u64,
    ) -> Result<CalibrationPart, LiveError> {
        (self.results.observe)(Event::Calibrates { slice });
        let first = &self.results.cells[cells[0]];
        let (name, work) = (first.target.clone(), first.work);
        self.reconnect(&name)?;
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        let prepared = cells.iter().map(|cell| self.checked.prepared[*cell].iter());
        let conditions =
            prepared.map(|own| own.flat_map(|p| p.session_settings()).collect()).collect();
        let seed = derive(self.seed, "calibration", number);
        let plan = WeavePlan { conditions, duration: counted, slice, seed };
        let workload = &target.workloads[work];
        workload.before_trial(&mut target.admin)?;
        let setup = Setup {
            generator: Default::default(),
            params: target.params.clone(),
            settings: Vec::new(),
            reads_settings: false,
            warmup: if number == 1 { self.warmup } else { Duration::ZERO },
            seed,
            stop: self.stop.clone(),
            opener: None,
        };
        let pool = SessionPool::for_weaving(workload, setup, &mut target.admin)?;
        let outcome = pool.weave(&mut target.admin, &plan, &mut |_, _| {})?;
        if let Some(failure) = outcome.failure {
            return Err((*failure.error).into());
        }
        let calls = outcome.conditions.iter().map(|condition| condition.call_time()).collect();
        let slices = outcome.conditions.into_iter().map(|condition| condition.slices).collect();
        Ok(CalibrationPart { slices, calls })
    }
}
