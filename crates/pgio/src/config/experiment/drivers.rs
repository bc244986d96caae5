//! `[drivers]`: which engine starts how many drivers.

use std::net::SocketAddr;

use super::section::Section;
use crate::config::drivers::{DriverSpec, MOST, Named, Spread, parse_cpu, parse_engine};
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
        let of_file = self.image.clone().filter(|_| {
            !by_flag || matches!(engine.0, crate::config::drivers::DriverEngine::Kubernetes)
        });
        let mut spec = DriverSpec::new(engine, self.count, image.or(of_file), self.listen)?;
        if let Some(cpu) = &self.cpu {
            spec.cpu.clone_from(cpu);
        }
        spec.spread = self.spread.unwrap_or_default();
        Ok(Some(spec))
    }
}

pub(super) fn parse(root: &Section<'_>) -> Result<DriverKeys, ConfigError> {
    let Some(section) = root.section("drivers")? else { return Ok(DriverKeys::default()) };
    section.only_keys_of(&sections::DRIVERS)?;
    let mut keys = DriverKeys::default();
    if let Some(text) = section.string("engine")? {
        keys.engine = Some(parse_engine(text).map_err(|why| section.error("engine", why))?);
    }
    if let Some(count) = section.whole("count", 1..=u64::from(MOST))? {
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
