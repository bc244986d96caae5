//! A document as text for a terminal: aligned, at most 120 columns, without color.
//!
//! Widths are counted in characters, which is right for `µ`, `±`, `−` and Latin names; it does not
//! know double-width or combining ones. A table that would be too wide wraps the cells of its
//! widest column. This file does not decide the contents.

use super::table::{Align, Document, Table};

/// No line is longer, unless a single word of a note is.
pub const COLUMNS: usize = 120;
const GAP: &str = "  ";
/// Columns are not wrapped narrower than this.
const MIN_COLUMN_WIDTH: usize = 8;

pub fn render(document: &Document) -> String {
    let document = document.printable();
    let mut parts = Vec::new();
    if !document.title.is_empty() {
        let headline = document.headline.iter().map(|sentence| wrap(sentence, "", "  "));
        parts.push(wrap(&document.heading(), "", "") + &headline.collect::<String>());
    }
    parts.extend(document.tables.iter().map(drawn));
    if !document.remarks.is_empty() {
        let remarks = document.remarks.iter();
        parts.push(remarks.map(|r| wrap(&r.text, &format!("{}: ", r.label), "  ")).collect());
    }
    parts.join("\n")
}

/// One table with its notes, each line ended.
pub fn table(table: &Table) -> String {
    drawn(&table.printable())
}

fn drawn(table: &Table) -> String {
    let mut text = String::new();
    if !table.title.is_empty() {
        text += &wrap(&table.title, "", "");
    }
    let widths = widths(table);
    let headings: Vec<&str> = table.columns.iter().map(|c| c.heading.as_str()).collect();
    text += &row(table, &widths, &headings);
    let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
    text += &row(table, &widths, &rules);
    for cells in &table.rows {
        text += &row(table, &widths, cells);
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
    for note in &table.notes {
        text += &wrap(note, "", "  ");
    }
    text
}

/// The width of each column: of its longest cell, less where the line would be too long.
fn widths(table: &Table) -> Vec<usize> {
    let mut widths: Vec<usize> = (0..table.columns.len())
        .map(|i| {
            let cells = table.rows.iter().flat_map(|row| row[i].lines()).map(width);
            cells.chain([width(&table.columns[i].heading)]).max().unwrap_or(0)
        })
        .collect();
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    // No column is wider than a line, so that few steps suffice.
    widths.iter_mut().for_each(|w| *w = (*w).min(COLUMNS));
    while widths.iter().sum::<usize>() + gaps > COLUMNS {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// One row of the table, on as many lines as its most wrapped cell needs.
fn row(table: &Table, widths: &[usize], cells: &[impl AsRef<str>]) -> String {
    let wrapped: Vec<Vec<String>> =
        cells.iter().zip(widths).map(|(cell, w)| folded(cell.as_ref(), *w)).collect();
    let lines = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for line in 0..lines {
        let padded = table.columns.iter().zip(&wrapped).zip(widths).map(|((column, cell), w)| {
            let part = cell.get(line).map_or("", String::as_str);
            match column.align {
                Align::Left => format!("{part:<w$}"),
                Align::Right => format!("{part:>w$}"),
            }
        });
        text += padded.collect::<Vec<_>>().join(GAP).trim_end();
        text.push('\n');
    }
    text
}

/// Text broken at blanks into lines of at most [`COLUMNS`], the first after `label`, the others
/// indented.
fn wrap(text: &str, label: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = label.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && width(&line) + 1 + width(word) > COLUMNS {
            lines += &line;
            lines.push('\n');
            line = indent.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    lines + &line + "\n"
}

/// The lines of a cell, each at most `limit` characters long.
fn folded(cell: &str, limit: usize) -> Vec<String> {
    cell.lines().flat_map(|line| fold(line, limit)).collect()
}

/// A line broken at blanks, and within a word that is longer than the limit.
fn fold(line: &str, limit: usize) -> Vec<String> {
    if width(line) <= limit {
        return vec![line.to_owned()];
    }
    let mut lines: Vec<String> = vec![String::new()];
    for word in line.split_whitespace() {
        let characters: Vec<char> = word.chars().collect();
        let mut rest = characters.as_slice();
        loop {
            let last = lines.len() - 1;
            let used = width(&lines[last]);
            let gap = usize::from(used > 0);
            if used + gap + rest.len() <= limit {
                if gap == 1 {
                    lines[last].push(' ');
                }
                lines[last].extend(rest);
                break;
            }
            if used == 0 {
                let (line, more) = rest.split_at(limit);
                lines[last].extend(line);
                rest = more;
            }
            lines.push(String::new());
        }
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::super::table::Column;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_line_up_whatever_the_characters() {
        let t = Table {
            columns: vec![Column::left("what"), Column::right("change")],
            rows: vec![
                vec!["latency µs".into(), "−1.0 %".into()],
                vec!["rate".into(), "±12.0 %".into()],
            ],
            ..Table::default()
        };
        assert_eq!(
            table(&t),
            "what         change\n----------  -------\nlatency µs   −1.0 %\nrate        ±12.0 %\n"
        );
    }

    #[test]
    fn a_long_word_is_cut_and_nothing_is_lost() {
        assert_eq!(fold("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(fold("ab cd", 5), ["ab cd"]);
        assert_eq!(folded("ab\ncd ef", 4), ["ab", "cd", "ef"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_no_word_is_lost(
            rows in prop::collection::vec(prop::collection::vec("[a-zµ \n]{0,60}", 4), 1..4)
        ) {
            let t = Table {
                columns: (0..4).map(|i| Column::left(format!("c{i}"))).collect(),
                rows: rows.clone(),
                ..Table::default()
            };
            let text = table(&t);
            for line in text.lines() {
                prop_assert!(width(line) <= COLUMNS, "{}", line);
            }
            let letters = |s: &str| s.chars().filter(|c| *c == 'µ').count();
            let wanted: usize = rows.iter().flatten().map(|c| letters(c)).sum();
            prop_assert_eq!(letters(&text), wanted);
        }
    }
}
