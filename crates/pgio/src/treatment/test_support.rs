//! A context for tests of treatments: this machine under some names, and a server that does not exist. Short,
//! since all kinds share it.

use std::sync::Arc;

use super::changed_server::ChangedServer;
use super::context::{AdminSession, Context, Control, Layout};
use super::contract::Treatment;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};

/// Its declared changes, in words.
pub(super) fn in_words(treatment: &dyn Treatment) -> Vec<String> {
    treatment.declared().changes.iter().map(ToString::to_string).collect()
}

/// A context with the server on this machine.
pub(super) fn in_context<T>(act: impl FnOnce(&mut Context<'_>) -> T) -> T {
    in_context_of(&[LOCAL], Some(LOCAL), act)
}

/// `names` are all of this machine.
pub(super) fn in_context_of<T>(
    names: &[&str],
    server_host: Option<&str>,
    act: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    in_context_with(names, server_host, AdminSession::OnDemand(Box::default()), None, act)
}

/// A context on this machine in which every session is refused.
pub(super) fn in_context_of_refused<T>(
    control: &mut dyn Control,
    act: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let session = AdminSession::Unresolved("refused".to_owned());
    in_context_with(&[LOCAL], Some(LOCAL), session, Some(control), act)
}

fn in_context_with<T>(
    names: &[&str],
    server_host: Option<&str>,
    session: AdminSession<'_>,
    control: Option<&mut dyn Control>,
    act: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let host = |name: &&str| Arc::new(Host::connect(name, &Default::default()).unwrap());
    let hosts: Hosts = names.iter().map(|name| ((*name).to_owned(), host(name))).collect();
    let text = "host=/nonexistent user=nobody dbname=none";
    let params = pgio_connect::resolve(text, &pgio_connect::Env::default()).unwrap();
    let mut context = Context {
        params: &params,
        session,
        changed: ChangedServer::default(),
        hosts: &hosts,
        server_host,
        // The cast lets the context live shorter.
        control: control.map(|control| control as &mut dyn Control),
        private: false,
        layout: Layout::default(),
        streaming: Vec::new(),
        is_renewed: false,
        stop: Stop::new(),
    };
    act(&mut context)
}
