//! `ballast = "1G"` or `ballast = { leave = "1G", host = "db1", way = "cgroup" }`: leaves only this
//! much memory free, so that the operating system's cache cannot answer the reads.
//!
//! Unused huge pages take memory from the whole host ([`huge_pages`], like the
//! original's pgio_reduce_free_memory.sh, and like `pgio ballast`); a control group limits the
//! server's processes alone ([`cgroup`]).

mod amount;
mod cgroup;
mod command;
mod hold;
mod huge_pages;

use self::cgroup::{Cgroup, CgroupStep};
use self::huge_pages::{HugePages, HugePagesStep};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::treatment::body::{self, Body};
use crate::treatment::contract::{Kind, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Record, Step};
use pgio_results::units;

const NAME: &str = huge_pages::KIND;

pub(super) static FEATURE: Feature = Feature {
    name: "memory",
    treatments: &[KIND],
    commands: &[command::COMMAND],
    held: hold::held,
    ..Feature::NONE
};

const KIND: Kind = Kind {
    name: NAME,
    help: "leaves only this much memory free: \"1G\", or { leave = \"1G\", host = \"…\", way = \"huge_pages\" or \"cgroup\" }, which limits the server's processes alone",
    parse,
    read,
};

const KEYS: &[&str] = &["leave", "host", "way"];
const EXAMPLE: &str = "\"1G\" or { leave = \"1G\", way = \"cgroup\" }";

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    if let toml::Value::String(text) = &spec.body {
        let leave =
            units::parse_bytes(text).map_err(|e| body::error(spec, &spec.kind, &e.to_string()))?;
        return Ok(Box::new(HugePages { leave, host: None }));
    }
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let leave = body.bytes("leave")?.ok_or_else(|| {
        body.error("leave", "is missing: the memory to leave free, such as \"1G\"")
    })?;
    let host = body.text("host")?.map(str::to_owned);
    match body.one_of("way", &["huge_pages", "cgroup"])? {
        Some("cgroup") if host.is_some() => Err(body.error(
            "host",
            "contradicts way = \"cgroup\", which limits the server's processes where they are",
        )),
        Some("cgroup") => Ok(Box::new(Cgroup::new(leave))),
        _ => Ok(Box::new(HugePages { leave, host })),
    }
}

fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    CgroupStep::read(record).or_else(|_| HugePagesStep::read(record))
}

#[cfg(test)]
mod tests {
    use crate::treatment::test_support::{assert_refused, described};

    #[test]
    fn ballast_takes_a_size_or_a_table() {
        let read = |body| described("ballast", body).unwrap().join("; ");
        assert_eq!(read("\"1G\""), "ballast = 1G left by huge pages");
        assert_eq!(read("{ leave = '1G' }"), read("\"1G\""));
        assert_eq!(
            read("{ leave = '512M', host = 'db2', way = 'huge_pages' }"),
            "ballast on db2 = 512M left by huge pages"
        );
        assert_eq!(
            read("{ leave = '1G', way = 'cgroup' }"),
            "ballast = 1G left by a limit on the server's processes"
        );
    }

    #[test]
    fn errors_in_ballast_name_line_and_key() {
        let cases = [
            ("\"much\"", "line 7: ballast: `much` is not a size"),
            ("true", "line 7: ballast: must be a table, such as \"1G\" or { leave"),
            ("{}", "line 7: ballast.leave: is missing"),
            (
                "{ laeve = '1G' }",
                "line 7: ballast.laeve: is an unknown key; the nearest valid one is `leave`",
            ),
            ("{ leave = '1G', way = 'swap' }", "line 7: ballast.way: cannot be `swap`"),
            ("{ leave = '1G', way = 'cgroup', host = 'a' }", "line 7: ballast.host: contradicts"),
        ];
        assert_refused("ballast", &cases);
    }
}
