//! A world for tests of treatments: this machine under some names, and a server that is not there.

use std::sync::Arc;

use super::{Door, Treatment, World};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::connect;

/// What it says that it changes.
pub(super) fn in_words(treatment: &dyn Treatment) -> Vec<String> {
    treatment.changes().iter().map(ToString::to_string).collect()
}

/// With the server on this machine.
pub(super) fn in_world<T>(act: impl FnOnce(&mut World<'_>) -> T) -> T {
    in_world_of(&[LOCAL], Some(LOCAL), act)
}

/// `names` are all of this machine.
pub(super) fn in_world_of<T>(
    names: &[&str],
    server_host: Option<&str>,
    act: impl FnOnce(&mut World<'_>) -> T,
) -> T {
    let host = |name: &&str| Arc::new(Host::connect(name, &Default::default()).unwrap());
    let hosts: Hosts = names.iter().map(|name| ((*name).to_owned(), host(name))).collect();
    let text = "host=/nonexistent user=nobody dbname=none";
    let params = connect::resolve(text, &connect::Env::default()).unwrap();
    let mut world = World {
        params: &params,
        door: Door::OnDemand(Box::default()),
        hosts: &hosts,
        server_host,
        control: None,
        private: false,
        moved: Vec::new(),
        replicas: Vec::new(),
        stop: Stop::new(),
    };
    act(&mut world)
}
