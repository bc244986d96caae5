//! The content of pgio_data_load_table_sizes.out: the sizes of all tables, aligned as in psql.
//!
//! The original writes this file with psql, and existing scripts parse it; pgio does not need psql.

use crate::pg::words::Shown;
use postgres::Client;

use super::error::DatasetError;
use super::sql;

/// Lists every table that the role may see, largest first.
pub fn table_sizes(client: &mut Client) -> Result<String, DatasetError> {
    let rows = client
        .query(sql::TABLE_SIZES, &[])
        .map_err(|e| DatasetError::from_pg("read", "the sizes of tables", e))?;
    let cell = |row: &postgres::Row, at| -> Result<String, DatasetError> {
        Ok(row.try_get::<_, Option<Shown>>(at)?.map_or_else(String::new, String::from))
    };
    let rows: Result<Vec<Vec<String>>, _> =
        rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect();
    Ok(aligned(&["table_name", "table_size", "indexes_size", "total_size"], &rows?))
}

/// Aligns text columns like psql: headings centered, cells left-aligned, the last column unpadded.
fn aligned(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            rows.iter().map(|row| width(&row[at])).fold(width(heading), usize::max)
        })
        .collect();

    let mut out = String::new();
    let heading = headings.iter().zip(&widths).map(|(text, width)| format!(" {text:^width$} "));
    push_line(&mut out, &heading.collect::<Vec<_>>().join("|"));
    let rule = widths.iter().map(|width| "-".repeat(width + 2));
    push_line(&mut out, &rule.collect::<Vec<_>>().join("+"));
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(text, width)| format!(" {text:width$} ")).collect();
        let line = cells.join("|");
        let padding = widths.last().zip(row.last()).map_or(0, |(w, text)| w - width(text) + 1);
        push_line(&mut out, &line[..line.len() - padding]);
    }
    let noun = if rows.len() == 1 { "row" } else { "rows" };
    push_line(&mut out, &format!("({} {noun})", rows.len()));
    out.push('\n');
    out
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_row_is_counted_in_singular() {
        let row = vec!["\"public\".\"pgio1\"".to_owned(), "200 MB".to_owned()];
        assert_eq!(
            aligned(&["table_name", "size"], &[row]),
            "    table_name    |  size  \n------------------+--------\n \"public\".\"pgio1\" | 200 MB\n(1 row)\n\n"
        );
    }
}
