//! The numbers of a line chart, from which `page.js` draws the zoomed chart.
//!
//! They are embedded as JSON beside the chart. A page without JavaScript shows the chart and ignores
//! them.

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::look::LineStyle;

#[derive(Debug, Serialize)]
pub(super) struct Zoom {
    /// The horizontal axis: `percentile` (as -log10 of the share above it) or `seconds`.
    pub(super) x: &'static str,
    pub(super) unit: String,
    pub(super) logarithmic: bool,
    pub(super) lines: Vec<Line>,
    pub(super) marks: Vec<Mark>,
}

#[derive(Debug, Serialize)]
pub(super) struct Line {
    label: String,
    color: usize,
    dash: usize,
    /// Whether it is of a trial that does not count: gray and dotted in place of `color` and `dash`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    excluded: bool,
    x: Vec<f64>,
    y: Vec<Option<f64>>,
}

/// An event, drawn as a vertical line.
#[derive(Debug, Serialize)]
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) what: String,
}

impl Line {
    pub(super) fn new(label: String, look: LineStyle, points: &[(f64, Option<f64>)]) -> Line {
        let x = points.iter().map(|(x, _)| rounded(*x)).collect();
        let y = points.iter().map(|(_, y)| y.filter(|y| y.is_finite()).map(rounded)).collect();
        Line { label, color: look.color, dash: look.dash, excluded: false, x, y }
    }

    pub(super) fn excluded(self) -> Line {
        Line { excluded: true, ..self }
    }
}

/// Five digits: more would only make the page longer.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = 10f64.powf(4.0 - value.abs().log10().floor());
    (value * digits).round() / digits
}

pub(super) fn data(zoom: &Zoom) -> Markup {
    let text = serde_json::to_string(zoom).expect("plain data always serializes");
    // The only way out of a script element is its end tag.
    let text = printable::json(&text).replace('<', "\\u003c");
    html! { script.data type="application/json" { (PreEscaped(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_script() {
        let mark = Mark { at: 1.0, what: "</script><b>".to_owned() };
        let (x, unit) = ("seconds", "s".to_owned());
        let zoom = Zoom { x, unit, logarithmic: false, lines: Vec::new(), marks: vec![mark] };
        let written = data(&zoom).into_string();
        assert_eq!(written.matches('<').count(), 2, "{written}");
    }

    #[test]
    fn zoom_data_are_rounded_to_five_digits() {
        assert_eq!(rounded(1_234.567_8), 1_234.6);
        assert_eq!(rounded(0.000_123_456_78), 0.000_123_46);
        assert_eq!((rounded(0.0), rounded(-2.0)), (0.0, -2.0));
    }
}
