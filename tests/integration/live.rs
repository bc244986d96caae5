//! `compare --live`: the page of a run that is under way, in a real browser and by plain requests.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::page::browser::{self, Browser};
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Running, Workdir, experiment, wait_until};

const VIEWS: [(u32, &str); 4] = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")];
const MEASURE: &str = include_str!("page/measure.js");

/// A port that was free a moment ago: a run that is resumed must find it again.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// One request by hand, so that any header can be sent.
fn ask(port: u16, line: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn start(dir: &Workdir, args: &[&str], port: u16) -> Running {
    let address = format!("127.0.0.1:{port}");
    let mut running = dir.start(dir.command(&[&["compare"], args, &["--live", &address]].concat()));
    running.wait_until("served", || TcpStream::connect(&address).is_ok());
    running
}

#[test]
fn a_page_that_cannot_be_served_as_asked_is_refused_before_anything() {
    let dir = Workdir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // Nothing answers there: a refusal comes before a connection.
    dir.write(
        "e.toml",
        &experiment("host=/nonexistent", "blocks = 1", "", &[("a", ""), ("b", "")]),
    );
    dir.write("token", "0123456789abcdef\n");
    let open = dir.path().join("token");
    fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    let open = open.to_str().unwrap();
    for (args, code, text) in [
        (
            &["--live", taken.as_str()][..],
            2,
            "cannot serve the page (choose another address or port)",
        ),
        (&["--live", "0.0.0.0:0"], 2, "--live 0.0.0.0:0: anybody could read the page"),
        (&["--live", "rubbish"], 2, "must be an IP address and a port such as"),
        (&["--live", "127.0.0.1"], 2, "must be an IP address and a port such as"),
        (&["--live", "[::]:0", "--live-token-file", open], 2, "chmod 0600"),
        (&["--live", "[::]:0", "--live-token-file", "none"], 7, "cannot read the token file none"),
        (&["--live-token-file", open], 2, "--live <IP:PORT>"),
    ] {
        let result = dir.pgio(&[&["compare", "e.toml", "--out", "out"], args].concat());
        result.expect(code, &[text]);
    }
    let mut command = dir.command(&["compare", "e.toml", "--out", "out", "--live", "0.0.0.0:0"]);
    command.env("PGIO_LIVE_TOKEN", "short");
    let result = dir.start(command).wait().expect(2, &["PGIO_LIVE_TOKEN must have at least 16"]);
    assert!(!result.err.contains("short"), "{result}");
    assert!(!dir.out().exists() && !dir.path().join("state").exists());
}

#[test]
fn only_reading_is_possible_and_only_with_the_token() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = "blocks = 50\nduration = \"1s\"\naa = false";
    dir.write("e.toml", &experiment(&dsn, keys, "", &[("a", ""), ("b", "")]));
    let here = "Host: 127.0.0.1\r\n";
    let port = free_port();
    let mut running = start(&dir, &["e.toml", "--out", "out"], port);
    assert_eq!(ask(port, "GET /", here).status, 200);
    let posted = ask(port, "POST /", here);
    assert_eq!(posted.status, 405);
    assert!(posted.head.to_lowercase().contains("allow: get, head"), "{}", posted.head);
    assert_eq!(ask(port, "GET /", "Host: evil.example\r\n").status, 403);
    assert_eq!(ask(port, "GET /../../etc/passwd", here).status, 404);
    assert!(running.is_running());
    running.signal(Signal::INT);
    running.wait().expect(130, &["live page: http://127.0.0.1:"]);

    dir.write("token", "0123456789abcdef\n");
    let file = dir.path().join("token");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let port = free_port();
    let args = ["e.toml", "--out", "guarded", "--live-token-file", "token"];
    let running = start(&dir, &args, port);
    let refused = ask(port, "GET /", here);
    assert_eq!(refused.status, 401);
    assert!(refused.head.to_lowercase().contains("www-authenticate: basic"), "{}", refused.head);
    assert!(!refused.body.contains("<html"));
    let bearer = |token: &str| format!("{here}Authorization: Bearer {token}\r\n");
    assert_eq!(ask(port, "GET /", &bearer("0123456789abcdeX")).status, 401);
    assert_eq!(ask(port, "GET /", &bearer("0123456789abcdef")).status, 200);
    running.signal(Signal::INT);
    let result = running.wait().expect(130, &["(the token is the password)"]);
    assert!(!result.err.contains("0123456789abcdef"), "{result}");
}

/// What the page shows, as one object.
const SHOWN: &str = "(() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? '';
    const zoomed = document.querySelector('figure.zoomable .live');
    return {
        phase: document.getElementById('run').className,
        left: text('#left'),
        place: text('#place'),
        trials: Number.parseInt(text('.facts div:nth-child(2) dd')) || 0,
        charts: document.querySelectorAll('main svg').length,
        series: Boolean(document.getElementById('time')),
        opened: document.querySelectorAll('details[open]').length,
        zoomed: zoomed ? ['min', 'max'].map((side) => zoomed.chart.scales.x[side]) : null,
        focused: zoomed !== null && document.activeElement === zoomed,
        top: Math.round(window.seen?.getBoundingClientRect().top),
        marked: window.seen?.isConnected,
    };
})()";

/// Polls the page until it shows this.
fn until(
    browser: &mut Browser,
    running: &mut Running,
    what: &str,
    is_it: &str,
) -> serde_json::Value {
    let script = format!("((shown) => ({is_it}) ? shown : null)({SHOWN})");
    let mut shown = serde_json::Value::Null;
    running.wait_until(what, || {
        shown = browser.evaluate(&script);
        !shown.is_null()
    });
    shown
}

fn resize(browser: &mut Browser, (width, theme): (u32, &str)) {
    browser.emulate(width, theme);
    browser.evaluate("scrollTo(0, 0)");
    for what in ["beyondTheEdge()", "illegible()", "faint()"] {
        let found = browser.evaluate(&format!("(() => {{ {MEASURE}\nreturn {what}; }})()"));
        assert_eq!(found, serde_json::json!([]), "{what} at {width}, {theme}");
    }
    let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
    assert!(overflow.as_i64().unwrap() <= 0, "wider than its screen at {width}, {theme}");
    if let Some(dir) = std::env::var_os("PGIO_PAGE_PICTURES") {
        let file = std::path::Path::new(&dir).join(format!("live-{width}-{theme}.png.base64"));
        fs::write(file, browser.picture()).unwrap();
    }
}

#[test]
fn the_page_grows_survives_a_restart_and_stays() {
    let Some(program) = browser::installed() else {
        pgio_tests::skipped("no Chromium here (Debian: apt-get install chromium)");
        return;
    };
    let mut browser = Browser::start(&program);
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = "blocks = 5\nduration = \"300ms\"\naa = false";
    let conditions = [("on", ""), ("off", "synchronous_commit = \"off\"")];
    dir.write("e.toml", &experiment(&dsn, keys, "", &conditions));
    let port = free_port();
    let mut running = start(&dir, &["e.toml", "--out", "out"], port);
    browser.visit(&format!("http://127.0.0.1:{port}/"), 1280, "light");
    let first = until(
        &mut browser,
        &mut running,
        "a report",
        "shown.trials >= 2 && shown.left && document.querySelector('figure.zoomable button')",
    );
    // A reader opens what is folded, zooms into a chart, and scrolls on.
    let frame = "new Promise((done) => setTimeout(done, 100, true))";
    for step in [
        "document.querySelectorAll('details').forEach((d) => { d.open = true; })",
        "document.querySelector('figure.zoomable button').click()",
        "document.querySelector('figure.zoomable button').click()",
        "document.querySelector('figure.zoomable .live').focus()",
        "window.seen = document.getElementById('checks')",
        "scrollBy(0, seen.getBoundingClientRect().top - 200)",
    ] {
        assert_eq!(browser.evaluate(&format!("{step}; {frame}")), true, "{step}");
    }
    let read = browser.evaluate(SHOWN);
    assert!(read["opened"].as_u64() > Some(0) && read["zoomed"].is_array(), "{read}");
    let assert_kept = |shown: &serde_json::Value| {
        assert_eq!(shown["zoomed"], read["zoomed"], "{shown}");
        assert_eq!((&shown["focused"], &shown["marked"]), (&true.into(), &true.into()), "{shown}");
        // The browser rounds where it scrolls to.
        assert!(shown["top"].as_i64().unwrap().abs_diff(200) <= 3, "{shown}");
    };
    assert_kept(&read);
    let grown = until(
        &mut browser,
        &mut running,
        "a report that grew",
        &format!("shown.trials > {}", first["trials"]),
    );
    assert_kept(&grown);
    assert_eq!(grown["opened"], read["opened"], "{grown}");

    // Killed like a machine that goes down; the page notices, and goes on with the next one.
    let before = browser.evaluate(SHOWN)["trials"].as_u64().unwrap();
    running.kill();
    wait_until("the page notices", || browser.evaluate(SHOWN)["phase"] == "lost");
    dir.pgio(&["undo"]).expect(0, &[]);
    let mut running = start(&dir, &["--resume", "out"], port);
    let resumed = until(
        &mut browser,
        &mut running,
        "connected again",
        &format!("shown.phase === 'running' && shown.trials > {before}"),
    );
    assert_kept(&resumed);
    assert_eq!(resumed["opened"], read["opened"], "without a reload: {resumed}");
    running.wait().expect(0, &["Page: out/report.html"]);

    let last = browser.evaluate(SHOWN);
    assert_eq!(last["phase"], "complete", "{last}");
    let stored = dir.trials().len();
    assert!(stored >= 10, "{last}");
    assert_eq!(last["place"], format!("trial {stored} of {stored}"), "those of before count, too");
    assert_eq!(last["trials"], stored, "the last report is here though pgio is gone");
    assert_eq!(last["series"], true, "{last}");
    assert_kept(&last);
    for view in VIEWS {
        resize(&mut browser, view);
    }
    // Connections refused while pgio was away are all that the browser minded.
    let of_ours = format!("http://127.0.0.1:{port}/");
    browser.problems.retain(|problem| {
        !problem.starts_with(&format!("a request to {of_ours}")) && !problem.contains("net::ERR_")
    });
    assert_eq!(browser.problems, [""; 0]);
}
