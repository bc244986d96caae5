//! The time line: lines over an axis, with marks at places of theirs and at moments of the axis.
//!
//! Lines are in a stretched inner picture with unstretched strokes, so that text and marks have the same size on a phone
//! and on a desktop. A chart that zooms has its numbers beside it, as JSON, from which `page.js` draws the zoomed chart; a
//! page without JavaScript ignores them. This file does not depend on the data.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::svg::{Axis, LineStyle, percent, picture, px};

/// Units across the stretched picture.
const ACROSS: f64 = 1000.0;

/// Places of a line; it is broken where a value is missing.
pub type Points = Vec<(f64, Option<f64>)>;

#[derive(Debug, Default)]
pub struct TimeLine {
    /// Unique on the page.
    pub id: String,
    /// Above the chart; may be empty.
    pub caption: String,
    pub title: String,
    /// A description of the chart for screen readers.
    pub description: String,
    pub height: f64,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    pub dots: Vec<Dot>,
    pub moments: Vec<Moment>,
    /// Only a chart that zooms has it.
    pub zoom: Option<Zoom>,
}

#[derive(Debug)]
pub struct Line {
    pub label: String,
    pub look: LineStyle,
    pub stroke: Stroke,
    pub points: Points,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    Normal,
    Thin,
    /// Gray and dotted: the trial does not count.
    Excluded,
    /// A level, dashed; not in the zoomed chart.
    Level,
}

/// A measured value, with bounds across and down.
#[derive(Debug, Default)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    pub across: Option<(f64, f64)>,
    pub down: Option<(f64, f64)>,
    pub look: LineStyle,
    /// Shown to the pointer that rests on it.
    pub tip: String,
    pub ring: Ring,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ring {
    #[default]
    None,
    Knee,
    /// A cross, over a value that does not count.
    Crossed,
}

/// A place of the axis.
#[derive(Debug)]
pub struct Moment {
    pub at: f64,
    pub what: String,
    pub tip: String,
    pub shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Triangle,
    Diamond,
    /// A triangle without a line, not in the zoomed chart.
    Flag,
    /// A line alone.
    Line,
}

#[derive(Debug)]
pub struct Zoom {
    /// The horizontal axis: `percentile` (as -log10 of the share above it), `seconds` or `run`.
    pub x: &'static str,
    pub unit: String,
    pub logarithmic: bool,
}

impl TimeLine {
    pub fn draw(&self) -> Markup {
        let h = self.height;
        let body = html! {
            g.grid {
                @for (value, label) in &self.y.ticks {
                    @let y = px(self.y_at(*value));
                    line x1="0" x2="100%" y1=(y) y2=(y) {}
                    text.tick x="-8" y=(y) dy="0.35em" text-anchor="end" { (label) }
                }
                @for (value, label) in &self.x.ticks {
                    @let x = percent(self.x_at(*value));
                    line x1=(x) x2=(x) y1="0" y2=(px(h)) {}
                    text.tick x=(x) y=(px(h + 18.0)) text-anchor="middle" { (label) }
                }
            }
            svg.lines width="100%" height=(px(h)) preserveAspectRatio="none" viewBox={ "0 0 " (ACROSS) " " (px(h)) } {
                @for line in &self.lines { (self.line(line)) }
            }
            @for moment in &self.moments { (self.moment(moment)) }
            @for dot in &self.dots { (self.dot(dot)) }
        };
        html! {
            figure.chart.zoomable[self.zoom.is_some()] {
                @if !self.caption.is_empty() { figcaption { (self.caption) } }
                div.plot {
                    p.caption aria-hidden="true" { (self.y.caption) }
                    (picture(&self.id, &self.title, &self.description, &px(h + 24.0), &body))
                    p.caption.below aria-hidden="true" { (self.x.caption) }
                }
                @if let Some(zoom) = &self.zoom { (self.data(zoom)) }
            }
        }
    }

    fn x_at(&self, value: f64) -> f64 {
        self.x.scale.at(value)
    }

    /// Pixels from the top.
    fn y_at(&self, value: f64) -> f64 {
        self.height * (1.0 - self.y.scale.at(value))
    }

    fn line(&self, line: &Line) -> Markup {
        let mut d = String::new();
        let mut pen_up = true;
        for (x, y) in &line.points {
            let Some(y) = y.filter(|y| y.is_finite()) else {
                pen_up = true;
                continue;
            };
            let command = if pen_up { 'M' } else { 'L' };
            // A value below the axis, such as a standby that is ahead of the last reading, stays in the frame.
            let y = y.max(self.y.scale.bounds().0);
            // Writing to a string cannot fail.
            let _ = write!(d, "{command}{:.1} {:.1}", self.x_at(*x) * ACROSS, self.y_at(y));
            pen_up = false;
        }
        let class = match line.stroke {
            Stroke::Normal => line.look.class(),
            Stroke::Thin => format!("{} thin", line.look.class()),
            Stroke::Excluded => "void".to_owned(),
            Stroke::Level => "margin".to_owned(),
        };
        html! { @if !d.is_empty() { path.line.(class) d=(d) {} } }
    }

    fn moment(&self, moment: &Moment) -> Markup {
        let x = self.x_at(moment.at);
        let (at, h) = (percent(x), px(self.height));
        let path = match moment.shape {
            Shape::Triangle | Shape::Flag => "M-5 -9H5L0 0Z",
            Shape::Diamond => "M0 -10L5 -5L0 0L-5 -5Z",
            Shape::Line => "",
        };
        html! { @if (0.0..=1.0).contains(&x) {
            @if moment.shape == Shape::Line {
                line.zero x1=(at) x2=(at) y1="0" y2=(h) stroke="currentColor" { title { (moment.tip) } }
            } @else {
                @if moment.shape != Shape::Flag { line.moment x1=(at) x2=(at) y1="0" y2=(h) {} }
                svg.moment x=(at) y="0" { path d=(path) { title { (moment.tip) } } }
            }
        } }
    }

    fn dot(&self, dot: &Dot) -> Markup {
        let (x, y) = (self.x_at(dot.x), self.y_at(dot.y));
        let (across, down) = (percent(x), px(y));
        let inside = |v: f64| v.clamp(0.0, self.height);
        html! {
            @if dot.across.is_some() || dot.down.is_some() { g class={ "interval c" (dot.look.color) " open" } {
                @if let Some((low, high)) = dot.across {
                    line x1=(percent(self.x_at(low).max(0.0))) x2=(percent(self.x_at(high))) y1=(down) y2=(down) {}
                }
                @if let Some((low, high)) = dot.down {
                    line x1=(across) x2=(across) y1=(px(inside(self.y_at(low)))) y2=(px(inside(self.y_at(high)))) {}
                }
            } }
            (dot.look.mark(x, y, &dot.tip))
            @match dot.ring {
                Ring::None => {}
                Ring::Knee => svg.knee x=(across) y=(down) { circle r="9" { title { "knee: " (dot.tip) } } }
                Ring::Crossed => svg.crossed x=(across) y=(down) {
                    path d="M-8 -8L8 8M-8 8L8 -8" { title { (dot.tip) } }
                }
            }
        }
    }

    /// The numbers, for the script.
    fn data(&self, zoom: &Zoom) -> Markup {
        let line = |line: &Line| -> Value {
            let x: Vec<f64> = line.points.iter().map(|(x, _)| rounded(*x)).collect();
            let known = |y: &Option<f64>| y.filter(|y| y.is_finite()).map(rounded);
            let y: Vec<Option<f64>> = line.points.iter().map(|(_, y)| known(y)).collect();
            let (color, dash) = (line.look.color, line.look.dash);
            let excluded = line.stroke == Stroke::Excluded;
            json!({ "label": line.label, "color": color, "dash": dash, "excluded": excluded, "x": x, "y": y })
        };
        let lines = self.lines.iter().filter(|line| line.stroke != Stroke::Level).map(line);
        let marks = self.moments.iter().filter(|moment| moment.shape != Shape::Flag);
        let marks = marks.map(|moment| json!({ "at": moment.at, "what": moment.what }));
        let data = json!({
            "x": zoom.x,
            "unit": zoom.unit,
            "logarithmic": zoom.logarithmic,
            "lines": lines.collect::<Vec<_>>(),
            "marks": marks.collect::<Vec<_>>(),
        });
        // The only way out of a script element is its end tag.
        let text = printable::json(&data.to_string()).replace('<', "\\u003c");
        html! { script.data type="application/json" { (PreEscaped(text)) } }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::svg::Scale;

    fn chart(points: &[(f64, Option<f64>)], moments: Vec<Moment>) -> TimeLine {
        let axis = |scale| Axis { scale, ..Axis::default() };
        let (label, look, points) = (String::new(), LineStyle::default(), points.to_vec());
        TimeLine {
            height: 100.0,
            x: axis(Scale::linear(0.0, 3.0)),
            y: axis(Scale::linear(0.0, 10.0)),
            lines: vec![Line { label, look, stroke: Stroke::Normal, points }],
            moments,
            zoom: Some(Zoom { x: "seconds", unit: "s".to_owned(), logarithmic: false }),
            ..TimeLine::default()
        }
    }

    #[test]
    fn a_missing_value_breaks_the_line() {
        let drawn = |points: &[(f64, Option<f64>)]| {
            let chart = chart(points, Vec::new());
            chart.line(&chart.lines[0]).into_string()
        };
        let points = [(0.0, Some(0.0)), (1.0, None), (2.0, Some(10.0)), (3.0, Some(5.0))];
        let broken = drawn(&points);
        assert!(broken.contains("d=\"M0.0 100.0M666.7 0.0L1000.0 50.0\""), "{broken}");
        assert!(drawn(&[(0.0, None)]).is_empty());
        let below = drawn(&[(0.0, Some(-9.0))]);
        assert!(below.contains("M0.0 100.0"), "{below}");
    }

    #[test]
    fn no_text_ends_the_script() {
        let what = "</script><b>".to_owned();
        let moment = Moment { at: 1.0, what, tip: String::new(), shape: Shape::Diamond };
        let chart = chart(&[], vec![moment]);
        let written = chart.data(chart.zoom.as_ref().unwrap()).into_string();
        assert_eq!(written.matches('<').count(), 2, "{written}");
    }

    #[test]
    fn zoom_data_are_rounded_to_five_digits() {
        assert_eq!(rounded(1_234.567_8), 1_234.6);
        assert_eq!(rounded(0.000_123_456_78), 0.000_123_46);
        assert_eq!((rounded(0.0), rounded(-2.0)), (0.0, -2.0));
    }
}
