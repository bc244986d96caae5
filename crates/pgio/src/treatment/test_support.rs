//! For tests of treatments: bodies parsed as from a file, and a context of this machine under some names with a server
//! that does not exist.

use std::sync::Arc;

use super::context::{AdminSession, Context, Control, Layout};
use super::contract::Treatment;
use super::error::TreatmentError;
use super::kinds;
use super::resource::ChangedServer;
use crate::config::experiment::TreatmentSpec;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};

/// A treatment as a condition has it in line 7.
pub(crate) fn spec(kind: &str, body: &str) -> TreatmentSpec {
    let table: toml::Table = format!("body = {body}").parse().unwrap();
    TreatmentSpec { kind: kind.to_owned(), body: table["body"].clone(), line: 7 }
}

pub(crate) fn parsed(kind: &str, body: &str) -> Result<Box<dyn Treatment>, TreatmentError> {
    kinds::parse(&spec(kind, body))
}

/// Its declared changes, in words, or its error.
pub(crate) fn described(kind: &str, body: &str) -> Result<Vec<String>, String> {
    parsed(kind, body).map(|t| in_words(t.as_ref())).map_err(|e| e.to_string())
}

/// Each of these bodies is refused, in its line and with this text.
pub(crate) fn assert_refused(kind: &str, cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        let error = described(kind, body).unwrap_err();
        assert!(error.starts_with("line 7: ") && error.contains(expected), "{body}: {error}");
    }
}

/// Its declared changes, in words.
pub(crate) fn in_words(treatment: &dyn Treatment) -> Vec<String> {
    treatment.declared().changes.iter().map(ToString::to_string).collect()
}

/// A context with the server on this machine.
pub(crate) fn in_context<T>(act: impl FnOnce(&mut Context<'_>) -> T) -> T {
    in_context_of(&[LOCAL], Some(LOCAL), act)
}

/// `names` are all of this machine.
pub(crate) fn in_context_of<T>(
    names: &[&str],
    server_host: Option<&str>,
    act: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    in_context_with(names, server_host, AdminSession::OnDemand(Box::default()), None, act)
}

/// A context on this machine in which every session is refused.
pub(crate) fn in_context_of_refused<T>(
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
        streaming: None,
        is_renewed: false,
        stop: Stop::new(),
    };
    act(&mut context)
}
