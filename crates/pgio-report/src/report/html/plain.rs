//! Pages without charts: any document of the table model, and the index of an experiment with several
//! workloads.

use maud::{Markup, html};

use super::super::lead::lead;
use super::super::outcomes::headline;
use super::super::table::Document;
use super::page::Section;
use super::{checks, shell, table};
use crate::analysis::Analysis;

/// Renders a document's tables and remarks, such as the comparison of two experiments.
pub fn document_page(document: &Document) -> String {
    let tables = html! { @for t in &document.tables { (table::render(t, "Comparison")) } };
    let mut sections = vec![Section { id: "numbers", title: "Numbers", body: tables }];
    if !document.remarks.is_empty() {
        let body = checks::list(&document.remarks);
        sections.push(Section { id: "checks", title: "Remarks", body });
    }
    let (title, rest) = document.title.split_once(": ").unwrap_or((&document.title, ""));
    let header = html! { p.kind { "pgio" } h1 { (title) } @if !rest.is_empty() { p { (rest) } } };
    page(title, header, &sections)
}

/// Renders the lead of each workload's page, with a link to that page.
pub fn index(title: &str, workloads: &[(String, &Analysis)]) -> String {
    let body = html! { @for (place, analysis) in workloads {
        h3 { a href=(place) { (analysis.experiment) } }
        @for sentence in headline(analysis) { p.doubt { strong { (table::prose(&sentence)) } } }
        @for sentence in lead(analysis) { p { (table::prose(&sentence)) } }
    } };
    let sections = [Section { id: "workloads", title: "Workloads", body }];
    page(title, html! { p.kind { "pgio experiment" } h1 { (title) } }, &sections)
}

fn page(title: &str, header: Markup, sections: &[Section]) -> String {
    let footer = html! { p { "Report by pgio " (env!("CARGO_PKG_VERSION")) "." } };
    let shell = shell::Shell { title, header, sections, footer, zooms: false };
    shell::page(&shell)
}
