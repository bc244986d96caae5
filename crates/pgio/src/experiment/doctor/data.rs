//! The data set of `slob`: does it exist, is it pgio's, which memory does it fit into.

use pgio_connect::Client;

use super::subject::{Subject, Work};
use crate::dataset::{self, Dataset, DatasetError, verify};
use crate::experiment::slob::{self, SlobError};
use crate::pg::words;
use crate::workload::EngineError;
use pgio_results::Check;
use pgio_results::units::{BLOCK_BYTES, human};

/// `memory` is that of the server's machine, if known.
pub(super) fn judge(
    subject: &Subject,
    shared_buffers: i64,
    memory: Option<u64>,
    client: &mut Client,
) -> Vec<Check> {
    let on_data_set = subject.work.iter().filter(|w| w.kind.def().data_set);
    let mut checks = Vec::new();
    for work in on_data_set {
        match find_data_set(work, client) {
            Ok(found) => {
                checks.push(check_data_set(&found));
                let buffers = shared_buffers.unsigned_abs();
                checks.push(check_cache(found.used_bytes(), buffers, memory));
            }
            Err(error) => {
                checks.push(Check::invalid("data-set", words::sentence(&error), remedy(&error)));
            }
        }
    }
    // Workloads and points of a sweep share one data set.
    let mut distinct: Vec<Check> = Vec::new();
    for check in checks {
        if !distinct.contains(&check) {
            distinct.push(check);
        }
    }
    distinct
}

fn find_data_set(work: &Work, client: &mut Client) -> Result<Dataset, SlobError> {
    let mark = verify::read_mark(client)?;
    let settings = slob::settings_on(&mark, work.layer.clone())?;
    let blocks = Some(settings.scale.blocks());
    let found = dataset::check_for_run(client, settings.tables(), blocks)?;
    found.check_keys(&work.layer)?;
    slob::refuse_published(client, &settings, &found.schema, mark.layout.unlogged)?;
    Ok(found)
}

/// `pgio setup` would refuse a user's table as well.
fn remedy(error: &SlobError) -> &'static str {
    match error {
        SlobError::Dataset(DatasetError::NotOurs { .. }) => {
            "drop the table if you do not need it, or use another database or schema"
        }
        SlobError::Dataset(DatasetError::Untrusted(_)) => {
            "connect as the owner of the tables, or load again with `pgio setup`"
        }
        SlobError::Engine(EngineError::Published(_)) => "use another database",
        SlobError::Dataset(_) | SlobError::Resolve(_) | SlobError::Engine(_) => {
            "load it with `pgio setup`, or correct the keys"
        }
    }
}

fn check_data_set(found: &Dataset) -> Check {
    const ID: &str = "data-set";
    let tables = if found.tables == 1 { "table" } else { "tables" };
    let size = |blocks: u64| human::bytes(blocks * BLOCK_BYTES);
    let mut text = format!("{} {tables} of {}", found.tables, size(found.mark.blocks));
    if found.blocks < found.mark.blocks {
        text += &format!(", of which the workload uses {} each", size(found.blocks));
    }
    match found.warnings.first() {
        None => Check::ok(ID, text),
        Some(warning) => {
            Check::warning(ID, format!("{}: {}", warning.what, warning.why), &warning.try_this)
        }
    }
}

/// The same rule as in a trial's check: between shared_buffers and memory, reads are served by the page cache.
fn check_cache(bytes: u64, buffers: u64, memory: Option<u64>) -> Check {
    const ID: &str = "cache";
    let [data, small] = [bytes, buffers].map(human::bytes);
    let large = memory.map_or_else(|| "unknown".to_owned(), human::bytes);
    let sizes = format!("{data} of data, shared_buffers {small}, memory {large}");
    match memory {
        _ if bytes <= buffers => {
            Check::ok(ID, format!("{sizes}: shared_buffers serves all reads; no disk is measured"))
        }
        Some(memory) if bytes < memory => Check::warning(
            ID,
            format!("{sizes}: the page cache serves reads instead of the disk"),
            "load more data than fits into memory, or leave less memory free",
        ),
        _ => Check::ok(ID, sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict::{Ok as Fine, Warning};
    use pgio_results::units::Layout;

    #[test]
    fn a_part_of_the_data_set_is_named_and_its_size_judged() {
        let found = Dataset {
            schema: "public".to_owned(),
            mark: dataset::Mark {
                version: 3,
                scale: "4G".to_owned(),
                blocks: 524_288,
                tables: 2,
                seed: 1,
                layout: Layout::default(),
            },
            tables: 2,
            blocks: 8192,
            bytes: 9 << 30,
            scan: None,
            warnings: Vec::new(),
        };
        let used = "2 tables of 4 GiB, of which the workload uses 64 MiB each";
        assert_eq!(check_data_set(&found).message, used);
        assert_eq!(found.used_bytes(), 144 << 20);
        let whole = Dataset { blocks: 524_288, ..found };
        assert_eq!(check_data_set(&whole).message, "2 tables of 4 GiB");
        assert_eq!(whole.used_bytes(), 9 << 30);
    }

    #[test]
    fn a_users_table_is_not_to_be_loaded_over() {
        let (schema, name) = ("public".to_owned(), "pgio1".to_owned());
        let foreign = DatasetError::NotOurs { schema, name };
        assert!(!remedy(&foreign.into()).contains("pgio setup"));
        assert!(remedy(&DatasetError::NoDataset.into()).contains("pgio setup"));
    }

    #[test]
    fn data_that_fits_into_the_page_cache_measures_no_disk() {
        assert_eq!(check_cache(10, 10, Some(100)).verdict, Fine);
        assert_eq!(check_cache(11, 10, Some(100)).verdict, Warning);
        assert_eq!(check_cache(100, 10, Some(100)).verdict, Fine);
        assert_eq!(check_cache(11, 10, None).verdict, Fine);
    }
}
