//! `--drivers`, `--image` and `--dry-run`: which drivers generate the load.
//!
//! A small file because the rest of `compare` knows only the result, a [`DriverSpec`].

use super::super::exit::{Failure, Outcome, USAGE};
use super::super::output;
use crate::config::drivers::{DriverEngine, DriverSpec, parse_engine};
use crate::experiment::application::Job;
use crate::workload::coordinator::launch;

/// Returns the drivers that flags and file ask for together.
pub(super) fn spec(
    job: &Job,
    engine: Option<&str>,
    image: Option<String>,
) -> Result<Option<DriverSpec>, Failure> {
    let refused = |why: String| Failure::message(USAGE, format!("--drivers: {why}"));
    let engine = engine.map(parse_engine).transpose().map_err(refused)?;
    let by_flag = engine.is_some() || image.is_some();
    job.experiment.drivers.resolve(engine, image).map_err(|why| {
        if by_flag { refused(why) } else { Failure::message(USAGE, format!("[drivers]: {why}")) }
    })
}

/// Prints what a run would give to kubectl; a run puts its own token and address in.
pub(super) fn print_manifest(spec: Option<&DriverSpec>) -> Outcome {
    match spec {
        Some(spec) if spec.engine == DriverEngine::Kubernetes => {
            let address = spec.listen.map_or("COORDINATOR:PORT".to_owned(), |a| a.to_string());
            output::print(&launch::manifest(spec, "RUN", &address, "TOKEN"));
            Ok(())
        }
        _ => Err(Failure::message(USAGE, "--dry-run needs --drivers kubernetes:N")),
    }
}
