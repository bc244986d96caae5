//! A document as Markdown, for a ticket, a pull request or a wiki.
//!
//! Tables are GitHub's, with its alignment marks; every character that Markdown would take for its
//! own is escaped, so that the reader sees the text of the report. This file does not decide the
//! contents.

use super::table::{Align, Document, Table};

/// `lead` precedes the tables, one paragraph for each sentence.
pub fn render(document: &Document, lead: &[String]) -> String {
    let document = document.printable();
    let mut parts = vec![format!("# {}\n", escaped(&document.heading()))];
    parts.extend(document.headline.iter().map(|sentence| format!("**{}**\n", escaped(sentence))));
    parts.extend(lead.iter().map(|sentence| paragraph(&printable::line(sentence))));
    parts.extend(document.tables.iter().map(drawn));
    if !document.remarks.is_empty() {
        let remark =
            |r: &super::table::Remark| format!("- **{}**: {}\n", r.label, escaped(&r.text));
        parts.push("## Checks and warnings\n".to_owned());
        parts.push(document.remarks.iter().map(remark).collect());
    }
    parts.join("\n")
}

pub fn table(table: &Table) -> String {
    drawn(&table.printable())
}

fn drawn(table: &Table) -> String {
    let mut parts = Vec::new();
    if !table.title.is_empty() {
        parts.push(format!("## {}\n", escaped(&table.title)));
    }
    if !table.columns.is_empty() {
        let headings: Vec<&str> = table.columns.iter().map(|c| c.heading.as_str()).collect();
        let marks: Vec<&str> = table
            .columns
            .iter()
            .map(|c| match c.align {
                Align::Left => "---",
                Align::Right => "---:",
            })
            .collect();
        let rows = table.rows.iter().map(|cells| row(cells));
        parts.push(format!(
            "{}| {} |\n{}",
            row(&headings),
            marks.join(" | "),
            rows.collect::<String>()
        ));
    }
    parts.extend(table.notes.iter().map(|note| paragraph(note)));
    parts.join("\n")
}

fn row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| escaped(cell.as_ref()).replace('\n', "<br>")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A paragraph of its own, which begins no list, heading or rule.
fn paragraph(text: &str) -> String {
    let text = escaped(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    match rest.chars().next() {
        Some('.' | ')') if digits > 0 => format!("{number}\\{rest}\n"),
        Some('-' | '+' | '=') if digits == 0 => format!("\\{rest}\n"),
        _ => format!("{text}\n"),
    }
}

/// Underscores within a word mean nothing to Markdown, and names are full of them.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let within_word =
            before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric());
        let special = match c {
            '_' => !within_word,
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '#' | '&' | '@' | '$' => true,
            // Addresses are no links: `https://` and `www.` would become some by themselves.
            ':' => chars.peek() == Some(&'/'),
            '.' => out.len() >= 3 && out.as_bytes()[out.len() - 3..].eq_ignore_ascii_case(b"www"),
            _ => false,
        };
        if special {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::{Column, Label, Remark};
    use proptest::prelude::*;

    #[test]
    fn a_document_in_markdown() {
        let document = Document {
            title: "demo".to_owned(),
            subtitle: "commits/s".to_owned(),
            headline: Vec::new(),
            tables: vec![Table {
                title: "Secondary".to_owned(),
                columns: vec![Column::left("metric"), Column::right("on")],
                rows: vec![vec!["wal_bytes | x".into(), "~ [−3.7, +4.4]\n(14 blocks)".into()]],
                notes: vec!["* shown".to_owned()],
            }],
            remarks: vec![Remark { label: Label::Invalid, text: "a <b>".to_owned() }],
        };
        assert_eq!(
            render(&document, &["on is slower.".to_owned()]),
            "# demo: commits/s\n\non is slower.\n\n## Secondary\n\n\
             | metric | on |\n| --- | ---: |\n\
             | wal_bytes \\| x | \\~ \\[−3.7, +4.4\\]<br>(14 blocks) |\n\n\
             \\* shown\n\n## Checks and warnings\n\n- **INVALID**: a \\<b\\>\n"
        );
    }

    proptest! {
        /// However wild a cell, its row has as many columns as the heading.
        #[test]
        fn no_cell_breaks_its_row(cells in prop::collection::vec("[a|\\\\\n_*~]{0,9}", 3)) {
            let line = row(&cells);
            prop_assert_eq!(line.matches('\n').count(), 1);
            let mut bars = 0;
            let mut chars = line.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => { chars.next(); }
                    '|' => bars += 1,
                    _ => {}
                }
            }
            prop_assert_eq!(bars, 4, "{}", line);
        }
    }
}
