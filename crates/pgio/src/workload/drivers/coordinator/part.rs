//! What the coordinator knows of a driver's part of a trial, and the form in which the trial stores it.

use super::connected::Driver;
use crate::workload::command::ProgramOutput;
use crate::workload::drivers::messages::PartResult;
use pgio_link::Offset;
use pgio_mail::session::Sent;
use pgio_results::drivers::DriverPart;
use pgio_results::operation::Class;

/// A driver's part of a window, as far as it is known.
#[derive(Debug)]
pub(super) struct PartState {
    pub rank: u32,
    pub host: String,
    pub first: u32,
    pub sessions: u32,
    pub addresses: Vec<String>,
    pub offset: Option<Offset>,
    /// Nanoseconds after the common start on the coordinator's clock.
    pub opened: Option<i64>,
    pub result: Option<PartResult>,
    pub sent: Vec<Sent>,
}

impl PartState {
    pub(super) fn new(driver: &Driver, rank: u32, first: u32, sessions: u32) -> PartState {
        PartState {
            rank,
            host: driver.hello.host.clone(),
            first,
            sessions,
            addresses: Vec::new(),
            offset: None,
            opened: None,
            result: None,
            sent: Vec::new(),
        }
    }

    /// Takes what the driver's program wrote, with the name to show for it.
    pub(super) fn take_output(&mut self) -> Option<(String, ProgramOutput)> {
        let output = self.result.as_mut()?.output.take()?;
        Some((format!("driver {} on {}", self.rank, self.host), output))
    }

    /// Returns the part as the trial stores it; none without a result.
    pub(super) fn to_stored(&self) -> Option<DriverPart> {
        let result = self.result.as_ref()?;
        let trip = |of: fn(&Offset) -> std::time::Duration| {
            self.offset.as_ref().map_or(0.0, |offset| of(offset).as_secs_f64())
        };
        let other_calls = [Class::Delivery, Class::Device].map(|c| result.totals.count(c.name()));
        let mut histograms = result.totals.histograms.clone();
        histograms.retain(|_, h| h.total_count() > 0);
        Some(DriverPart {
            rank: self.rank,
            host: self.host.clone(),
            addresses: self.addresses.clone(),
            first_session: self.first,
            sessions: self.sessions,
            calls: result.totals.calls.max(other_calls.into_iter().max().unwrap_or(0)),
            seconds: result.seconds,
            opened_late_seconds: self.opened.unwrap_or(0) as f64 / 1e9,
            round_trip_seconds: trip(|offset| offset.quickest),
            worst_round_trip_seconds: trip(|offset| offset.worst),
            cpu_seconds: result.cpu_seconds,
            cores: result.cores,
            histograms,
        })
    }
}
