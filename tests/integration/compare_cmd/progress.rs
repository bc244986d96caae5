//! The progress line: one that is rewritten on a terminal, one for each trial elsewhere.

use std::fs;

use pgio_tests::fixture::{INSTALLED, fresh_database, is_installed, shared_primary};
use pgio_tests::workdir::{Workdir, experiment};

/// `12/36, on, 3,300/s, 2:10 left`
fn is_of_a_trial(line: &str) -> bool {
    let parts: Vec<&str> = line.split(", ").collect();
    let [place, condition, rate, left] = parts.as_slice() else { return false };
    let number = |text: &str| text.replace([',', '.'], "").parse::<u64>().is_ok();
    place.split_once('/').is_some_and(|(n, of)| number(n) && number(of))
        && ["a", "b"].contains(condition)
        && rate.strip_suffix("/s").is_some_and(number)
        && left.strip_suffix(" left").is_some_and(|t| t.contains(':'))
}

#[test]
fn without_a_terminal_there_is_one_line_for_each_trial() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"1s\"\naa = false";
    let result = dir.compare(&experiment(&dsn, keys, "", &[("a", ""), ("b", "")])).expect(0, &[]);
    let lines: Vec<&str> = result
        .err
        .lines()
        .filter_map(|l| l.strip_prefix("pgio: "))
        .filter(|l| is_of_a_trial(l))
        .collect();
    assert_eq!(lines.len(), 2, "{result}");
    assert!(lines[0].starts_with("1/2, ") && lines[1].starts_with("2/2, "), "{result}");
    let left = |line: &str| line.rsplit(", ").next().map(str::to_owned);
    assert!(
        lines.iter().all(|l| l.ends_with(" left")) && left(lines[1]) < left(lines[0]),
        "{result}"
    );
    assert!(!result.err.contains('\r'), "{result}");
}

#[test]
fn on_a_terminal_a_table_and_a_line_are_rewritten_and_never_wider() {
    if !is_installed("script") {
        return;
    }
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"2s\"\naa = false";
    let long = "a condition with a name that no narrow terminal has room for";
    dir.write("e.toml", &experiment(&dsn, keys, "", &[(long, ""), ("b", "")]));
    let pgio = dir.command(&[]).get_program().to_owned();
    let line = format!("stty rows 24 cols 48; exec {} compare e.toml --out out", pgio.display());
    let mut command = dir.command(&[]);
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "typescript"]).current_dir(dir.path());
    for (name, value) in command.arg("--version").get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    dir.start(script).wait().expect(0, &[]);
    let shown = without_escapes(&fs::read_to_string(dir.path().join("typescript")).unwrap());
    // A line that fills the terminal goes on in the next one.
    let shown: Vec<String> = shown
        .split(['\r', '\n'])
        .flat_map(|line| {
            let line: Vec<char> = line.chars().collect();
            let rows: Vec<String> = line.chunks(48).map(|row| row.iter().collect()).collect();
            rows
        })
        .collect();
    let progress: Vec<&str> = shown
        .iter()
        .map(|line| line.trim_end())
        .filter(|l| l.starts_with(['1', '2']))
        .filter(|l| l.contains("/2, "))
        .collect();
    assert!(progress.len() > 10, "{shown:?}");
    for line in &progress {
        assert!(line.chars().count() < 48, "{line:?}");
        assert!(line.ends_with(" left"), "{line:?}");
    }
    let second = progress.iter().filter(|l| l.contains("/2, b, "));
    assert!(second.clone().any(|l| l.contains(", preparing, ")), "{progress:?}");
    assert!(second.clone().any(|l| l.contains("/s, ")), "{progress:?}");
    assert!(progress.iter().any(|l| l.contains("…, ")), "{progress:?}");
    let has = |start: &str, end: &str| {
        shown.iter().any(|l| l.starts_with(start) && l.trim_end().ends_with(end))
    };
    assert!(has("  condition", "median  repeated"), "{shown:?}");
    assert!(has("  a condi", "/s") || has("  b ", "/s"), "{shown:?}");
    assert!(!has("pgio: 1/2, ", ""), "no line that stays for each trial: {shown:?}");
}

/// The text without what moves the cursor, which begins a line here.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        shown += "\r";
        shown += &part[end..];
    }
    shown
}
