//! Changes one key of `[experiment]` in the text of an experiment file, for flags that override the
//! file.

use super::difference::values_by_path;

/// Changes or adds one line; `value` is TOML. `None` if anything else would change, or if the file has
/// no section `[experiment]` for the line.
pub(super) fn with_key(text: &str, key: &str, value: &str) -> Option<String> {
    let line = format!("{key} = {value}");
    let (mut head, mut at, mut here) = (None, None, false);
    for (n, found) in text.lines().enumerate() {
        let found = found.trim();
        if found.starts_with('[') {
            here = found.split('#').next().is_some_and(|f| f.trim() == "[experiment]");
            head = head.or(here.then_some(n));
        } else if here && found.split_once('=').is_some_and(|(name, _)| name.trim() == key) {
            at = Some(n);
        }
    }
    let mut lines: Vec<&str> = text.lines().collect();
    match (at, head) {
        (Some(at), _) => lines[at] = &line,
        (None, Some(head)) => lines.insert(head + 1, &line),
        (None, None) => {}
    }
    let changed = lines.join("\n") + "\n";
    let mut expected = values_by_path(text)?;
    expected.insert(format!("experiment.{key}"), value.to_owned());
    (values_by_path(&changed) == Some(expected)).then_some(changed)
}
