//! No circular dependencies between files, not even inside a module.
//!
//! Reads the text: `use` lines and paths in the code, each resolved to the file that defines the name. A
//! `pub use` does not count as a use, tests may use anything, and method calls are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path, such as `["pg", "connect"]`; each is one file.
type Module = Vec<String>;

/// The paths in one file's code.
#[derive(Default)]
struct Source {
    used: Vec<Module>,
    /// Those that `pub use` makes names of this file.
    exported: Vec<Module>,
}

struct Sources(BTreeMap<Module, Source>);

impl Sources {
    fn of(files: impl IntoIterator<Item = (Module, String)>) -> Sources {
        Sources(files.into_iter().map(|(module, text)| (module, source(&text))).collect())
    }

    /// The file that defines what a path in `from` names, if one of ours does.
    fn defining(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Module::new(), rest),
            "self" => (from.clone(), rest),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                (from[..from.len().checked_sub(up)?].to_vec(), &path[up..])
            }
            name => {
                let child = [from.as_slice(), &[name.to_owned()]].concat();
                self.0.get(&child)?;
                (child, rest)
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (at, rest) = (child, after);
        }
        let source = self.0.get(&at)?;
        let exported = rest.first().filter(|_| depth < 5).and_then(|name| {
            let path = source.exported.iter().find(|path| path.last() == Some(name))?;
            self.defining(&at, path, depth + 1)
        });
        Some(exported.unwrap_or(at))
    }

    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of = |(module, source): (&Module, &Source)| {
            let used = source.used.iter().filter_map(|path| self.defining(module, path, 0));
            (module.clone(), used.filter(|other| other != module).collect())
        };
        self.0.iter().map(of).collect()
    }

    /// Files that reach each other, in groups.
    fn circles(&self) -> Vec<Vec<Module>> {
        let edges = self.edges();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (module, reachable(module, &edges))).collect();
        let mut circles: Vec<Vec<Module>> = Vec::new();
        for module in edges.keys() {
            let known = circles.iter().any(|circle| circle.contains(module));
            if known || !reached[module].contains(module) {
                continue;
            }
            let both = reached[module].iter().filter(|other| reached[*other].contains(module));
            circles.push(both.map(|other| (*other).clone()).collect());
        }
        circles
    }
}

fn reachable<'a>(
    from: &Module,
    edges: &'a BTreeMap<Module, BTreeSet<Module>>,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = edges[from].iter().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(&edges[module]);
        }
    }
    reached
}

fn source(text: &str) -> Source {
    let mut source = Source::default();
    let mut rest = code(text);
    let mut outside = String::new();
    while let Some((before, statement, after)) = next_use(&rest) {
        let public = before.trim_end().ends_with(')') || before.trim_end().ends_with("pub");
        let paths = expand(&statement);
        if public {
            source.exported.extend(paths);
        } else {
            source.used.extend(paths);
        }
        outside.push_str(&before);
        rest = after;
    }
    outside.push_str(&rest);
    source.used.extend(inline_paths(&outside));
    source
}

/// Without comments, texts and tests.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let mut kept = String::new();
    let mut of_test = false;
    for line in lines {
        if std::mem::take(&mut of_test) {
            if line.trim_end().ends_with('{') {
                // The module of a file's tests is its last item.
                break;
            }
            continue;
        }
        of_test = line.trim() == "#[cfg(test)]";
        if !of_test {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// What is before the next `use`, its path, and what is after it.
fn next_use(text: &str) -> Option<(String, String, String)> {
    let starts = |at: &usize| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(char::is_whitespace)
    };
    let at = text.match_indices("use ").map(|(at, _)| at).find(starts)?;
    let end = at + text[at..].find(';')?;
    Some((text[..at].to_owned(), text[at + 4..end].to_owned(), text[end + 1..].to_owned()))
}

/// The paths of a `use`, groups resolved.
fn expand(tree: &str) -> Vec<Module> {
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![names(path)];
    };
    let group = group.rsplit_once('}').map_or(group, |(inside, _)| inside);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in group.chars() {
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                parts.last_mut().unwrap().push(c);
            }
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{}{}", head.trim(), part.trim()))).collect()
}

/// A `self` at the end names the module itself.
fn names(path: &str) -> Module {
    let mut names: Module = path.split("::").map(|name| name.trim().to_owned()).collect();
    if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
        names.pop();
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Every `a::b` in the code.
fn inline_paths(code: &str) -> Vec<Module> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let found = code.split(|c| !word(c)).filter(|path| path.contains("::"));
    found.filter(|path| !path.starts_with(':')).map(names).collect()
}

fn sources_in(src: &Path) -> Sources {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    let of_file = |path: PathBuf| {
        let relative = path.strip_prefix(src).unwrap().with_extension("");
        let module: Module = relative.iter().map(|n| n.to_str().unwrap().to_owned()).collect();
        let last = module.last()?.as_str();
        let skipped = ["main", "tests", "test_support"].contains(&last);
        let is_root = module == ["lib"];
        let module = if is_root { Module::new() } else { module.clone() };
        (!skipped).then(|| (module, fs::read_to_string(&path).unwrap()))
    };
    Sources::of(files.into_iter().filter_map(of_file))
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_have_no_circular_dependencies() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let (mut circles, mut files) = (Vec::new(), 0);
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let sources = sources_in(&entry.path().join("src"));
        files += sources.0.len();
        let shown = |circle: &Vec<Module>| format!("{name}: {}", shown(circle));
        circles.extend(sources.circles().iter().map(shown));
    }
    assert!(files > 100, "the scan found the sources");
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

fn shown(circle: &[Module]) -> String {
    let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
    files.join(" ")
}

fn circles_in(files: &[(&str, &str)]) -> Vec<String> {
    let file = |(path, text): &(&str, &str)| (names(&path.replace('/', "::")), (*text).to_owned());
    Sources::of(files.iter().map(file)).circles().iter().map(|circle| shown(circle)).collect()
}

#[test]
fn finds_circles_in_use_lines_and_in_paths() {
    let through_paths = [
        ("a", "mod x;\nfn f() { x::g() }"),
        ("a/x", "use super::{f, y};\n"),
        ("a/y", "use crate::a::f;\n"),
    ];
    assert_eq!(circles_in(&through_paths), ["a a/x a/y"]);
    let siblings = [("a/x", "use super::y::{self, T};\n"), ("a/y", "fn f() { super::x::g() }")];
    assert_eq!(circles_in(&siblings), ["a/x a/y"]);
}

#[test]
fn resolves_a_name_to_the_file_that_defines_it() {
    let facade = [
        ("a", "mod x;\nmod y;\npub use self::x::T;\n"),
        ("a/x", "struct T;\n"),
        ("a/y", "use super::T;\n"),
    ];
    assert_eq!(circles_in(&facade), [""; 0]);
    let for_tests = [
        ("a", "use self::x::T;\n"),
        ("a/x", "// super::f\n#[cfg(test)]\nmod tests {\n use super::super::f;\n}\n"),
    ];
    assert_eq!(circles_in(&for_tests), [""; 0]);
}
