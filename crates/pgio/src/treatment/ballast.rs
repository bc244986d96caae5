//! `ballast = "1G"` or `ballast = { leave = "1G", host = "db1", way = "cgroup" }`: leaves only so
//! much memory free, so that the operating system's cache cannot answer the reads.
//!
//! By huge pages nobody uses, which takes memory from the whole host ([`huge_pages`], as the
//! original's pgio_reduce_free_memory.sh does and `pgio ballast` by itself), or by a limit on the
//! server's processes alone ([`cgroup`]). Which memory is left for what is said there.

mod cgroup;
pub mod huge_pages;
pub mod memory;

use self::cgroup::Cgroup;
use self::huge_pages::HugePages;
use super::body::{self, Body};
use super::{Kind, Step, Stranger, Treatment, TreatmentError, Undone, World};
use crate::config::experiment::TreatmentSpec;
use crate::units;

pub(super) const KIND: Kind = Kind {
    name: "ballast",
    help: "leaves only so much memory free: \"1G\", or { leave = \"1G\", host = \"…\", way = \"huge_pages\" or \"cgroup\" }, which limits the server's processes alone",
    parse,
    undo,
};

const KEYS: &[&str] = &["leave", "host", "way"];
const EXAMPLE: &str = "\"1G\" or { leave = \"1G\", way = \"cgroup\" }";

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    if let toml::Value::String(text) = &spec.body {
        let leave =
            units::parse_bytes(text).map_err(|e| body::error(spec, &spec.kind, &e.to_string()))?;
        return Ok(Box::new(HugePages::new(leave, None)));
    }
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let leave = body.bytes("leave")?.ok_or_else(|| {
        body.error("leave", "is missing: how much memory is left free, such as \"1G\"")
    })?;
    let host = body.text("host")?.map(str::to_owned);
    match body.one_of("way", &["huge_pages", "cgroup"])? {
        Some("cgroup") if host.is_some() => Err(body.error(
            "host",
            "contradicts way = \"cgroup\", which limits the server's processes where they are",
        )),
        Some("cgroup") => Ok(Box::new(Cgroup::new(leave))),
        _ => Ok(Box::new(HugePages::new(leave, host))),
    }
}

fn undo(world: &mut World<'_>, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    if step.ours.get("group").is_some() {
        cgroup::undo(&host, step)
    } else {
        huge_pages::undo(&host, step, stranger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::test_support::in_words;

    fn parsed(body: &str) -> Result<String, String> {
        let table: toml::Table = format!("ballast = {body}").parse().unwrap();
        let spec =
            TreatmentSpec { kind: "ballast".to_owned(), body: table["ballast"].clone(), line: 3 };
        parse(&spec).map(|t| in_words(t.as_ref()).join("; ")).map_err(|e| e.to_string())
    }

    #[test]
    fn both_spellings() {
        let read = |body| parsed(body).unwrap();
        assert_eq!(read("\"1G\""), "ballast = 1G left by huge pages");
        assert_eq!(read("{ leave = \"1G\" }"), read("\"1G\""));
        assert_eq!(
            read("{ leave = \"512M\", host = \"db2\", way = \"huge_pages\" }"),
            "ballast on db2 = 512M left by huge pages"
        );
        assert_eq!(
            read("{ leave = \"1G\", way = \"cgroup\" }"),
            "ballast = 1G left by a limit on the server's processes"
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (body, said) in [
            ("\"much\"", "line 3: ballast: `much` is not a size"),
            ("true", "line 3: ballast: must be a table, such as \"1G\" or { leave"),
            ("{}", "line 3: ballast.leave: is missing"),
            (
                "{ laeve = \"1G\" }",
                "line 3: ballast.laeve: is an unknown key; the nearest valid one is `leave`",
            ),
            ("{ leave = \"1G\", way = \"swap\" }", "line 3: ballast.way: cannot be `swap`"),
            (
                "{ leave = \"1G\", way = \"cgroup\", host = \"a\" }",
                "line 3: ballast.host: contradicts",
            ),
        ] {
            let error = parsed(body).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
