//! The parser reads the keys of the table in `config::sections`, and no others.

use super::{CHECKS, TREATMENTS, read};
use crate::config::experiment::parse;
use crate::config::sections;

/// Returns a valid file with these lines in one of its sections.
fn with_lines_in(title: &str, lines: &str) -> String {
    let at = |section: &str, own: &str| {
        // The key under test replaces the file's own.
        let tried = lines.split(' ').next().filter(|_| section == title);
        let own = own.lines().filter(|line| line.split(' ').next() != tried);
        let own = own.collect::<Vec<_>>().join("\n");
        if section == title { format!("{own}\n{lines}\n") } else { format!("{own}\n") }
    };
    let is_command = ["[workload] with kind = \"command\"", "[[workload.metric]]"].contains(&title);
    let work = if is_command {
        at("[workload] with kind = \"command\"", "kind = 'command'\nrun = 'work {seconds}'")
    } else {
        at("[workload], [[workload]]", "kind = 'commit'")
    };
    // The key under test may be the array itself, or conflict with regex.
    let find = if lines.starts_with("json ") { "" } else { "regex = 'x'" };
    let metric = if is_command && !lines.starts_with("metric ") {
        format!(
            "[[workload.metric]]\n{}",
            at("[[workload.metric]]", &format!("name = 'm'\nunit = 's'\nbetter = 'lower'\n{find}"))
        )
    } else {
        String::new()
    };
    let axis = if title == "[[axis]]" {
        at("[[axis]]", "[[axis]]\nname = 'd'\nvalues = [1, 2, 3]\npostgres = { a = '{d}' }")
    } else {
        String::new()
    };
    let background = if title == "[[background]]" {
        let own = at(title, "target = 'target'\nconditions = ['a']");
        format!("[[background]]\nkind = 'slob'\n{own}")
    } else {
        String::new()
    };
    let conditions = if title == "[[factor]]" {
        let own = at("[[factor]]", "name = 'f'\nlow = {}\nhigh = { postgres = { a = 1 } }");
        let other = "name = 'g'\nsetting = [1, 2]\n";
        format!("[[factor]]\n{own}[[factor]]\n{other}")
    } else {
        format!("[[condition]]\n{}", at("[[condition]]", "name = 'a'"))
    };
    format!(
        "[experiment]\n{}[drivers]\n{}[target]\n{}[hosts.h]\n{}[workload]\n{work}{metric}{background}{axis}{conditions}",
        at("[experiment]", ""),
        at("[drivers]", ""),
        match title {
            "[target], [targets.NAME]" => at(title, own_target(lines)),
            "standbys of [target], [targets.NAME]" => {
                let own = at(title, "name = 's'");
                format!("private = true\n[[target.standbys]]\n{own}")
            }
            _ => "dsn = 'x'\n".to_owned(),
        },
        at("[hosts.NAME]", "ssh = 'x'"),
    )
}

/// The target on which the key is valid.
fn own_target(lines: &str) -> &'static str {
    let key = lines.split(' ').next().unwrap_or_default();
    let private = ["pg", "initdb", "postgres", "standby", "standbys", "directory", "wal_directory"];
    if private.contains(&key) { "private = true" } else { "dsn = 'x'" }
}

/// The parser reads every key of the table: it refuses a value that no key takes, and names the key.
/// `refuse_keys_outside` refuses all other keys.
#[test]
fn the_parser_reads_exactly_the_keys_of_the_table() {
    const NO_VALUE: &str = "1979-05-27T07:32:00Z";
    let refused = |title: &str, key: &str| {
        let text = with_lines_in(title, &format!("{key} = {NO_VALUE}"));
        parse(&text, "x.toml", "x", TREATMENTS, CHECKS)
            .expect_err(&format!("{title} {key} is not read:\n{text}"))
    };
    for section in sections::SECTIONS {
        read(&with_lines_in(section.title, ""));
        for key in section.keys {
            let error = refused(section.title, key.name);
            let named = error.key.clone().unwrap_or_default();
            assert_eq!(named.rsplit('.').next(), Some(key.name), "{}: {error}", section.title);
            assert!(!error.message.contains("unknown key"), "{}: {error}", section.title);
        }
        let error = refused(section.title, "no_such_key");
        assert!(error.message.contains("unknown key"), "{}: {error}", section.title);
    }
}
