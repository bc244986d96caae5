//! Parses the service file: `[name]` sections of `keyword=value` lines.
//!
//! Follows libpq: no spaces around `=`, no quotes, no service within a service.
//!
//! Next: `resolve` chooses the files.

use super::error::BadText;
use super::keywords::{Pair, pair};

/// The pairs of one service; `None` if the file does not define it. In an error, `at` is the line.
pub(super) fn find(text: &str, name: &str) -> Result<Option<Vec<Pair>>, BadText> {
    let mut found: Option<Vec<Pair>> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            let matches = section.strip_prefix(name).is_some_and(|rest| rest.starts_with(']'));
            found = matches.then(Vec::new);
            continue;
        }
        if let Some(pairs) = &mut found {
            pairs.push(entry(line).map_err(|problem| BadText::new(number + 1, problem))?);
        }
    }
    Ok(found)
}

fn entry(line: &str) -> Result<Pair, String> {
    let (keyword, value) = line.split_once('=').ok_or("expected keyword=value")?;
    match keyword {
        "service" => Err("a service cannot refer to another service".to_owned()),
        padded if padded != padded.trim_end() => Err("no spaces are allowed before `=`".to_owned()),
        keyword => pair(keyword, value.to_owned())
            .map_err(|nearest| format!("unknown keyword `{keyword}`; nearest is `{nearest}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let pairs = find(FILE, name).unwrap()?;
        Some(pairs.into_iter().map(|p| (p.keyword, p.value)).collect())
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
        let problem = |text: &str| find(text, "s").err().unwrap().to_string();
        assert!(problem("[s]\nhots=a").contains("unknown keyword `hots`; nearest is `host`"));
        assert_eq!(find("[s]\n\nhost", "s").err().unwrap().at, 3);
        assert!(problem("[s]\nservice=x").contains("another service"));
        assert!(problem("[s]\nhost = x").contains("no spaces"));
        // Errors in other sections are ignored.
        assert!(find("[t]\nnonsense\n[s]\nhost=a", "s").unwrap().is_some());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-c\\[\\]=# \n]{0,40}|.*", name in ".*") {
            let _ = find(&text, &name);
        }
    }
}
