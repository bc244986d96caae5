//! A table of the report's model, in a box of its own that scrolls where the page is narrow.
//!
//! The first column names its row. The box can be reached with the keyboard, since what can be
//! scrolled must be.

use maud::{Markup, html};

use super::super::table::{Align, Column, Table};

/// With its title as the caption, else `name` for those who do not see it.
pub(super) fn render(table: &Table, name: &str) -> Markup {
    if table.columns.is_empty() {
        return notes(table);
    }
    let called = if table.title.is_empty() { name } else { &table.title };
    html! {
        div.scroll role="region" aria-label=(called) tabindex="0" {
            table {
                @if !table.title.is_empty() { caption { (table.title) } }
                thead { tr { @for column in &table.columns {
                    th scope="col" class=[class(column)] { (column.heading) }
                } } }
                tbody { @for row in &table.rows { tr {
                    @for (at, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
                        @if at == 0 {
                            th scope="row" class=[class(column)] { (lines(cell)) }
                        } @else {
                            td class=[class(column)] { (lines(cell)) }
                        }
                    }
                } } }
            }
        }
        (notes(table))
    }
}

pub(super) fn notes(table: &Table) -> Markup {
    html! { @for note in &table.notes { p.note { (note) } } }
}

fn class(column: &Column) -> Option<&'static str> {
    match column.align {
        Align::Left => None,
        Align::Right => Some("r"),
    }
}

fn lines(cell: &str) -> Markup {
    html! {
        @for (at, line) in cell.lines().enumerate() {
            @if at > 0 { br; }
            (line)
        }
    }
}
