//! Results directories: reads them, judges what they hold, and writes their report pages.
//!
//! [`pgio_verdict`] and `report` work on records in memory and touch no file; this module connects them with the files of
//! [`pgio_results::store`]. It prints nothing. A page is made from what is stored, so it can be written again at any
//! time.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::report::{Find, Report, Section, html};
use pgio_results::store::{self, StoreError, StoredExperiment};
use pgio_verdict::{self as analysis, Analysis};

/// The file that `compare` and `demo` write beside the results.
const PAGE: &str = "report.html";

/// The results of one workload, read and judged once for all formats and the gate.
#[derive(Debug)]
pub struct LoadedReport {
    pub dir: PathBuf,
    pub stored: StoredExperiment,
    pub analysis: Analysis,
    /// What features add.
    pub sections: Vec<Section>,
}

impl LoadedReport {
    /// `stored` is what was read from `dir` and judged, perhaps with another baseline or margin.
    pub fn new(dir: &Path, stored: StoredExperiment, features: &[Find]) -> LoadedReport {
        let mut analysis = analysis::analyze(&stored);
        let sections: Vec<Section> =
            features.iter().filter_map(|find| find(&stored, &analysis)).collect();
        analysis.features = sections.iter().map(|s| (s.name, s.json.clone())).collect();
        LoadedReport { dir: dir.to_owned(), stored, analysis, sections }
    }

    pub fn report(&self) -> Report<'_> {
        Report { analysis: &self.analysis, sections: &self.sections }
    }

    /// Renders the report page; reads the samples that it draws.
    pub fn page(&self) -> Result<String, StoreError> {
        let LoadedReport { dir, stored, .. } = self;
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
        let source = html::Source {
            stored,
            report: self.report(),
            series: &series,
            experiment: &experiment,
        };
        Ok(html::render(&source))
    }
}

/// Reads the results of one workload and judges them.
pub fn load(dir: &Path, features: &[Find]) -> Result<LoadedReport, StoreError> {
    let mut stored = store::read(dir)?;
    analysis::judge(&mut stored);
    Ok(LoadedReport::new(dir, stored, features))
}

/// Reads the results of one workload and returns their analysis, without what features add.
pub fn analyze(dir: &Path) -> Result<Analysis, StoreError> {
    Ok(load(dir, &[])?.analysis)
}

/// Returns the path of the page in a directory.
pub fn page_path(dir: &Path) -> PathBuf {
    dir.join(PAGE)
}

/// Writes the report page beside the results.
pub fn write_page(dir: &Path, features: &[Find]) -> Result<(), StoreError> {
    let page = load(dir, features)?.page()?;
    store::write_durably(&page_path(dir), &page)
}

/// Writes an index page to `dir` that links the pages of these workloads.
pub fn write_index(
    dir: &Path,
    title: &str,
    workloads: &[PathBuf],
    features: &[Find],
) -> Result<(), StoreError> {
    let all = workloads.iter().map(|own| load(own, features)).collect::<Result<Vec<_>, _>>()?;
    store::write_durably(&page_path(dir), &titled_index(dir, title, &all))
}

/// Renders the index page for `dir` that links the pages of these workloads.
pub fn index(dir: &Path, all: &[LoadedReport]) -> String {
    // Each workload's experiment is named after the file, then after its own directory.
    let name = |loaded: &LoadedReport| {
        let own = loaded.dir.file_name().map_or_else(String::new, |n| format!(" {}", n.display()));
        let name = &loaded.stored.manifest.name;
        name.strip_suffix(&own).unwrap_or(name).to_owned()
    };
    let title = all.first().map_or_else(String::new, name);
    titled_index(dir, &title, all)
}

/// Renders an index page for `dir` that links the pages of these workloads under a title.
fn titled_index(dir: &Path, title: &str, all: &[LoadedReport]) -> String {
    let link = |own: &Path| page_path(&relative_path(dir, own)).display().to_string();
    let workloads: Vec<_> = all.iter().map(|loaded| (link(&loaded.dir), loaded.report())).collect();
    html::index(title, &workloads)
}

/// Returns the relative path from one directory to another.
fn relative_path(from: &Path, to: &Path) -> PathBuf {
    // An empty path is the working directory.
    let whole = |dir: &Path| fs::canonicalize(Path::new(".").join(dir));
    let (Ok(from), Ok(to)) = (whole(from), whole(to)) else { return to.to_owned() };
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::test_support::{stored_runs, write_runs};

    #[test]
    fn load_reads_and_judges_results_and_renders_the_page() {
        let parent = tempfile::tempdir().unwrap();
        let dirs = write_runs(parent.path(), &stored_runs(1, |_| 1.0)).unwrap();
        let loaded = load(&dirs[0], &[]).unwrap();
        assert!(loaded.stored.judged);
        assert_eq!(loaded.analysis.conditions.len(), 3);
        assert_eq!(analyze(&dirs[0]).unwrap().experiment, loaded.analysis.experiment);
        assert!(loaded.page().unwrap().contains("# made up for a test"));
        fs::remove_file(dirs[0].join("experiment.toml")).unwrap();
        assert!(loaded.page().unwrap().contains("# not stored with these results"));
    }

    #[test]
    fn a_relative_path_goes_up_to_what_both_have_in_common() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["out/commit", "pages"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let path = |from: &str, to: &str| relative_path(&at(from), &at(to));
        assert_eq!(path("out", "out/commit"), Path::new("commit"));
        assert_eq!(path("pages", "out/commit"), Path::new("../out/commit"));
        assert_eq!(path("out", "out"), Path::new(""));
        assert_eq!(path("out", "missing"), at("missing"));
    }

    #[test]
    fn an_index_links_the_pages_of_the_workloads() {
        let parent = tempfile::tempdir().unwrap();
        let mut runs = stored_runs(2, |_| 1.0);
        for (number, run) in (1..).zip(&mut runs) {
            run.manifest.name = format!("night run-000{number}");
        }
        let dirs = write_runs(parent.path(), &runs).unwrap();
        dirs.iter().for_each(|dir| write_page(dir, &[]).unwrap());
        write_index(parent.path(), "night", &dirs, &[]).unwrap();
        let written = fs::read_to_string(page_path(parent.path())).unwrap();
        let loaded: Vec<_> = dirs.iter().map(|dir| load(dir, &[]).unwrap()).collect();
        // The title is what the names of the workloads begin with.
        assert_eq!(written, index(parent.path(), &loaded));
        for place in ["run-0001/report.html", "run-0002/report.html"] {
            assert!(written.contains(&format!("href=\"{place}\"")), "{written}");
            assert!(parent.path().join(place).exists());
        }
    }
}
