//! The notes of a release: its section of the changelog.

use anyhow::{Result, bail};

/// The text under the heading that names the version, without the heading.
///
/// A heading is `## [Unreleased]: 2.0.0-alpha.1` or `## [2.0.0] - 2027-01-31`.
pub(super) fn extract(changelog: &str, version: &str) -> Result<String> {
    let names_it = |line: &str| {
        let words = line.split([' ', '[', ']', ':']);
        line.starts_with("## ") && words.into_iter().any(|word| word == version)
    };
    let mut lines = changelog.lines().skip_while(|line| !names_it(line));
    if lines.next().is_none() {
        bail!("CHANGELOG.md has no heading `## [{version}]`; write what users see of this release");
    }
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = section.join("\n");
    if text.trim().is_empty() {
        bail!("CHANGELOG.md has nothing under {version}");
    }
    // Headings one level higher: the notes stand alone.
    let text = text.trim().replace("\n### ", "\n## ");
    let text = text.strip_prefix("### ").map_or(text.clone(), |rest| format!("## {rest}"));
    Ok(format!("# pgio {version}\n\n{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]: 2.0.0\n\n### Added\n\n- new\n\n### Fixed\n\n- old\n\n\
                             ## [1.9.0] - 2026-01-01\n\n- older\n\n## [1.8.0]\n";

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        let notes = extract(CHANGELOG, "2.0.0").unwrap();
        assert_eq!(notes, "# pgio 2.0.0\n\n## Added\n\n- new\n\n## Fixed\n\n- old\n");
        assert_eq!(extract(CHANGELOG, "1.9.0").unwrap(), "# pgio 1.9.0\n\n- older\n");
    }

    #[test]
    fn a_release_without_notes_is_refused() {
        assert!(
            extract(CHANGELOG, "2.0").unwrap_err().to_string().contains("no heading `## [2.0]`")
        );
        assert!(extract(CHANGELOG, "1.8.0").unwrap_err().to_string().contains("nothing under"));
    }

    #[test]
    fn the_changelog_has_this_version() {
        let changelog = include_str!("../../../CHANGELOG.md");
        assert!(extract(changelog, env!("CARGO_PKG_VERSION")).unwrap().contains("pgio demo"));
    }
}
