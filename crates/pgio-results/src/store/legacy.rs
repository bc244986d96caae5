//! Converts records of earlier versions into the current form.

use crate::change::{CONNECTION, Change, Subject};

/// Parses a change that was stored only as text.
pub(super) fn change(text: &str) -> Change {
    let unparsed = || Change::new(None, Subject::Text, text, "");
    let (before, value) = match text.split_once(" = ") {
        Some((before, value)) => (before, value),
        None => {
            let Some(rest) = text.strip_prefix("command ") else { return unparsed() };
            let (name, host) = on_host(rest);
            return Change::new(host, Subject::Command, name, "");
        }
    };
    let (what, host) = on_host(before);
    let drbd = |resource: &str| Subject::Drbd { resource: resource.to_owned() };
    let words: Vec<&str> = what.split(' ').collect();
    match words.as_slice() {
        ["cache"] => Change::new(None, Subject::Cache, "cache", value),
        ["ballast"] => Change::new(host, Subject::Memory, "ballast", value),
        ["DRBD", resource] => Change::new(None, drbd(resource), CONNECTION, value),
        [option, "of", "DRBD", resource] => Change::new(None, drbd(resource), *option, value),
        ["link", "by", "a", "relay"] => link(None, None, value),
        ["link", "of", interface] => link(host, Some(interface), value),
        [limit, "of", path] if path.starts_with("/dev/") => {
            Change::new(host, Subject::Device { path: (*path).to_owned() }, *limit, value)
        }
        ["mount", "option", name] => Change::new(None, Subject::Mount { path: None }, *name, value),
        ["mount", "of", "the", "data", "directory"] => file_system("data", value),
        ["tablespace", "of", "the", "data", "set"] => {
            file_system("tablespace pgio_filesystem", value)
        }
        [setting] => Change::server(*setting, value),
        _ => unparsed(),
    }
}

fn on_host(text: &str) -> (&str, Option<&str>) {
    text.split_once(" on ").map_or((text, None), |(what, host)| (what, Some(host)))
}

fn link(host: Option<&str>, interface: Option<&str>, value: &str) -> Change {
    let subject = Subject::Link { interface: interface.map(str::to_owned) };
    Change::new(host, subject, "shape", value)
}

fn file_system(role: &str, value: &str) -> Change {
    Change::new(None, Subject::FileSystem { role: role.to_owned() }, "file system", value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_kind_are_parsed_and_displayed_unchanged() {
        for text in [
            "synchronous_commit = remote_write",
            "DRBD pgio = connected by protocol C",
            "al-extents of DRBD pgio = 67",
            "write_iops of /dev/ubdb on secondary = 500",
            "read_bytes of /dev/sdb = 10MB",
            "mount option barrier = barrier=0",
            "mount of the data directory = xfs (mkfs -m crc=0) on /dev/loop7",
            "tablespace of the data set = ext4 on /dev/loop7",
            "ballast = 200MB left by a limit on the server's processes",
            "ballast on db = 1GB left by huge pages",
            "link of eth0 on db2 = 5 ms",
            "link by a relay = 5 ms",
            "cache = cold",
            "command reload on db2",
            "command reload",
            "something else altogether",
        ] {
            let change = change(text);
            assert_eq!(change.to_string(), text);
            assert_eq!(change.subject == Subject::Text, text.starts_with("something"), "{text}");
        }
    }
}
