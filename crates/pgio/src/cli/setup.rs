//! `pgio setup`: loads the data set, and tells it in the original's lines.

use std::fs;
use std::path::{Path, PathBuf};

use postgres::Client;

use super::exit::{FILES, Failure};
use super::flags::{ForSetup, Source};
use super::output::{self, Status};
use super::{Outcome, connection, signals, state};
use crate::config::LoadSettings;
use crate::dataset::{self, DatasetError, LoadEvent, LoadSpec, Loaded, lines, sizes};
use crate::experiment::live;
use crate::host::stop::Stop;
use crate::pg::connect::{self, ConnectParams};
use crate::pg::server;
use crate::results::store;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write pgio_objects_creation.out and pgio_data_load_table_sizes.out here
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    classic_files: Option<PathBuf>,
    #[command(flatten)]
    source: Source<ForSetup>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let given = connection::given(&args.source)?;
    let spec = load_spec(&LoadSettings::resolve(given.layer.clone())?);
    let run_id = state::new_run_id();
    let params = given.params(&run_id)?;
    let stop = signals::stop_on_signals()?;
    let (mut admin, found) = live::open_admin(&params, &run_id)?;
    server::check_database(&found, given.layer.dbname.as_deref())?;
    output::warn_all(&found.warnings);

    output::line(&lines::job_info(&spec.scale, spec.tables));
    output::line(&lines::batching_info(spec.streams));
    if !spec.base_table {
        output::line(&lines::base_skipped());
    }
    let loaded = load(&mut admin, &params, &spec, &stop, true)?;
    for name in lines::listed(&loaded.dropped) {
        output::note(&format!("dropped {name} of a former, larger load"));
    }
    if let Some(dir) = &args.classic_files {
        write_classic_files(dir, &mut admin, &spec)?;
    }
    Ok(())
}

pub(super) fn load_spec(settings: &LoadSettings) -> LoadSpec {
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
    }
}

/// Loads with progress on a terminal and, if `classic`, the original's lines.
pub(super) fn load(
    admin: &mut Client,
    params: &ConnectParams,
    spec: &LoadSpec,
    stop: &Stop,
    classic: bool,
) -> Result<Loaded, DatasetError> {
    let mut progress = Status::new();
    dataset::load(admin, &|| connect::connect(params), spec, stop, &mut |event| {
        let line = match event {
            LoadEvent::Progress { done, total, elapsed } => {
                return progress.show(&lines::progress(done, total, elapsed));
            }
            LoadEvent::Warning(warning) => {
                progress.clear();
                return output::warn(&warning);
            }
            LoadEvent::TableLoaded { .. } => return,
            LoadEvent::BaseLoaded { elapsed } => lines::base_loaded(elapsed),
            LoadEvent::ScanLoaded { elapsed } => lines::scan_loaded(elapsed),
            LoadEvent::BatchWaiting { count, elapsed } => lines::batch_waiting(count, elapsed),
            LoadEvent::GroupComplete { elapsed } => lines::group_complete(elapsed),
        };
        progress.clear();
        if classic {
            output::line(&line);
        }
    })
}

/// What psql printed when the original made its objects: the command tags.
fn write_classic_files(dir: &Path, admin: &mut Client, spec: &LoadSpec) -> Outcome {
    fs::create_dir_all(dir)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot make {}", dir.display())))?;
    let table =
        |rows: u64, index: &str| format!("CREATE TABLE\nCOPY {rows}\n{index}COMMENT\nANALYZE\n");
    let mut tags = if spec.base_table { table(spec.blocks, "") } else { String::new() };
    tags.extend(spec.scan.iter().map(|scale| table(scale.blocks(), "")));
    tags.extend((0..spec.tables).map(|_| table(spec.blocks, "CREATE INDEX\n")));
    store::write_durably(&dir.join("pgio_objects_creation.out"), &tags)?;
    let text = sizes::table_sizes(admin)?;
    Ok(store::write_durably(&dir.join("pgio_data_load_table_sizes.out"), &text)?)
}
