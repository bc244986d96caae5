//! pgio.conf against the shell that the original reads it with: what we accept must mean
//! the same to bash.

use std::process::Command;

use pgio::config::pgio_conf;
use proptest::prelude::*;

/// Returns how bash reads the line, and whether it printed an error.
fn by_bash(line: &str) -> (String, String) {
    let script = format!("{line}\nprintf %s \"$DBNAME\"");
    let output = Command::new("bash").arg("-c").arg(script).output().expect("bash is installed");
    let text = |bytes| String::from_utf8(bytes).expect("the line was UTF-8");
    (text(output.stdout), text(output.stderr))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn bash_reads_the_same_value(value in "[ab=\"'\\\\#$~:/ \t;\u{e9}{},*?!0-9-]{0,9}") {
        // Not CONNECT_STRING, whose words are read as psql's options.
        let line = format!("DBNAME={value}");
        if let Ok(conf) = pgio_conf::parse(&line, "pgio.conf") {
            let ours = conf.layer.dbname.expect("the line sets it");
            prop_assert_eq!((ours, String::new()), by_bash(&line));
        }
    }
}
