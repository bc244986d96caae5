//! Divides the work of a trial among the drivers and sends each its part.

use super::failures::abandon;
use super::part::PartState;
use super::roster::Roster;
use crate::pg::leftovers::application_name_of_driver;
use crate::workload::drivers::messages::{Assignment, ToDriver, Work};
use crate::workload::error::EngineError;
use crate::workload::participants::Setup;

impl Roster {
    /// Sends each driver its part; returns the trial's number and the parts.
    pub(super) fn assign(
        &mut self,
        work: &Work,
        setup: &Setup,
    ) -> Result<(u64, Vec<PartState>), EngineError> {
        self.number += 1;
        let number = self.number;
        let count = self.connected.count();
        let all = work.sessions().unwrap_or(count as usize);
        let mut parts = Vec::new();
        let mut first = 0;
        for (position, rank) in self.connected.ranks().into_iter().enumerate() {
            let sessions = session_count(all, position as u32, count);
            let assignment = Assignment {
                dsn: setup.params.without_secrets(),
                application_name: application_name_of_driver(&self.run_id, rank),
                work: work.part(first, sessions),
                first: first as u32,
                of: all as u32,
                settings: setup.settings.clone(),
                reads_settings: setup.reads_settings,
                warmup_seconds: setup.warmup.as_secs_f64(),
                seed: setup.seed,
            };
            if let Some(driver) = self.connected.driver(rank) {
                parts.push(PartState::new(driver, rank, first as u32, sessions as u32));
            }
            let prepare = ToDriver::Prepare { number, assignment: Box::new(assignment) };
            if let Err(error) = self.connected.send(rank, &prepare) {
                // Those before it are connecting their sessions.
                abandon(&mut self.connected, &self.arrivals, number, position);
                return Err(error.into());
            }
            first += sessions;
        }
        Ok((number, parts))
    }
}

/// Sessions of one driver; the first ones take the remainder.
fn session_count(sessions: usize, rank: u32, drivers: u32) -> usize {
    let (rank, drivers) = (rank as usize, drivers as usize);
    sessions / drivers + usize::from(rank < sessions % drivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_out_completely() {
        let shares: Vec<usize> = (0..3).map(|rank| session_count(8, rank, 3)).collect();
        assert_eq!(shares, [3, 3, 2]);
        assert_eq!((0..4).map(|rank| session_count(4, rank, 4)).sum::<usize>(), 4);
    }
}
