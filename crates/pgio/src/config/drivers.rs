//! `--drivers ENGINE` and `[drivers]`: which engine starts how many drivers. Text only.

use std::net::SocketAddr;

/// What starts the drivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEngine {
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
pub enum Spread {
    /// All drivers have a part of every server's sessions.
    #[default]
    Sessions,
    /// Each server has drivers of its own, as many as every other.
    Target,
}

choice! { Spread: Sessions "sessions", Target "target" }

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverSpec {
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
    pub fn divided(&self) -> String {
        match self.spread {
            Spread::Sessions => self.count.to_string(),
            Spread::Target => format!("{}, divided among the servers", self.count),
        }
    }
}

/// Drivers beyond this are a mistake: one drives some 280,000 queries per second per core.
pub const MAX_DRIVERS: u32 = 1024;

/// The engine and count as one text gives them; `run:` may leave the count to another key.
pub type Named = (DriverEngine, Option<u32>);

/// Parses `local:3`, `slurm:4`, `kubernetes:4`, `run:COMMAND` or `run:4:COMMAND`.
pub fn parse_engine(text: &str) -> Result<Named, String> {
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

pub fn parse_count(text: &str) -> Result<u32, String> {
    let count: Option<u32> = text.parse().ok().filter(|n| (1..=MAX_DRIVERS).contains(n));
    count.ok_or_else(|| format!("`{text}` is not a number of drivers from 1 to {MAX_DRIVERS}"))
}

/// Parses cores as Kubernetes writes them: `2`, `0.5` or `500m`.
pub fn parse_cpu(text: &str) -> Result<String, String> {
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
    pub fn new(
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
}
