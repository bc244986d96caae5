//! report.html in a real browser: at a desk and on a phone, in both themes, with and without
//! JavaScript. Without Chromium the tests print a notice and pass.
//!
//! With PGIO_PAGE_PICTURES=DIR they leave pictures of every view there, to be looked at.

pub(crate) mod browser;
mod stored;
mod swept;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use browser::Browser;
use pgio_tests::fixture::{is_installed, pgio_exe};

const VIEWS: [(u32, &str); 5] =
    [(1280, "light"), (1280, "dark"), (800, "light"), (390, "light"), (390, "dark")];
/// Each width and each theme.
const FEWER_VIEWS: [(u32, &str); 3] = [(1280, "dark"), (800, "light"), (390, "light")];
/// The script that measures what the tests assert about the page.
const MEASURE: &str = include_str!("page/measure.js");

struct Page {
    dir: TempDir,
}

impl Page {
    /// The rich experiment, rendered by the program.
    fn new() -> Page {
        Page::of(stored::write)
    }

    fn of(write: fn(&Path)) -> Page {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("out"));
        let page = Page { dir };
        page.report(&["--format", "html", "--out", "report.html"]);
        page
    }

    fn report(&self, more: &[&str]) -> String {
        let mut command = Command::new(pgio_exe());
        command.args(["report", "out"]).args(more).current_dir(self.dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("report.html")
    }
}

fn browser() -> Option<Browser> {
    let found = browser::installed();
    if found.is_none() {
        pgio_tests::skipped("no Chromium here (Debian: apt-get install chromium)");
    }
    found.map(|program| Browser::start(&program))
}

fn measured(browser: &mut Browser, what: &str) -> Value {
    browser.evaluate(&format!("(() => {{ {MEASURE}\nreturn {what}; }})()"))
}

/// Nothing of this kind was found.
#[track_caller]
fn none(browser: &mut Browser, what: &str, view: (u32, &str)) {
    assert_eq!(measured(browser, what), json!([]), "{what} at {view:?}");
}

fn keep_picture(browser: &mut Browser, name: &str) {
    let Some(dir) = std::env::var_os("PGIO_PAGE_PICTURES") else { return };
    let picture = browser.picture();
    fs::write(Path::new(&dir).join(format!("{name}.png.base64")), picture).unwrap();
}

#[test]
fn every_format_goes_to_a_file_or_to_stdout() {
    let page = Page::new();
    let html = page.report(&["--format", "html"]);
    assert_eq!(html, fs::read_to_string(page.file()).unwrap());
    // Large enough to hold its charts, small enough to be sent round.
    assert!((200_000..2_000_000).contains(&html.len()), "{}", html.len());
    let markdown = page.report(&["--format", "markdown"]);
    assert!(markdown.starts_with("# drbd \\<b\\>\\&amp; latency"), "{markdown}");
    assert!(markdown.contains("| condition | commits/s |"), "{markdown}");
    let csv = page.report(&["--format", "csv"]);
    assert!(csv.starts_with("experiment,condition,"), "{csv}");
    assert!(csv.contains("\"on, standby's disk limited to 500 IOPS\""), "{csv}");
    page.report(&["--format", "csv", "--out", "numbers.csv"]);
    assert_eq!(fs::read_to_string(page.dir.path().join("numbers.csv")).unwrap(), csv);
    every_standby_has_its_charts(&html);
    results_without_samples_are_reported(&page, &html);
}

fn every_standby_has_its_charts(html: &str) {
    // A name that says what it is stands alone.
    for standby in ["pgio_standby", "standby second"] {
        for quantity in
            ["sent bytes behind", "replay bytes behind", "write lag", "flush lag", "replay lag"]
        {
            let caption = format!("<figcaption>{standby}: {quantity}</figcaption>");
            assert!(html.contains(&caption), "{caption}");
        }
    }
}

fn results_without_samples_are_reported(page: &Page, with: &str) {
    fs::remove_dir_all(page.dir.path().join("out/series")).unwrap();
    fs::remove_file(page.dir.path().join("out/experiment.toml")).unwrap();
    let without = page.report(&["--format", "html"]);
    let charts = |text: &str| text.matches("role=\"img\"").count();
    assert!(charts(&without) >= 10 && charts(&without) < charts(with));
}

#[test]
fn pages_of_two_experiments_and_of_sweeps_are_legible_too() {
    let Some(mut browser) = browser() else { return };
    a_sweep_is_drawn_whole(&mut browser);
    let page = Page::new();
    page.report(&["out", "--format", "html", "--out", "report.html"]);
    for view in FEWER_VIEWS {
        browser.open(&page.file(), view.0, view.1);
        keep_picture(&mut browser, &format!("two-{}-{}", view.0, view.1));
        for what in ["beyondTheEdge()", "illegible()"] {
            none(&mut browser, what, view);
        }
        assert_eq!(measured(&mut browser, "overflow()"), 0, "{view:?}");
    }
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn every_view_is_drawn_whole_and_legible_and_its_charts_zoom() {
    let Some(mut browser) = browser() else { return };
    let page = Page::new();
    for view in VIEWS {
        let (width, theme) = view;
        browser.open(&page.file(), width, theme);
        keep_picture(&mut browser, &format!("{width}-{theme}"));
        assert!(measured(&mut browser, "charts()").as_u64().unwrap() >= 15, "{view:?}");
        for what in ["undrawn()", "overlaps()", "beyondTheEdge()", "illegible()", "faint()"] {
            none(&mut browser, what, view);
        }
        for what in ["labelsOnIntervals()", "labelsCut()"] {
            none(&mut browser, what, view);
        }
        assert!(measured(&mut browser, "all('.cards').length").as_u64().unwrap() > 0);
        let answers = measured(&mut browser, "Math.round(box(all('.answers')[0]).top)");
        assert!(answers.as_u64().unwrap() < 600, "the answers begin at {answers} px at {view:?}");
        none(&mut browser, "sideways()", view);
        let overflow = measured(&mut browser, "overflow()");
        assert_eq!(overflow, 0, "the page is wider than its screen at {view:?}");
        charts_zoom_by_pointer_and_keyboard_and_come_back(&mut browser, view);
    }
    assert_eq!(browser.problems, [""; 0]);
}

fn a_sweep_is_drawn_whole(browser: &mut Browser) {
    let page = Page::of(swept::write);
    for view in FEWER_VIEWS {
        browser.open(&page.file(), view.0, view.1);
        keep_picture(browser, &format!("sweep-{}-{}", view.0, view.1));
        let drawn = "document.querySelectorAll('svg[id^=\"sweep-\"]').length";
        assert_eq!(measured(browser, drawn), 6, "two charts for each axis at {view:?}");
        let knees = "document.querySelectorAll('svg.knee circle').length";
        assert!(measured(browser, knees).as_u64().unwrap() >= 8, "{view:?}");
        for what in ["undrawn()", "overlaps()", "beyondTheEdge()", "illegible()", "faint()"] {
            none(browser, what, view);
        }
        assert_eq!(measured(browser, "overflow()"), 0, "{view:?}");
    }
}

#[test]
fn nothing_is_missing_by_keyboard_in_print_and_without_javascript() {
    let Some(mut browser) = browser() else { return };
    let page = Page::new();
    the_keyboard_reaches_every_chart_and_control(&mut browser, &page);
    if is_installed("pdftotext") {
        in_print_a_heading_stays_with_its_content(&mut browser, &page);
    }
    without_javascript_and_in_print_nothing_is_missing(&mut browser, &page);
}

fn the_keyboard_reaches_every_chart_and_control(browser: &mut Browser, page: &Page) {
    browser.open(&page.file(), 1280, "light");
    let wanted = measured(browser, "focusable()").as_array().unwrap().clone();
    assert!(wanted.len() > 30);
    let mut reached = Vec::new();
    for _ in 0..wanted.len() + 5 {
        browser.key("Tab");
        let at = measured(browser, "focused()");
        if at.is_null() {
            break;
        }
        assert_eq!(at["visible"], true, "no sign of the focus on {at}");
        reached.push(at["name"].clone());
    }
    for name in &wanted {
        assert!(reached.contains(name), "{name} is not reached");
    }
}

fn charts_zoom_by_pointer_and_keyboard_and_come_back(browser: &mut Browser, view: (u32, &str)) {
    let charts = measured(browser, "zoomables()").as_u64().unwrap();
    assert!(charts >= 10);
    for chart in 0..charts {
        let opened = measured(browser, &format!("zoom({chart})"));
        assert_eq!(
            opened,
            json!({ "colored": true, "swapped": true, "overflow": 0 }),
            "chart {chart} at {view:?}"
        );
    }
    keep_picture(browser, &format!("zoomed-{}-{}", view.0, view.1));
    measured(browser, "focusLive()");
    let whole = measured(browser, "legendOfLive()");
    browser.key("+");
    browser.key("ArrowRight");
    let part = measured(browser, "spanOfLive()");
    browser.key("0");
    assert_ne!(part, measured(browser, "spanOfLive()"), "{whole}");
    browser.key("Escape");
    assert_eq!(measured(browser, "undrawn().length"), charts - 1, "one is back");
}

fn without_javascript_and_in_print_nothing_is_missing(browser: &mut Browser, page: &Page) {
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.open(&page.file(), 1280, "light");
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": false }));
    assert_eq!(measured(browser, "document.querySelectorAll('button').length"), 0);
    none(browser, "undrawn()", (1280, "no script"));
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    none(browser, "undrawn()", (1280, "print"));
    none(browser, "illegible()", (1280, "print"));
    let printed = print(browser, page);
    assert!(printed.len() > 40_000);
    assert!(pages_of(&printed) <= MOST_PAGES, "{} pages", pages_of(&printed));
}

/// Pages of the rich experiment on A4: 13 with the fonts of Debian, with room for wider ones.
const MOST_PAGES: usize = 15;

/// The page as a PDF, which is left in its directory too.
fn print(browser: &mut Browser, page: &Page) -> Vec<u8> {
    let a4 = json!({ "printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69,
                     "preferCSSPageSize": true });
    let printed = browser.call("Page.printToPDF", a4);
    let text = printed["data"].as_str().unwrap();
    if let Some(dir) = std::env::var_os("PGIO_PAGE_PICTURES") {
        fs::write(Path::new(&dir).join("print.pdf.base64"), text).unwrap();
    }
    let pdf = from_base64(text);
    fs::write(page.dir.path().join("printed.pdf"), &pdf).unwrap();
    pdf
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let group = |four: &[u8]| {
        let bits = (0..4).fold(0u32, |sum, i| sum << 6 | u32::from(*four.get(i).unwrap_or(&0)));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

fn pages_of(pdf: &[u8]) -> usize {
    let page = b"/Type /Page";
    let is_one = |w: &&[u8]| w.starts_with(page) && w[page.len()] != b's';
    pdf.windows(page.len() + 1).filter(is_one).count()
}

/// The last item on a printed page is not the heading of the next page's content.
fn in_print_a_heading_stays_with_its_content(browser: &mut Browser, page: &Page) {
    browser.open(&page.file(), 1280, "light");
    let headings = measured(
        browser,
        "all('h2, h3, caption, figcaption').map((e) => e.textContent.replace(/\\s+/g, ' ').trim())",
    );
    let headings: Vec<&str> =
        headings.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(headings.contains(&"Over time") && headings.contains(&"Effects"), "{headings:?}");
    print(browser, page);
    let text = Command::new("pdftotext")
        .args(["-layout", "printed.pdf", "-"])
        .current_dir(page.dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let last_lines: Vec<String> = text
        .split('\u{c}')
        .filter_map(|page| page.lines().rev().find(|line| !line.trim().is_empty()))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert!(last_lines.len() > 3, "{text}");
    let pages: Vec<&str> = text.split('\u{c}').collect();
    let appendix = pages.iter().position(|page| page.lines().any(|l| l.trim() == "Appendix"));
    assert_eq!(appendix, Some(2), "the summary has two pages: {text}");
    // Folded on the screen, not on paper.
    let folded = "all('details.warnings li > span:last-child').map((e) => e.textContent)";
    let folded = measured(browser, folded);
    let folded: Vec<&str> = folded.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(!folded.is_empty());
    for warning in folded {
        let start: Vec<&str> = warning.split_whitespace().take(3).collect();
        assert!(text.contains(&start.join(" ")), "{warning} is missing in print");
    }
    for line in &last_lines {
        assert!(!headings.contains(&line.as_str()), "{line} is the last line of a page");
    }
}
