//! `pgio setup`: loads the data set and prints the original's lines.

use std::path::{Path, PathBuf};

use pgio_connect::Client;

use super::exit::{FILES, Failure, Outcome};
use super::flags::{self, ForSetup, Source};
use super::output::{self, Status};
use super::signals;
use crate::config::LoadSettings;
use crate::dataset::{DatasetError, LoadEvent, LoadSpec, LoadSummary, SpaceCheck, lines};
use crate::experiment::admin::open_admin;
use crate::experiment::{slob, state};
use crate::host::stop::Stop;
use crate::pg::server;
use pgio_connect::ConnectParams;
use pgio_results::files::Directory;
use pgio_results::store;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write pgio_objects_creation.out and pgio_data_load_table_sizes.out to this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    classic_files: Option<PathBuf>,
    /// Load even if the server may have too little free disk space, or that cannot be known
    #[arg(long)]
    no_space_check: bool,
    #[command(flatten)]
    source: Source<ForSetup>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let keys = flags::read_keys(&args.source)?;
    let mut spec = slob::load_spec(&LoadSettings::resolve(keys.layer.clone())?);
    if args.no_space_check {
        spec.space = SpaceCheck::Off;
    }
    let run_id = state::new_run_id();
    let params = flags::params_of(&keys, &run_id)?;
    flags::refuse_unfinished(&params)?;
    let stop = signals::stop_on_signals()?;
    let (mut admin, found) = open_admin(&params, &run_id)?;
    server::check_database(&found, keys.layer.dbname.as_deref())?;
    flags::refuse_other_runs(&mut admin, &found.info.database, &run_id)?;
    output::warn_all(&found.warnings);

    output::line(&lines::job_info(&spec.scale, spec.tables));
    output::line(&lines::batching_info(spec.streams));
    if !spec.base_table {
        output::line(&lines::base_skipped());
    }
    let loaded = load(&mut admin, &params, &spec, &stop, Lines::Classic)?;
    for name in lines::listed(&loaded.dropped) {
        output::note(&format!("dropped {name}, left over from a larger load"));
    }
    if let Some(dir) = &args.classic_files {
        write_classic_files(dir, &mut admin, &spec)?;
    }
    Ok(())
}

/// Writes the command tags that psql prints when the original creates its objects.
fn write_classic_files(dir: &Path, admin: &mut Client, spec: &LoadSpec) -> Outcome {
    Directory::open_or_create(dir)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot create {}", dir.display())))?;
    let table =
        |rows: u64, index: &str| format!("CREATE TABLE\nCOPY {rows}\n{index}COMMENT\nANALYZE\n");
    let mut tags = if spec.base_table { table(spec.blocks, "") } else { String::new() };
    tags.extend(spec.scan.iter().map(|scale| table(scale.blocks(), "")));
    tags.extend((0..spec.tables).map(|_| table(spec.blocks, "CREATE INDEX\n")));
    store::write_durably(&dir.join("pgio_objects_creation.out"), &tags)?;
    let text = lines::table_sizes(admin)?;
    Ok(store::write_durably(&dir.join("pgio_data_load_table_sizes.out"), &text)?)
}

/// Which lines a load prints to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    None,
    /// The lines of the original.
    Classic,
}

pub fn load(
    admin: &mut Client,
    params: &ConnectParams,
    spec: &LoadSpec,
    stop: &Stop,
    shown: Lines,
) -> Result<LoadSummary, DatasetError> {
    let mut status = Status::new();
    slob::load(admin, params, spec, stop, &mut |event| show_load(&event, shown, &mut status))
}

pub(super) fn show_load(event: &LoadEvent, shown: Lines, status: &mut Status) {
    let line = match *event {
        LoadEvent::Progress { done, total, elapsed } => {
            return status.show(&lines::progress(done, total, elapsed));
        }
        LoadEvent::Warning(ref warning) => {
            status.clear();
            return output::warn(warning);
        }
        LoadEvent::TableLoaded { .. } => return,
        LoadEvent::BaseLoaded { elapsed } => lines::base_loaded(elapsed),
        LoadEvent::ScanLoaded { elapsed } => lines::scan_loaded(elapsed),
        LoadEvent::BatchWaiting { count, elapsed } => lines::batch_waiting(count, elapsed),
        LoadEvent::GroupComplete { elapsed } => lines::group_complete(elapsed),
    };
    status.clear();
    if shown == Lines::Classic {
        output::line(&line);
    }
}
