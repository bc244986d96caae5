//! The mark: the comment that identifies pgio's tables, and a search for objects with their names.
//!
//! `\d+` shows the mark. It describes the load, so that a run can refuse a data set that does not
//! match. pgio never drops a table whose comment cannot be parsed. Next: `load` writes the mark,
//! `verify` and `destroy` read it.

use crate::pg::words::Shown;
use std::fmt;
use std::str::FromStr;

use pgio_connect::Client;
use pgio_results::units::{Filler, Layout};

/// Version of the tables and of the mark; a run refuses a newer version. Up to version 2, all tables had
/// the original's layout.
pub const VERSION: u32 = 3;

const PREFIX: &str = "pgio data set:";
const SENTENCE: &str = "(made by pgio setup, removed by pgio destroy)";

/// The comments on what workloads create for themselves: tables of `commit` and `slob`, the schema of a command. They
/// remain only after a run was killed; `destroy` recognizes them.
pub const COMMIT_TABLE: &str = "pgio commit workload: made and dropped by pgio";
pub const SLOB_TABLE: &str = "pgio slob workload: made and dropped by pgio";
pub const COMMAND_SCHEMA: &str = "pgio command workload: made and dropped by pgio";
/// Prefix and suffix of these comments.
const WORKLOAD_COMMENT: (&str, &str) = ("pgio ", " workload: made and dropped by pgio");

/// One table of a data set: `pgio1`, `pgio2`, ..., `pgio_scan` or `pgio_base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    Base,
    /// The table for full scans: the same rows as the others, without an index.
    Scan,
    /// Counted from 1.
    Table(u32),
}

impl Part {
    pub fn from_name(name: &str) -> Option<Part> {
        let rest = name.strip_prefix("pgio")?;
        match rest {
            "_base" => return Some(Part::Base),
            "_scan" => return Some(Part::Scan),
            _ => {}
        }
        let plain = rest.bytes().all(|b| b.is_ascii_digit()) && !rest.starts_with('0');
        rest.parse().ok().filter(|_| plain).map(Part::Table)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Base => f.write_str("pgio_base"),
            Part::Scan => f.write_str("pgio_scan"),
            Part::Table(n) => write!(f, "pgio{n}"),
        }
    }
}

/// Describes the load. All tables of a load have the same mark, except that pgio_scan has its own size
/// and pgio_base the original's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub version: u32,
    /// The scale as specified, such as `200M`.
    pub scale: String,
    /// Number of rows and of 8 kB blocks per table.
    pub blocks: u64,
    pub tables: u32,
    pub seed: u64,
    pub layout: Layout,
}

impl Mark {
    /// Returns the comment for a table.
    pub fn comment(&self, part: Part) -> String {
        let Mark { version, scale, blocks, tables, seed, layout } = self;
        let Layout { filler, filler_width, fillfactor, unlogged } = layout;
        let filler = filler.name();
        let table = match part {
            Part::Base => "base".to_owned(),
            Part::Scan => "scan".to_owned(),
            Part::Table(n) => n.to_string(),
        };
        format!(
            "{PREFIX} version={version} scale={scale} blocks={blocks} table={table} \
             tables={tables} seed={seed} filler={filler} filler_width={filler_width} \
             fillfactor={fillfactor} unlogged={unlogged} {SENTENCE}"
        )
    }

    /// Parses a comment. Returns `None` for any other comment, or if a user edited the mark so that it
    /// cannot be parsed: then the table counts as the user's. Unknown keys belong to newer versions.
    pub fn parse(comment: &str) -> Option<(Mark, Part)> {
        let rest = comment.strip_prefix(PREFIX)?;
        let part = match value(rest, "table")? {
            "base" => Part::Base,
            "scan" => Part::Scan,
            n => Part::Table(n.parse().ok()?),
        };
        let mark = Mark {
            version: value(rest, "version")?.parse().ok()?,
            scale: value(rest, "scale")?.to_owned(),
            blocks: value(rest, "blocks")?.parse().ok()?,
            tables: value(rest, "tables")?.parse().ok()?,
            seed: value(rest, "seed")?.parse().ok()?,
            layout: layout(rest),
        };
        Some((mark, part))
    }

    /// Parses the comment of a table. A mark for another table, copied by `CREATE TABLE ... LIKE ...
    /// INCLUDING COMMENTS` or by a rename, does not count.
    pub(super) fn parse_for(part: Part, comment: &str) -> Option<Mark> {
        Mark::parse(comment).filter(|(_, marked)| *marked == part).map(|(mark, _)| mark)
    }
}

/// Returns whether a comment marks a workload's table.
pub(super) fn is_workload_comment(comment: &str) -> bool {
    comment.starts_with(WORKLOAD_COMMENT.0) && comment.ends_with(WORKLOAD_COMMENT.1)
}

/// Parses the layout. Keys that an older mark lacks have the original's values. Unknown values of a
/// newer mark are ignored, because its version is refused.
fn layout(text: &str) -> Layout {
    fn parsed<T: FromStr>(text: &str, key: &str) -> Option<T> {
        value(text, key)?.parse().ok()
    }
    let original = Layout::default();
    Layout {
        filler: value(text, "filler").and_then(Filler::named).unwrap_or(original.filler),
        filler_width: parsed(text, "filler_width").unwrap_or(original.filler_width),
        fillfactor: parsed(text, "fillfactor").unwrap_or(original.fillfactor),
        unlogged: parsed(text, "unlogged").unwrap_or(original.unlogged),
    }
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// An object in the schema of the session that has the name of one of pgio's tables.
#[derive(Debug, Clone)]
pub struct Named {
    pub part: Part,
    /// Present if it is a table with a mark for this name.
    pub mark: Option<Mark>,
    pub owner: String,
    /// Whether the current role may drop the object.
    pub owned: bool,
    /// Size, indexes included.
    pub bytes: u64,
}

/// Returns all such objects, tables in the order of their numbers.
pub fn find(client: &mut Client) -> Result<Vec<Named>, pgio_connect::Error> {
    let rows = client.query(super::NAMED, &[])?;
    // pgio never creates a table with a number beyond u32, so ignore it.
    let named = rows.iter().map(|row| {
        let Some(part) = Part::from_name(row.try_get("name")?) else { return Ok(None) };
        let comment: Option<Shown> = row.try_get("comment")?;
        let is_table = row.try_get::<_, &str>("kind")? == "r";
        Ok(Some(Named {
            part,
            mark: comment.filter(|_| is_table).and_then(|c| Mark::parse_for(part, &c.0)),
            owner: row.try_get::<_, Shown>("owner")?.into(),
            owned: row.try_get("owned")?,
            bytes: row.try_get::<_, i64>("bytes")?.unsigned_abs(),
        }))
    });
    named.filter_map(Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![Just(Part::Base), Just(Part::Scan), (1u32..).prop_map(Part::Table)]
    }

    fn layout() -> impl Strategy<Value = Layout> {
        let filler = prop_oneof![Just(Filler::Plain), Just(Filler::Random)];
        (filler, any::<u32>(), any::<u8>(), any::<bool>()).prop_map(
            |(filler, filler_width, fillfactor, unlogged)| Layout {
                filler,
                filler_width,
                fillfactor,
                unlogged,
            },
        )
    }

    proptest! {
        #[test]
        fn marks_round_trip(
            version: u32, scale in "[1-9][0-9]{0,8}[MGT]?", blocks: u64, tables: u32, seed: u64,
            layout in layout(), part in part(),
        ) {
            let mark = Mark { version, scale, blocks, tables, seed, layout };
            prop_assert_eq!(Mark::parse(&mark.comment(part)), Some((mark, part)));
        }

        #[test]
        fn part_names_round_trip(part in part()) {
            prop_assert_eq!(Part::from_name(&part.to_string()), Some(part));
        }

        #[test]
        fn other_comments_are_not_marks(comment: String) {
            prop_assert_eq!(Mark::parse(&comment), None);
        }
    }

    #[test]
    fn the_text_of_marks_is_stable() {
        let layout = Layout::default();
        let mark =
            Mark { version: 3, scale: "200M".into(), blocks: 25600, tables: 4, seed: 42, layout };
        insta::assert_snapshot!(
            mark.comment(Part::Table(1)),
            @"pgio data set: version=3 scale=200M blocks=25600 table=1 tables=4 seed=42 filler=plain filler_width=1024 fillfactor=10 unlogged=false (made by pgio setup, removed by pgio destroy)"
        );
        assert!([COMMIT_TABLE, SLOB_TABLE].into_iter().all(is_workload_comment));
        assert!(super::super::HELPERS.contains(COMMAND_SCHEMA));
        assert!(!is_workload_comment("pgio commit workload"));
    }

    #[test]
    fn marks_of_version_2_have_the_originals_layout() {
        let of_2 = "pgio data set: version=2 scale=200M blocks=25600 table=1 tables=4 seed=42 (made by pgio setup, removed by pgio destroy)";
        let mark = Mark::parse_for(Part::Table(1), of_2).unwrap();
        assert_eq!((mark.version, mark.blocks, mark.layout), (2, 25_600, Layout::default()));
        // A newer mark is still recognized.
        let of_9 = "pgio data set: version=9 scale=8M blocks=1024 table=1 tables=1 seed=1 filler=music unlogged=perhaps";
        assert_eq!(Mark::parse_for(Part::Table(1), of_9).unwrap().version, 9);
    }

    #[test]
    fn other_names_and_marks_of_other_tables_are_ignored() {
        for name in
            ["pgio", "pgio01", "pgio0", "pgio_", "pgio1x", "pgio+1", "xpgio1", "pgio99999999999"]
        {
            assert_eq!(Part::from_name(name), None, "{name}");
        }
        let of_2 = "pgio data set: version=2 scale=8M blocks=1024 table=2 tables=4 seed=1";
        assert!(Mark::parse_for(Part::Table(2), of_2).is_some());
        assert!(Mark::parse_for(Part::Table(3), of_2).is_none());
        assert!(Mark::parse("pgio data set: version=2 blocks=many").is_none());
    }
}
