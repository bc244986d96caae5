//! Tests of experiment files, by section; here is what they share.

mod background;
mod conditions;
mod factors;
mod head;
mod key_table;
mod private_targets;
mod syntax;
mod targets;
mod whole_files;
mod workloads;

use super::{Experiment, Target, parse};
use crate::config::value::ConnectString;

const TREATMENTS: &[&str] = &["postgres", "drbd", "throttle", "command"];
const CHECKS: &[&str] = &["durability", "foreign-load"];

fn read(text: &str) -> Experiment {
    parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap()
}

fn error(text: &str) -> String {
    parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap_err().to_string()
}

/// Returns the error of a valid file with these lines in front.
fn error_of(lines: &str) -> String {
    error(&format!("{lines}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n"))
}

/// Returns the error of a valid file with these lines in the second condition.
fn condition_error(lines: &str) -> String {
    error(&format!("[[condition]]\nname = 'a'\n[[condition]]\n{lines}\n"))
}

fn server(dsn: &str) -> Target {
    Target::Server {
        dsn: ConnectString::new(dsn),
        host: None,
        standby_host: None,
        device: None,
        control: None,
    }
}
