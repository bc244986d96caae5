//! `--drivers ENGINE` and `[drivers]`: which engine starts how many drivers. Text only.

use std::net::SocketAddr;

use crate::config::experiment::key::section;
use crate::config::experiment::section::Section;
use crate::config::value::ConfigError;

/// What starts the drivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DriverEngine {
    /// Processes on this machine.
    Local,
    /// `srun` inside an allocation.
    Slurm,
    /// An Indexed Job.
    Kubernetes,
    /// A line for the shell, with `{n}` and `{drive}`.
    Run(String),
}

/// What is divided among the drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Spread {
    /// All drivers have a part of every server's sessions.
    #[default]
    Sessions,
    /// Each server has drivers of its own, as many as every other.
    Target,
}

choice! { Spread: Sessions "sessions", Target "target" }

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DriverSpec {
    pub engine: DriverEngine,
    pub count: u32,
    /// The image of Kubernetes' drivers.
    pub image: Option<String>,
    /// The cores that each of Kubernetes' drivers requests, as Kubernetes writes them.
    pub cpu: String,
    pub spread: Spread,
    /// Where drivers dial; absent: any free port, on all addresses unless the drivers are local.
    pub listen: Option<SocketAddr>,
}

impl DriverSpec {
    /// How many there are, and what is divided among them.
    pub(super) fn divided(&self) -> String {
        match self.spread {
            Spread::Sessions => self.count.to_string(),
            Spread::Target => format!("{}, divided among the servers", self.count),
        }
    }
}

/// Drivers beyond this are a mistake: one drives some 280,000 queries per second per core.
pub(super) const MAX_DRIVERS: u32 = 1024;

/// The engine and count as one text gives them; `run:` may leave the count to another key.
pub(super) type Named = (DriverEngine, Option<u32>);

/// Parses `local:3`, `slurm:4`, `kubernetes:4`, `run:COMMAND` or `run:4:COMMAND`.
pub(super) fn parse_engine(text: &str) -> Result<Named, String> {
    let (name, rest) = text.split_once(':').ok_or_else(|| {
        format!(
            "`{text}` is not ENGINE:N; write local:3, slurm:4, kubernetes:4, 'run:COMMAND' or 'run:4:COMMAND'"
        )
    })?;
    let engine = match name {
        "local" => DriverEngine::Local,
        "slurm" => DriverEngine::Slurm,
        "kubernetes" => DriverEngine::Kubernetes,
        "run" => return parse_run(rest),
        other => {
            return Err(format!(
                "`{other}` is not an engine; valid engines: local, slurm, kubernetes, run"
            ));
        }
    };
    Ok((engine, Some(parse_count(rest)?)))
}

fn parse_run(text: &str) -> Result<Named, String> {
    let (count, line) = match text.split_once(':') {
        Some((digits, line))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (Some(parse_count(digits)?), line)
        }
        _ => (None, text),
    };
    if !line.contains("{drive}") {
        return Err(format!(
            "`{line}` does not contain {{drive}}, the driver's command; write 'run:mpirun -np {{n}} {{drive}}'"
        ));
    }
    Ok((DriverEngine::Run(line.trim().to_owned()), count))
}

pub(super) fn parse_count(text: &str) -> Result<u32, String> {
    let count: Option<u32> = text.parse().ok().filter(|n| (1..=MAX_DRIVERS).contains(n));
    count.ok_or_else(|| format!("`{text}` is not a number of drivers from 1 to {MAX_DRIVERS}"))
}

/// Parses cores as Kubernetes writes them: `2`, `0.5` or `500m`.
pub(super) fn parse_cpu(text: &str) -> Result<String, String> {
    let is_number = |digits: &str| digits.parse().is_ok_and(|n: u32| n > 0);
    let is_cores = |text: &str| {
        text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            && text.parse().is_ok_and(|n: f64| n > 0.0)
    };
    if text.strip_suffix('m').map_or_else(|| is_cores(text), is_number) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a number of cores, such as 2, 0.5 or 500m"))
    }
}

impl DriverSpec {
    /// Completes what was named with the count of the key `count`.
    pub(super) fn new(
        (engine, named): Named,
        count: Option<u32>,
        image: Option<String>,
        listen: Option<SocketAddr>,
    ) -> Result<DriverSpec, String> {
        let count = match (named, count) {
            (Some(named), _) => named,
            (None, Some(count)) => count,
            (None, None) => {
                let hint = "write 'run:4:COMMAND', or count = 4 in [drivers]";
                return Err(format!("run: does not say how many drivers it starts; {hint}"));
            }
        };
        match (&engine, &image) {
            (DriverEngine::Kubernetes, None) => {
                Err("kubernetes: needs an image with this build of pgio; give --image IMAGE"
                    .to_owned())
            }
            (DriverEngine::Kubernetes, Some(_)) | (_, None) => {
                let (cpu, spread) = ("1".to_owned(), Spread::default());
                Ok(DriverSpec { engine, count, image, cpu, spread, listen })
            }
            (_, Some(_)) => Err("an image is only for kubernetes:N; delete it".to_owned()),
        }
    }
}

section! { keys, "[drivers]",
    "Several processes that generate the load together. Without it, pgio alone does.";
    engine: Parsed<Named>("local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND", parse_engine) or "none; --drivers",
        "what starts the N drivers; COMMAND contains {drive}, the driver's command, and may contain {n}";
    count: Whole<u32>(1..=MAX_DRIVERS), "number of drivers if the engine is run:COMMAND";
    spread: Parsed<Spread>("sessions or target", spread_named) or "sessions",
        "what is divided among the drivers: sessions gives each a range of every server's sessions; target gives each server drivers of its own";
    image: Parsed<String>("the name of an image", text) or "none; --image",
        "container image for Kubernetes drivers; it must contain the same program file";
    cpu: Parsed<String>("a number of cores, or of thousandths of one with m", parse_cpu) or "1",
        "CPU that each driver pod requests, such as \"500m\"";
    listen: Parsed<SocketAddr>("ADDRESS:PORT", listen_address) or "a free port on all addresses, for local drivers on the loopback",
        "where pgio listens for its drivers";
}

/// The keys of `[drivers]`, below the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DriverKeys {
    pub engine: Option<Named>,
    pub count: Option<u32>,
    pub image: Option<String>,
    pub cpu: Option<String>,
    pub spread: Option<Spread>,
    pub listen: Option<SocketAddr>,
}

impl DriverKeys {
    /// Returns what the flags and the file ask for together; `None` without an engine.
    pub(super) fn resolve(
        &self,
        engine: Option<Named>,
        image: Option<String>,
    ) -> Result<Option<DriverSpec>, String> {
        let by_flag = engine.is_some();
        let Some(engine) = engine.or_else(|| self.engine.clone()) else {
            return match image {
                Some(_) => Err("--image needs --drivers kubernetes:N".to_owned()),
                None => Ok(None),
            };
        };
        // The file's image is for the file's engine.
        let file_image =
            self.image.clone().filter(|_| !by_flag || matches!(engine.0, DriverEngine::Kubernetes));
        if !by_flag {
            self.check_engine(&engine)?;
        }
        let mut spec = DriverSpec::new(engine, self.count, image.or(file_image), self.listen)?;
        if let Some(cpu) = &self.cpu {
            spec.cpu.clone_from(cpu);
        }
        spec.spread = self.spread.unwrap_or_default();
        Ok(Some(spec))
    }

    /// Refuses keys of the file that its engine does not use.
    fn check_engine(&self, (engine, named): &Named) -> Result<(), String> {
        match (named, self.count) {
            (Some(named), Some(count)) if *named != count => {
                return Err(format!(
                    "engine starts {named} drivers and count is {count}; delete count"
                ));
            }
            _ => {}
        }
        match engine {
            DriverEngine::Kubernetes => Ok(()),
            _ if self.cpu.is_some() => Err("cpu is only for kubernetes:N; delete it".to_owned()),
            _ => Ok(()),
        }
    }
}

pub(super) fn read(section: &Section<'_>) -> Result<DriverKeys, ConfigError> {
    section.refuse_keys_outside(&keys::SECTION)?;
    Ok(DriverKeys {
        engine: section.read(&keys::engine)?,
        count: section.read(&keys::count)?,
        spread: section.read(&keys::spread)?,
        image: section.read(&keys::image)?,
        cpu: section.read(&keys::cpu)?,
        listen: section.read(&keys::listen)?,
    })
}

fn spread_named(text: &str) -> Result<Spread, String> {
    let named = Spread::ALL.iter().find(|(name, _)| *name == text).map(|(_, spread)| *spread);
    let why = || format!("`{text}` is not a way to spread the work; write sessions or target");
    named.ok_or_else(why)
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not ADDRESS:PORT, such as 10.0.0.1:7432"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_engine_reads_name_and_count_and_refuses_other_text() {
        assert_eq!(parse_engine("local:3"), Ok((DriverEngine::Local, Some(3))));
        assert_eq!(parse_engine("slurm:4"), Ok((DriverEngine::Slurm, Some(4))));
        let line = "mpirun -np {n} {drive}";
        let run = DriverEngine::Run(line.to_owned());
        assert_eq!(parse_engine(&format!("run:{line}")), Ok((run.clone(), None)));
        assert_eq!(parse_engine(&format!("run:3:{line}")), Ok((run, Some(3))));
        for (bad, expected) in [
            ("local", "is not ENGINE:N"),
            ("mesos:3", "valid engines: local, slurm, kubernetes, run"),
            ("local:0", "is not a number of drivers from 1 to 1024"),
            ("local:x", "`x` is not a number"),
            ("run:mpirun", "does not contain {drive}"),
            ("run:0:{drive}", "`0` is not a number"),
        ] {
            let error = parse_engine(bad).unwrap_err();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn cores_are_written_as_kubernetes_does() {
        for good in ["1", "0.5", "500m", "16"] {
            assert_eq!(parse_cpu(good).as_deref(), Ok(good));
        }
        for bad in ["", "0", "0.0", "0m", "m", "1.5m", "-1", "1e3", "inf", "1\nx: y"] {
            assert!(parse_cpu(bad).unwrap_err().contains("is not a number of cores"), "{bad}");
        }
    }

    #[test]
    fn driver_options_are_required_or_refused_by_their_engine() {
        let resolve = |text, count, image: Option<&str>| {
            let image = image.map(str::to_owned);
            DriverSpec::new(parse_engine(text).unwrap(), count, image, None)
        };
        assert_eq!(resolve("run:{drive}", Some(2), None).unwrap().count, 2);
        assert!(resolve("run:{drive}", None, None).unwrap_err().contains("count = 4"));
        assert!(resolve("kubernetes:4", None, None).unwrap_err().contains("--image IMAGE"));
        assert!(resolve("local:4", None, Some("i")).unwrap_err().contains("only for kubernetes"));
        assert!(resolve("kubernetes:4", None, Some("i")).is_ok());
    }

    #[test]
    fn keys_that_the_engine_does_not_use_are_refused() {
        let keys = DriverKeys {
            engine: parse_engine("slurm:4").ok(),
            count: Some(8),
            ..DriverKeys::default()
        };
        let error = keys.resolve(None, None).unwrap_err();
        assert_eq!(error, "engine starts 4 drivers and count is 8; delete count");
        let by_flag = keys.resolve(parse_engine("local:2").ok(), None).unwrap().unwrap();
        assert_eq!(by_flag.count, 2, "the file's keys are for its own engine");
        let keys = DriverKeys { count: None, cpu: Some("2".to_owned()), ..keys };
        assert_eq!(
            keys.resolve(None, None).unwrap_err(),
            "cpu is only for kubernetes:N; delete it"
        );
    }
}
