//! The model of a report: titled tables and remarks, of plain text.
//!
//! `comparison` and `trial` decide the contents of a report once; the renderer decides its look
//! (`text`; HTML and Markdown have the same model to work from). Cells are text already,
//! so that every format shows the same digits. They hold names and messages of others too, so each
//! renderer begins with [`Document::printable`] or [`Table::printable`].

use std::fmt;

use pgio_results::CheckVerdict;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    pub title: String,
    /// What follows the title after a colon, or on a page below it; may be empty.
    pub subtitle: String,
    /// Sentences that come before any number, such as that trials failed.
    pub headline: Vec<String>,
    pub tables: Vec<Table>,
    pub remarks: Vec<Remark>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Empty for a table that needs none.
    pub title: String,
    pub columns: Vec<Column>,
    /// Each row has as many cells as there are columns; a cell may hold line breaks.
    pub rows: Vec<Vec<String>>,
    /// Sentences that belong under the table.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub heading: String,
    pub align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Something the reader must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub label: Label,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    Ok,
    Note,
    Warning,
    Invalid,
}

impl Label {
    pub fn word(self) -> &'static str {
        match self {
            Label::Ok => "ok",
            Label::Note => "note",
            Label::Warning => "warning",
            Label::Invalid => "INVALID",
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl From<CheckVerdict> for Label {
    fn from(verdict: CheckVerdict) -> Label {
        match verdict {
            CheckVerdict::Ok => Label::Ok,
            CheckVerdict::Warning => Label::Warning,
            CheckVerdict::Invalid => Label::Invalid,
        }
    }
}

impl Document {
    /// Title and subtitle on one line.
    pub fn heading(&self) -> String {
        if self.subtitle.is_empty() {
            self.title.clone()
        } else {
            format!("{}: {}", self.title, self.subtitle)
        }
    }

    /// With nothing in it that a terminal or a page would obey.
    pub fn printable(&self) -> Document {
        let remark = |r: &Remark| Remark { label: r.label, text: flowing(&r.text) };
        Document {
            title: flowing(&self.title),
            subtitle: flowing(&self.subtitle),
            headline: self.headline.iter().map(|sentence| flowing(sentence)).collect(),
            tables: self.tables.iter().map(Table::printable).collect(),
            remarks: self.remarks.iter().map(remark).collect(),
        }
    }
}

impl Table {
    pub fn printable(&self) -> Table {
        let column = |c: &Column| Column { heading: flowing(&c.heading), align: c.align };
        let row =
            |row: &Vec<String>| row.iter().map(|c| printable::lines(c).into_owned()).collect();
        Table {
            title: flowing(&self.title),
            columns: self.columns.iter().map(column).collect(),
            rows: self.rows.iter().map(row).collect(),
            notes: self.notes.iter().map(|note| flowing(note)).collect(),
        }
    }
}

/// Text that a renderer breaks into lines as it needs.
fn flowing(text: &str) -> String {
    printable::line(&text.replace('\n', " ")).into_owned()
}

impl Column {
    pub fn left(heading: impl Into<String>) -> Column {
        Column { heading: heading.into(), align: Align::Left }
    }

    pub fn right(heading: impl Into<String>) -> Column {
        Column { heading: heading.into(), align: Align::Right }
    }
}

/// Columns from their headings, apart by `|`; `>` aligns to the right: `columns("condition | > writes/s")`.
pub fn columns(headings: &str) -> Vec<Column> {
    let column = |heading: &str| match heading.trim().strip_prefix('>') {
        Some(right) => Column::right(right.trim()),
        None => Column::left(heading.trim()),
    };
    headings.split('|').map(column).collect()
}
