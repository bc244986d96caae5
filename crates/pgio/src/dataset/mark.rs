//! The mark: the comment by which our objects are known, and what bears our names.
//!
//! A mark is for people and for us: `\d+` shows it, and it says what was loaded so that a run can
//! refuse what does not fit. Only tables whose comment parses are ever dropped. Next: `load` writes
//! it, `verify` and `destroy` read it.

use std::fmt;
use std::str::FromStr;

use postgres::Client;

use super::sql;
use crate::units::{Filler, Layout};

/// Of the tables and of the mark itself; a run refuses one that it does not know. Up to 2 there was
/// the original's layout and no other.
pub const VERSION: u32 = 3;

const PREFIX: &str = "pgio data set:";
const SENTENCE: &str = "(made by pgio setup, removed by pgio destroy)";

/// How the comments on the workloads' own tables begin and end, such as `pgio commit workload: made
/// and dropped by pgio`. They stay behind only when a run was killed.
const WORKLOAD: (&str, &str) = ("pgio ", " workload: made and dropped by pgio");

/// One table of a data set: `pgio1`, `pgio2`, ..., `pgio_scan` or `pgio_base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    Base,
    /// For scans of a whole table: rows like those of the others, no index.
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

/// What was loaded; the same in all tables of one load, but that pgio_scan has a size of its own and
/// pgio_base the original's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub version: u32,
    /// As it was asked for, such as `200M`.
    pub scale: String,
    /// Per table: the number of rows, and of 8 kB blocks.
    pub blocks: u64,
    pub tables: u32,
    pub seed: u64,
    pub layout: Layout,
}

impl Mark {
    /// The comment for one table.
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

    /// None when the comment is not ours, or is but was edited beyond recognition: then the table
    /// is treated as the user's. Unknown keys are a newer version's.
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

    /// A comment that came along with a copy (`CREATE TABLE ... LIKE ... INCLUDING COMMENTS`, a
    /// rename) is no mark: it must be for this very table.
    pub(super) fn of(part: Part, comment: &str) -> Option<Mark> {
        Mark::parse(comment).filter(|(_, marked)| *marked == part).map(|(mark, _)| mark)
    }
}

/// Whether a comment is that of a workload's own table.
pub(super) fn is_workload(comment: &str) -> bool {
    comment.starts_with(WORKLOAD.0) && comment.ends_with(WORKLOAD.1)
}

/// What an older mark does not say was the original's. What a newer one says in words that are not
/// known here is not looked at: its version is refused.
fn layout(text: &str) -> Layout {
    fn said<T: FromStr>(text: &str, key: &str) -> Option<T> {
        value(text, key)?.parse().ok()
    }
    let original = Layout::default();
    Layout {
        filler: value(text, "filler").and_then(Filler::named).unwrap_or(original.filler),
        filler_width: said(text, "filler_width").unwrap_or(original.filler_width),
        fillfactor: said(text, "fillfactor").unwrap_or(original.fillfactor),
        unlogged: said(text, "unlogged").unwrap_or(original.unlogged),
    }
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Something in current_schema() that bears one of our tables' names.
#[derive(Debug, Clone)]
pub struct Named {
    pub part: Part,
    /// Present when it is a table and carries our mark for this very name.
    pub mark: Option<Mark>,
    pub owner: String,
    /// Whether the current role may drop it.
    pub owned: bool,
    /// With its indexes.
    pub bytes: u64,
}

/// All of those, tables in the order of their numbers.
pub fn find(client: &mut Client) -> Result<Vec<Named>, postgres::Error> {
    let rows = client.query(sql::NAMED, &[])?;
    // A number beyond u32 cannot be a table of ours, so it is in nobody's way.
    let named = rows.iter().filter_map(|row| {
        let part = Part::from_name(row.get("name"))?;
        let comment: Option<String> = row.get("comment");
        let is_table = row.get::<_, &str>("kind") == "r";
        Some(Named {
            part,
            mark: comment.filter(|_| is_table).and_then(|c| Mark::of(part, &c)),
            owner: row.get("owner"),
            owned: row.get("owned"),
            bytes: row.get::<_, i64>("bytes").unsigned_abs(),
        })
    });
    Ok(named.collect())
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
        fn a_mark_is_read_as_it_was_written(
            version: u32, scale in "[1-9][0-9]{0,8}[MGT]?", blocks: u64, tables: u32, seed: u64,
            layout in layout(), part in part(),
        ) {
            let mark = Mark { version, scale, blocks, tables, seed, layout };
            prop_assert_eq!(Mark::parse(&mark.comment(part)), Some((mark, part)));
        }

        #[test]
        fn a_part_is_read_as_it_was_written(part in part()) {
            prop_assert_eq!(Part::from_name(&part.to_string()), Some(part));
        }

        #[test]
        fn no_other_comment_is_ours(comment: String) {
            prop_assert_eq!(Mark::parse(&comment), None);
        }
    }

    #[test]
    fn the_words_stay() {
        let layout = Layout::default();
        let mark =
            Mark { version: 3, scale: "200M".into(), blocks: 25600, tables: 4, seed: 42, layout };
        insta::assert_snapshot!(
            mark.comment(Part::Table(1)),
            @"pgio data set: version=3 scale=200M blocks=25600 table=1 tables=4 seed=42 filler=plain filler_width=1024 fillfactor=10 unlogged=false (made by pgio setup, removed by pgio destroy)"
        );
        assert!(is_workload("pgio commit workload: made and dropped by pgio"));
        assert!(!is_workload("pgio commit workload"));
    }

    #[test]
    fn marks_of_version_2_are_of_the_originals_layout() {
        let of_2 = "pgio data set: version=2 scale=200M blocks=25600 table=1 tables=4 seed=42 (made by pgio setup, removed by pgio destroy)";
        let mark = Mark::of(Part::Table(1), of_2).unwrap();
        assert_eq!((mark.version, mark.blocks, mark.layout), (2, 25_600, Layout::default()));
        // A newer one stays ours, whatever it says.
        let of_9 = "pgio data set: version=9 scale=8M blocks=1024 table=1 tables=1 seed=1 filler=music unlogged=perhaps";
        assert_eq!(Mark::of(Part::Table(1), of_9).unwrap().version, 9);
    }

    #[test]
    fn other_names_and_foreign_marks_are_not_ours() {
        for name in
            ["pgio", "pgio01", "pgio0", "pgio_", "pgio1x", "pgio+1", "xpgio1", "pgio99999999999"]
        {
            assert_eq!(Part::from_name(name), None, "{name}");
        }
        let of_2 = "pgio data set: version=2 scale=8M blocks=1024 table=2 tables=4 seed=1";
        assert!(Mark::of(Part::Table(2), of_2).is_some());
        assert!(Mark::of(Part::Table(3), of_2).is_none());
        assert!(Mark::parse("pgio data set: version=2 blocks=many").is_none());
    }
}
