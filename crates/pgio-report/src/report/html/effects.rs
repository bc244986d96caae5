//! The effects on the primary metric as a forest plot; then that as the table of the text report, and the
//! other tables of that report.

use std::collections::BTreeMap;

use maud::html;
use pgio_results::telemetry::Track;
use pgio_results::units::human;

use super::super::format::{self, metric_name};
use super::super::{comparison, explain, servers};
use super::page::{Page, Section};
use super::timeline::Points;
use super::{intervals, table};

pub(super) fn section(page: &Page<'_>) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    let body = html! {
        p { "Primary metric: " strong { (metric) } ", each condition against "
            strong { (page.analysis.baseline) } ". Everything else is indicative." }
        (intervals::conditions(page))
    };
    Section { id: "effects", title: "Effects", body }
}

/// The effects as tables.
pub(super) fn numbers(page: &Page<'_>) -> Section {
    let body = html! {
        @for section in page.sections {
            @for t in &section.effects { (table::render_cards(t, section.title)) }
        }
        (table::render_cards(&comparison::primary(page.report()), "Conditions and effects"))
        @if let Some(t) = servers::table(page.analysis) { (table::render_cards(&t, "Each server")) }
    };
    Section { id: "numbers", title: "Effects in numbers", body }
}

pub(super) fn values(page: &Page<'_>) -> Option<Section> {
    let tables = comparison::secondary(page.analysis);
    let body = html! { @for t in &tables { (table::render(t, "Secondary metrics")) } };
    (!tables.is_empty()).then_some(Section { id: "values", title: "Everything measured", body })
}

/// Whether reads reached the device: the comparison of iostat with RIOPS.
pub(super) fn reads(page: &Page<'_>) -> Option<Section> {
    let reads = explain::reads(page.analysis)?;
    let body = table::render(&reads, "Reads");
    Some(Section { id: "reads", title: "Reads", body })
}

/// The standbys and their disks.
pub(super) fn standbys(page: &Page<'_>) -> Option<Section> {
    let standbys = explain::standbys(page.analysis)?;
    let body = table::render(&standbys, "Standbys");
    Some(Section { id: "standbys", title: "Standbys", body })
}

/// The writes of a replicated device on both sides.
pub(super) fn replicas(page: &Page<'_>) -> Option<Section> {
    let replicas = explain::replicas(page.analysis)?;
    let body = table::render(&replicas, explain::REPLICAS_TITLE);
    Some(Section { id: "replicas", title: explain::REPLICAS_TITLE, body })
}

// The sampled quantities that have a chart, each with a line for each condition. Only devices that hold the server's
// directories are shown, if these are known. A quantity that is always zero is omitted; a quantity of a standby only
// if it is zero on all standbys, so that these can be compared. Samples of several trials are averaged in at most
// `BINS` equal parts of the window; samples of woven windows are left out.

const BINS: usize = 150;
/// Maximum number of charts, without charts of the standbys; the series files have the rest.
const MAX_QUANTITIES: usize = 16;
/// In the order in which they are shown.
const DEVICE_TRACKS: [&str; 4] =
    ["reads_per_second", "writes_per_second", "flushes_per_second", "utilisation"];

pub(super) struct Quantity<'a> {
    pub(super) title: String,
    pub(super) unit: &'a str,
    pub(super) lines: Vec<(&'a str, Points)>,
}

/// Source, subject and name of a track.
type Key<'a> = (&'a str, &'a str, &'a str);

pub(super) fn all<'a>(page: &Page<'a>) -> Vec<Quantity<'a>> {
    let mut keys: BTreeMap<(usize, Key<'a>), &'a str> = BTreeMap::new();
    for track in tracks(page).filter(|t| is_wanted(page, t)) {
        let key = (track.source.as_str(), track.subject.as_str(), track.name.as_str());
        keys.insert((rank(track), key), &track.unit);
    }
    let quantity = |((_, key), unit)| Quantity {
        title: title(page, key),
        unit,
        lines: page
            .conditions()
            .map(|c| (c, mean(page, c, key)))
            .filter(|(_, p)| !p.is_empty())
            .collect(),
    };
    let (standbys, others): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|((_, (source, subject, _)), _)| is_standby(source, subject));
    let drawn = |keys: Vec<_>| keys.into_iter().map(quantity).filter(|q| !q.lines.is_empty());
    // No limit here: it would silently omit the last standby.
    drawn(others).take(MAX_QUANTITIES).chain(drawn(standbys)).collect()
}

/// The server's tracks with a subject belong to a standby.
fn is_standby(source: &str, subject: &str) -> bool {
    source == "server" && !subject.is_empty()
}

fn tracks<'a>(page: &Page<'a>) -> impl Iterator<Item = &'a Track> {
    let lines = 1..=page.series.len();
    lines.filter_map(move |line| page.samples(line)).flat_map(|s| &s.tracks)
}

fn is_wanted(page: &Page<'_>, track: &Track) -> bool {
    let moves = |t: &Track| t.values.iter().flatten().any(|v| *v != 0.0);
    if is_standby(&track.source, &track.subject) {
        let same = |t: &&Track| is_standby(&t.source, &t.subject) && t.name == track.name;
        return tracks(page).filter(same).any(moves);
    }
    let moved = moves(track);
    let is_device = track.source != "server" && !track.subject.is_empty();
    moved && (!is_device || is_under_the_server(page, &track.source, &track.subject))
}

fn is_under_the_server(page: &Page<'_>, host: &str, device: &str) -> bool {
    let mut places = page
        .stored
        .trials
        .iter()
        .filter_map(|t| t.telemetry.as_ref())
        .flat_map(|t| &t.storage)
        .peekable();
    places.peek().is_none()
        || places.any(|s| s.host == host && s.devices.iter().any(|d| d.name == device))
}

/// Devices first, then the server, then the hosts as a whole.
fn rank(track: &Track) -> usize {
    let known = DEVICE_TRACKS.iter().position(|name| *name == track.name);
    match (track.source.as_str(), track.subject.as_str()) {
        ("server", _) => 100,
        (_, "") => 200,
        _ => known.unwrap_or(DEVICE_TRACKS.len()),
    }
}

/// `vda (data, wal): reads/s`
fn title(page: &Page<'_>, (source, subject, name): Key<'_>) -> String {
    let what = metric_name(name);
    let whose = match (source, subject) {
        ("server", "") => "server".to_owned(),
        ("server", application_name) => standby(application_name),
        ("local", "") => "host".to_owned(),
        (host, "") => host.to_owned(),
        ("local", device) => format!("{device}{}", roles(page, source, device)),
        (host, device) => format!("{device} on {host}{}", roles(page, source, device)),
    };
    format!("{whose}: {what}")
}

/// `standby s1`, unless its name says what it is.
fn standby(application_name: &str) -> String {
    if application_name.to_lowercase().contains("standby") {
        application_name.to_owned()
    } else {
        format!("standby {application_name}")
    }
}

fn roles(page: &Page<'_>, host: &str, device: &str) -> String {
    let telemetry = page.stored.trials.iter().find_map(|t| t.telemetry.as_ref());
    let storage = telemetry.iter().flat_map(|t| &t.storage);
    let on_it = storage.filter(|s| s.host == host && s.devices.iter().any(|d| d.name == device));
    let roles: Vec<&str> = on_it.map(|s| s.role.as_str()).collect();
    if roles.is_empty() { String::new() } else { format!(" ({})", roles.join(", ")) }
}

/// The mean over a condition's trials that count, by parts of the window.
fn mean(page: &Page<'_>, condition: &str, (source, subject, name): Key<'_>) -> Points {
    let series = page.counted(condition).filter_map(|(line, _)| page.samples(line));
    let mut sums: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
    let mut width = 0.0;
    for s in series {
        let Some(track) = s.track(source, subject, name) else { continue };
        let inside = track.at.iter().filter(|at| **at > 0.0).count();
        if width == 0.0 {
            width = s.window_seconds / inside.clamp(1, BINS) as f64;
        }
        for (at, value) in track.at.iter().zip(&track.values) {
            if let (true, Some(value)) = (*at > 0.0 && width > 0.0, value) {
                // A sample that is a little late belongs to the part that it ends.
                let (sum, n) = sums.entry((at / width - 0.5).max(0.0) as usize).or_default();
                *sum += value;
                *n += 1;
            }
        }
    }
    let at = |bin: usize| (bin as f64 + 0.5) * width;
    sums.into_iter().map(|(bin, (sum, n))| (at(bin), Some(sum / f64::from(n)))).collect()
}

pub(super) fn shown(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{:.0} %", value * 100.0),
        _ => format::quantity(value, unit),
    }
}

/// A tick's label: short, because it is beside the chart.
pub(super) fn tick(value: f64, unit: &str) -> String {
    match unit {
        _ if value == 0.0 => "0".to_owned(),
        "share" => format!("{:.0} %", value * 100.0),
        "bytes/s" | "bytes" => human::bytes(value.round() as u64),
        "s" => format::seconds(value),
        _ if value >= 1e6 => format!("{} M", format::number(value / 1e6)),
        _ => format::number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_named_once() {
        let names = ["s1", "standby", "Standby2"].map(standby);
        assert_eq!(names, ["standby s1", "standby", "Standby2"]);
    }
}
