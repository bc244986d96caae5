//! Parses the service file: `[name]` sections of `keyword=value` lines.
//!
//! Follows libpq: no spaces around `=`, no quotes, no service within a service.
//!
//! Next: `resolve` chooses the files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::error::BadText;
use super::keywords::{Pair, pair};

/// The pairs of one service; `None` if the file does not define it. In an error, `at` is the line.
pub(super) fn find(text: &[u8], name: &str) -> Result<Option<Vec<Pair>>, BadText> {
    let mut found: Option<Vec<Pair>> = None;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if let Some(section) = line.strip_prefix(b"[") {
            if found.is_some() {
                break;
            }
            let rest = section.strip_prefix(name.as_bytes());
            let matches = rest.is_some_and(|rest| rest.starts_with(b"]"));
            found = matches.then(Vec::new);
            continue;
        }
        if let Some(pairs) = &mut found {
            pairs.push(entry(line).map_err(|problem| BadText::new(number + 1, problem))?);
        }
    }
    Ok(found)
}

fn entry(line: &[u8]) -> Result<Pair, String> {
    let at = line.iter().position(|byte| *byte == b'=').ok_or("expected keyword=value")?;
    let value = OsStr::from_bytes(&line[at + 1..]);
    match &*String::from_utf8_lossy(&line[..at]) {
        "service" => Err("a service cannot refer to another service".to_owned()),
        padded if padded != padded.trim_end() => Err("no spaces are allowed before `=`".to_owned()),
        keyword => pair(keyword, value)
            .map_err(|nearest| format!("unknown keyword `{keyword}`; nearest is `{nearest}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_fuzz::{fuzz, print};

    const FILE: &str = "\
# comment
[one]
host=/tmp
  port=5433
dbname=with space = and sign

[one-more]
host=b
[one]
host=never reached
";

    fn values(name: &str) -> Option<Vec<(&'static str, String)>> {
        let pairs = find(FILE.as_bytes(), name).unwrap()?;
        let text = |p: Pair| (p.keyword, p.value.into_string().unwrap());
        Some(pairs.into_iter().map(text).collect())
    }

    #[test]
    fn reads_one_section() {
        let own = |k, v: &str| (k, v.to_owned());
        let one =
            vec![own("host", "/tmp"), own("port", "5433"), own("dbname", "with space = and sign")];
        assert_eq!(values("one"), Some(one));
        assert_eq!(values("one-more"), Some(vec![own("host", "b")]));
        assert_eq!(values("on"), None);
    }

    #[test]
    fn errors_name_the_line() {
        let problem = |text: &str| find(text.as_bytes(), "s").err().unwrap().to_string();
        assert!(problem("[s]\nhots=a").contains("unknown keyword `hots`; nearest is `host`"));
        assert_eq!(find(b"[s]\n\nhost", "s").err().unwrap().at, 3);
        assert!(problem("[s]\nservice=x").contains("another service"));
        assert!(problem("[s]\nhost = x").contains("no spaces"));
        // Errors in other sections are ignored.
        assert!(find(b"# M\xfcller\n[t]\nnonsense\n[s]\nhost=a", "s").unwrap().is_some());
    }

    #[test]
    fn fuzzed_files_are_parsed_or_refused() {
        fuzz(&[FILE, "# c\n[s]\nhost=a,b\nport=5432\n[t]\nuser=\n"], |bytes| {
            for name in ["one", "s", ""] {
                if let Err(error) = find(bytes, name) {
                    print(&error);
                }
            }
        });
    }
}
