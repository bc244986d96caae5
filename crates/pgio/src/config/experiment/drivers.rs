//! `[drivers]`: which engine starts how many drivers.

use std::net::SocketAddr;

use super::section::Section;
use crate::config::drivers::{
    DriverEngine, DriverSpec, MAX_DRIVERS, Named, Spread, parse_cpu, parse_engine,
};
use crate::config::error::ConfigError;
use crate::config::sections;

/// The keys of `[drivers]`, below the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverKeys {
    pub engine: Option<Named>,
    pub count: Option<u32>,
    pub image: Option<String>,
    pub cpu: Option<String>,
    pub spread: Option<Spread>,
    pub listen: Option<SocketAddr>,
}

impl DriverKeys {
    /// Returns what the flags and the file ask for together; `None` without an engine.
    pub fn resolve(
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

pub(super) fn parse(root: &Section<'_>) -> Result<DriverKeys, ConfigError> {
    let Some(section) = root.section("drivers")? else { return Ok(DriverKeys::default()) };
    section.refuse_keys_outside(&sections::DRIVERS)?;
    let mut keys = DriverKeys::default();
    if let Some(text) = section.string("engine")? {
        keys.engine = Some(parse_engine(text).map_err(|why| section.error("engine", why))?);
    }
    if let Some(count) = section.whole_number("count", 1..=u64::from(MAX_DRIVERS))? {
        keys.count = u32::try_from(count).ok();
    }
    if let Some(text) = section.string("spread")? {
        let named = Spread::ALL.iter().find(|(name, _)| *name == text);
        let why = || format!("`{text}` is not a way to spread the work; write sessions or target");
        keys.spread = Some(named.ok_or_else(|| section.error("spread", why()))?.1);
    }
    keys.image = section.string("image")?.map(str::to_owned);
    if let Some(text) = section.string("cpu")? {
        keys.cpu = Some(parse_cpu(text).map_err(|why| section.error("cpu", why))?);
    }
    if let Some(text) = section.string("listen")? {
        let address = text.parse();
        let why = || format!("`{text}` is not ADDRESS:PORT, such as 10.0.0.1:7432");
        keys.listen = Some(address.map_err(|_| section.error("listen", why()))?);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

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
