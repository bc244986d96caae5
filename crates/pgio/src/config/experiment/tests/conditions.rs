//! `[[condition]]` and its treatments.

use super::{condition_error, error, read};

#[test]
fn a_list_of_tables_is_split_into_treatments() {
    let experiment = read(
        "[[condition]]\nname = 'a'\ndrbd = {}\nthrottle = [{ host = 'x' }, { host = 'y' }]\n\
         postgres = []\n",
    );
    let seen: Vec<_> =
        experiment.conditions[0].treatments.iter().map(|t| (t.kind.as_str(), t.line)).collect();
    assert_eq!(seen, [("drbd", 3), ("throttle", 4), ("throttle", 4), ("postgres", 5)]);
    assert_eq!(experiment.conditions[0].treatments[2].body["host"].as_str(), Some("y"));
}

#[test]
fn faulty_conditions_are_refused_with_line_and_key() {
    assert_eq!(
        error("[experiment]\n"),
        "x.toml:1: has no condition; write [[condition]] with a name and treatments"
    );
    assert_eq!(
        condition_error("drbd = 'C'"),
        "x.toml:3: condition: has no name; write name = \"...\""
    );
    assert_eq!(
        condition_error("name = 'a'"),
        "x.toml:4: condition.name: `a` is the name of two conditions"
    );
    for name in ["a (A/A)", "(A/A)"] {
        assert_eq!(
            condition_error(&format!("name = '{name}'")),
            "x.toml:4: condition.name: must not end with (A/A), which is the name of the condition \
             that pgio adds"
        );
    }
    for key in ["workload = {}", "update_pct = 10"] {
        let name = key.split(' ').next().unwrap();
        assert_eq!(
            condition_error(&format!("name = 'b'\n{key}")),
            format!(
                "x.toml:5: condition.{name}: is not a treatment; conditions differ only in \
                 treatments, so write workload keys in [workload]"
            )
        );
    }
    assert_eq!(
        condition_error("name = 'b'\ncommand = 99999999999999999999"),
        "x.toml:5: condition.command: invalid type: integer `99999999999999999999` as i128, \
         expected any valid TOML value"
    );
}
