//! Results directories: reads them, judges what they hold, compares them and writes their report pages.
//!
//! `analysis` and `report` work on records in memory and touch no file; this module connects them with the files of
//! [`pgio_results::store`]. It prints nothing. `pages` writes report pages, [`sides`] compares the runs of two sides,
//! `runs` reads the many runs of a history.

mod pages;
mod runs;
pub mod sides;

use std::path::{Path, PathBuf};

use crate::analysis::{self, Analysis};
use crate::report::html;
use pgio_results::store::{self, StoreError, StoredExperiment};

pub use self::pages::{index, page_path, write_index, write_page};
pub use self::runs::read_runs;

/// The results of one workload, read and judged once for all formats and the gate.
#[derive(Debug)]
pub struct LoadedReport {
    pub dir: PathBuf,
    pub stored: StoredExperiment,
    pub analysis: Analysis,
}

impl LoadedReport {
    /// `stored` is what was read from `dir`, perhaps with another baseline or margin.
    pub fn new(dir: &Path, stored: StoredExperiment) -> LoadedReport {
        let analysis = analysis::analyze(&stored);
        LoadedReport { dir: dir.to_owned(), stored, analysis }
    }

    /// Renders the report page; reads the samples that it draws.
    pub fn page(&self) -> Result<String, StoreError> {
        let LoadedReport { dir, stored, analysis } = self;
        let series: Vec<_> = stored
            .trials
            .iter()
            .map(|trial| {
                if html::is_drawn(stored, trial) {
                    store::read_series(dir, trial)
                } else {
                    Ok(None)
                }
            })
            .collect::<Result<_, _>>()?;
        // The page works without it.
        let experiment = store::read_experiment(dir)?;
        let experiment =
            experiment.unwrap_or_else(|| "# not stored with these results\n".to_owned());
        let source = html::Source { stored, analysis, series: &series, experiment: &experiment };
        Ok(html::render(&source))
    }
}

/// Reads the results of one workload and judges them.
pub fn load(dir: &Path) -> Result<LoadedReport, StoreError> {
    let mut stored = store::read(dir)?;
    analysis::judge(&mut stored);
    Ok(LoadedReport::new(dir, stored))
}

/// Reads the results of one workload and returns their analysis.
pub fn analyze(dir: &Path) -> Result<Analysis, StoreError> {
    Ok(load(dir)?.analysis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{stored_runs, write_runs};

    #[test]
    fn load_reads_and_judges_results_and_renders_the_page() {
        let parent = tempfile::tempdir().unwrap();
        let dirs = write_runs(parent.path(), &stored_runs(1, |_| 1.0)).unwrap();
        let loaded = load(&dirs[0]).unwrap();
        assert!(loaded.stored.judged);
        assert_eq!(loaded.analysis.conditions.len(), 3);
        assert_eq!(analyze(&dirs[0]).unwrap().experiment, loaded.analysis.experiment);
        assert!(loaded.page().unwrap().contains("# made up for a test"));
        std::fs::remove_file(dirs[0].join("experiment.toml")).unwrap();
        assert!(loaded.page().unwrap().contains("# not stored with these results"));
    }
}
