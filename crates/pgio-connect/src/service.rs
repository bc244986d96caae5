//! Finds a service and parses its file: `[name]` sections of `keyword=value` lines.
//!
//! Follows libpq: no spaces around `=`, no quotes, no service within a service.
//!
//! Next: `resolve` takes values from it where the connection string has none.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::env::Env;
use super::error::{BadText, ConnectError};
use super::keywords::{Pair, pair};

/// Searches the user's service file, then the system's.
pub(super) fn find(name: &str, env: &Env) -> Result<(PathBuf, Vec<Pair>), ConnectError> {
    let given = env.var("PGSERVICEFILE").map(PathBuf::from);
    let user_file = || env.home.as_ref().map(|home| home.join(".pg_service.conf"));
    let system_dirs = match env.var("PGSYSCONFDIR") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => env.sysconf_dirs.clone(),
    };
    let system_files = system_dirs.into_iter().map(|dir| dir.join("pg_service.conf"));
    let must_exist = given.clone();

    let mut looked_in = Vec::new();
    for path in given.or_else(user_file).into_iter().chain(system_files) {
        if must_exist.as_ref() != Some(&path) && !path.exists() {
            continue;
        }
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(source) => return Err(ConnectError::ServiceFileUnreadable { path, source }),
        };
        match find_in(&text, name) {
            Ok(Some(pairs)) => return Ok((path, pairs)),
            Ok(None) => looked_in.push(path),
            Err(bad) => {
                return Err(ConnectError::ServiceFile { path, line: bad.at, problem: bad.problem });
            }
        }
    }
    Err(ConnectError::ServiceNotFound { name: name.to_owned(), looked_in })
}

/// The pairs of one service; `None` if the file does not define it. In an error, `at` is the line.
fn find_in(text: &[u8], name: &str) -> Result<Option<Vec<Pair>>, BadText> {
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
        let pairs = find_in(FILE.as_bytes(), name).unwrap()?;
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
        let problem = |text: &str| find_in(text.as_bytes(), "s").err().unwrap().to_string();
        assert!(problem("[s]\nhots=a").contains("unknown keyword `hots`; nearest is `host`"));
        assert_eq!(find_in(b"[s]\n\nhost", "s").err().unwrap().at, 3);
        assert!(problem("[s]\nservice=x").contains("another service"));
        assert!(problem("[s]\nhost = x").contains("no spaces"));
        // Errors in other sections are ignored.
        assert!(find_in(b"# M\xfcller\n[t]\nnonsense\n[s]\nhost=a", "s").unwrap().is_some());
    }

    #[test]
    fn fuzzed_files_are_parsed_or_refused() {
        fuzz(&[FILE, "# c\n[s]\nhost=a,b\nport=5432\n[t]\nuser=\n"], |bytes| {
            for name in ["one", "s", ""] {
                if let Err(error) = find_in(bytes, name) {
                    print(&error);
                }
            }
        });
    }
}
