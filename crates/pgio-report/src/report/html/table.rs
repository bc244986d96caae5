//! A table of the report's model, in a box of its own that scrolls where the page is narrow.
//!
//! The first column names its row. Short cells stay on one line, long ones wrap. The box can be
//! reached with the keyboard, since what can be scrolled must be.

use maud::{Markup, html};

use super::super::table::{Align, Column, Table};

/// Characters from which a cell of words may wrap.
const LONG: usize = 40;
/// Rows of a table that is printed on one page.
const SHORT: usize = 8;
const LONG_HEADING: usize = 24;

/// With its title as the caption, else `name` for those who do not see it.
pub fn render(table: &Table, name: &str) -> Markup {
    draw(table, name, false)
}

/// The same; on a phone each row is a card, a line for each cell, and nothing scrolls sideways.
pub fn render_cards(table: &Table, name: &str) -> Markup {
    draw(table, name, true)
}

fn draw(table: &Table, name: &str, cards: bool) -> Markup {
    if table.columns.is_empty() {
        return notes(table);
    }
    let called = if table.title.is_empty() { name } else { &table.title };
    html! {
        div.scroll.short[table.rows.len() <= SHORT].pairs[is_list(table)].cards[cards] role="region" aria-label=(called) tabindex="0" {
            table {
                @if !table.title.is_empty() { caption { span { (table.title) } } }
                thead { tr { @for column in &table.columns {
                    th scope="col" class=[Some(heading_class(column)).filter(|c| !c.is_empty())] { (column.heading) }
                } } }
                tbody { @for row in &table.rows { tr {
                    @for (at, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
                        @if at == 0 {
                            th scope="row" class=[cell_class(column, cell)] { (lines(cell)) }
                        } @else {
                            @if cards {
                                td class=[cell_class(column, cell)] data-heading=(column.heading) {
                                    span { (lines(cell)) }
                                }
                            } @else {
                                td class=[cell_class(column, cell)] { (lines(cell)) }
                            }
                        }
                    }
                } } }
            }
        }
        (notes(table))
    }
}

/// Names and values, of which two columns fit on a printed page.
fn is_list(table: &Table) -> bool {
    table.columns.len() == 2 && table.rows.len() > SHORT
}

pub(super) fn notes(table: &Table) -> Markup {
    html! { @for note in &table.notes { p.note { (prose(note)) } } }
}

/// A long heading may wrap over short cells.
fn heading_class(column: &Column) -> String {
    let wraps = column.heading.chars().count() >= LONG_HEADING;
    [class(column), wraps.then_some("wraps")].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn class(column: &Column) -> Option<&'static str> {
    match column.align {
        Align::Left => None,
        Align::Right => Some("r"),
    }
}

fn cell_class(column: &Column, cell: &str) -> Option<&'static str> {
    let longest = cell.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    class(column).or((longest >= LONG).then_some("long"))
}

fn lines(cell: &str) -> Markup {
    html! {
        @for (at, line) in cell.lines().enumerate() {
            @if at > 0 { br; }
            (prose(line))
        }
    }
}

/// Text in which backquotes stand around names; a number keeps its unit beside it.
pub fn prose(text: &str) -> Markup {
    let text = &unbroken(text);
    // An odd number of backquotes means something else by them.
    if !text.matches('`').count().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn unbroken(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for word in text.split(' ') {
        let unit = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let is_unit = matches!(unit, "%" | "µs" | "ms" | "s" | "±" | "blocks" | "trials");
        if is_unit && joined.ends_with(|c: char| c.is_ascii_digit()) {
            joined.push('\u{a0}');
        } else if !joined.is_empty() {
            joined.push(' ');
        }
        joined += word;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backquotes_are_names_and_text_stays_text() {
        let drawn = |text| prose(text).into_string();
        assert_eq!(drawn("`on` <b>"), "<code>on</code> &lt;b&gt;");
        assert_eq!(drawn("a ` b"), "a ` b");
        assert_eq!(drawn("930 µs to 6.8 ms)."), "930\u{a0}µs to 6.8\u{a0}ms).");
        assert_eq!(drawn("a  b ms"), "a  b ms");
    }

    #[test]
    fn every_cell_has_its_heading() {
        let table = Table {
            title: "T".to_owned(),
            columns: vec![Column::left("a"), Column::right("b")],
            rows: vec![vec!["x".to_owned(), "1\n2".to_owned()]],
            ..Table::default()
        };
        let drawn = render(&table, "").into_string();
        for part in [
            "<caption><span>T</span></caption>",
            "<th scope=\"col\" class=\"r\">b</th>",
            "<th scope=\"row\">x</th>",
            "<td class=\"r\">1<br>2</td>",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
    }
}
