//! The data set of `slob` and its work: turns keys into a load, or into a run on the loaded data set.
//!
//! Prints nothing: warnings and the events of a load go to the caller.

use pgio_connect::Client;

use super::state;
use crate::config::{Layer, LoadSettings, ResolveError, SlobSettings};
use crate::dataset::{
    self, DatasetError, LoadEvent, LoadSpec, LoadSummary, Mark, SpaceCheck, verify,
};
use crate::exit_code::HasExitCode;
use crate::host::stop::Stop;
use crate::pg::session;
use crate::pg::words::Shown;
use crate::workload::slob::{Slob, check_scan_table};
use crate::workload::{EngineError, SHORTEST_PASS};
use pgio_connect::ConnectParams;
use pgio_results::Warning;

const PUBLISHED: &str = include_str!("published.sql");

#[derive(Debug, thiserror::Error)]
pub enum SlobError {
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl HasExitCode for SlobError {
    fn code(&self) -> u8 {
        match self {
            SlobError::Dataset(source) => source.code(),
            SlobError::Resolve(source) => source.code(),
            SlobError::Engine(source) => source.code(),
        }
    }
}

/// Returns the spec of a load; its seed is drawn if none is given.
pub fn load_spec(settings: &LoadSettings) -> LoadSpec {
    LoadSpec {
        tables: settings.num_schemas,
        streams: settings.num_threads,
        scale: settings.scale.to_string(),
        blocks: settings.scale.blocks(),
        seed: settings.seed.unwrap_or_else(state::new_seed),
        base_table: settings.create_base_table,
        tablespace: settings.tablespace.clone(),
        layout: settings.layout,
        scan: settings.scan_scale.clone(),
        space: SpaceCheck::Required,
    }
}

/// Loads through its own connections, besides the admin session.
pub fn load(
    admin: &mut Client,
    params: &ConnectParams,
    spec: &LoadSpec,
    stop: &Stop,
    observe: &mut dyn FnMut(LoadEvent),
) -> Result<LoadSummary, DatasetError> {
    dataset::load(admin, &|| session::open(params), spec, stop, observe)
}

/// Returns `slob` with the given keys, with the data set's mark as defaults, verified against the tables, and
/// warnings.
pub fn loaded(layer: Layer, admin: &mut Client) -> Result<(Slob, Vec<Warning>), SlobError> {
    let mark = verify::read_mark(admin)?;
    let asked = layer.clone();
    let settings = settings_on(&mark, layer)?;
    let found = dataset::check_for_run(admin, settings.tables(), Some(settings.scale.blocks()))?;
    found.check_keys(&asked)?;
    let mut warnings = found.warnings;
    warnings.extend(workload_warnings(&settings));
    if !settings.features.scan_pct.is_zero() {
        check_scan_table(admin, &found.schema)?;
    }
    refuse_published(admin, &settings, &found.schema, found.mark.layout.unlogged)?;
    Ok((Slob { settings, schema: found.schema, loaded: found.mark }, warnings))
}

/// Like [`loaded`], refuses work that a publication makes the server refuse.
pub fn refuse_published(
    client: &mut Client,
    settings: &SlobSettings,
    schema: &str,
    unlogged: bool,
) -> Result<(), EngineError> {
    let deletes = !settings.features.turnover_pct.is_zero() && !unlogged;
    let found = client.query_opt(PUBLISHED, &[&schema, &(settings.update_pct > 0), &deletes]);
    let name = found.and_then(|row| row.map(|row| row.try_get::<_, Shown>(0)).transpose());
    match name.map_err(|source| EngineError::Postgres { doing: "finding publications", source })? {
        Some(Shown(name)) => Err(EngineError::Published(name)),
        None => Ok(()),
    }
}

/// Returns the settings from the given keys, with the loaded data set as defaults.
pub fn settings_on(mark: &Mark, layer: Layer) -> Result<SlobSettings, ResolveError> {
    let marked = Layer {
        scale: mark.scale.parse().ok(),
        num_schemas: Some(mark.tables),
        filler_width: Some(mark.layout.filler_width),
        ..Layer::default()
    };
    SlobSettings::resolve(layer.over(marked))
}

/// Returns warnings about work that probably measures something unintended.
fn workload_warnings(settings: &SlobSettings) -> Vec<Warning> {
    let mut found = Vec::new();
    if settings.commit_every == 0
        && settings.sessions() > settings.tables()
        && settings.update_pct > 0
    {
        found.push(Warning::new(
            "several sessions update one table in transactions that last over the window",
            "they block each other; a call that times out is rolled back and counted",
            "set NUM_THREADS=1, or keep commit_every at 1",
        ));
    }
    // The shortest window has four slices of at least one pass each.
    let passes = ((settings.run_time.as_secs_f64() / SHORTEST_PASS) as u32).max(4);
    if settings.tables_per_session() > passes && settings.features.work_loop.is_none() {
        found.push(Warning::new(
            format!(
                "each session has {} tables and time for {passes}",
                settings.tables_per_session()
            ),
            "a window is too short to visit all of them",
            "increase RUN_TIME or SESSIONS",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Key;
    use pgio_results::units::Layout;

    fn layer(pairs: &[(&str, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (name, value) in pairs {
            let key = Key::named(name).unwrap();
            key.set(&mut layer, value).unwrap();
        }
        layer
    }

    fn mark(tables: u32) -> Mark {
        let (scale, layout) = ("16M".to_owned(), Layout::default());
        Mark { version: 1, scale, blocks: 2048, tables, seed: 1, layout }
    }

    #[test]
    fn unset_keys_of_slob_are_taken_from_the_data_set() {
        let settings = settings_on(&mark(3), layer(&[("update_pct", "0")])).unwrap();
        assert_eq!((settings.scale.to_string().as_str(), settings.tables()), ("16M", 3));
        let given = settings_on(&mark(3), layer(&[("num_schemas", "2")])).unwrap();
        assert_eq!(given.tables(), 2);
    }

    #[test]
    fn sessions_that_block_each_other_or_miss_tables_are_a_warning() {
        let doubts_of =
            |tables, pairs| workload_warnings(&settings_on(&mark(tables), layer(pairs)).unwrap());
        assert_eq!(doubts_of(1, &[("run_time", "5")]), []);
        let long =
            doubts_of(1, &[("commit_every", "0"), ("num_threads", "2"), ("update_pct", "10")]);
        assert!(long[0].to_string().contains("block each other"), "{long:?}");
        let short = doubts_of(64, &[("run_time", "1"), ("sessions", "1")]);
        assert!(short[0].to_string().contains("64 tables"), "{short:?}");
    }
}
