//! Tests of the table of keys and of layers.

use super::*;
use crate::config::uses::{CONNECT, LOAD};

fn layer(pairs: &[(&str, &str)]) -> Layer {
    let mut layer = Layer::default();
    for (name, text) in pairs {
        Key::named(name).unwrap().set(&mut layer, text).unwrap();
    }
    layer
}

#[test]
fn every_default_parses() {
    for using in Use::all() {
        let _ = Layer::defaults(using);
    }
}

#[test]
fn names_in_files_and_flags() {
    let key = Key::named("update_work_unit").unwrap();
    assert_eq!(key.conf_name(), "UPDATE_WORK_UNIT");
    assert_eq!(key.flag(), "update-work-unit");
    assert!(Key::named("UPDATE_PCT").is_none());
}

#[test]
fn names_are_unique_and_lower_case_and_help_is_one_line() {
    for (at, key) in KEYS.iter().enumerate() {
        assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{}", key.name);
        assert_eq!(key.name, key.name.to_ascii_lowercase());
        assert!(!key.help.contains('\n') && !key.help.ends_with('.'), "{}", key.name);
        assert!(key.uses().next().is_some(), "{}", key.name);
    }
}

#[test]
fn listed_names_are_keys() {
    let workloads = WorkloadKind::ALL.iter().flat_map(|kind| kind.def().keys.iter().copied());
    for name in workloads.chain([CONNECT, AS_LOADED]).chain(LOAD.iter().copied()).flatten() {
        assert!(Key::named(name).is_some(), "{name}");
    }
}

#[test]
fn scale_has_a_smaller_default_for_loading() {
    let scale = Key::named("scale").unwrap();
    assert_eq!(scale.default_for(Load), Some("4G"));
    assert_eq!(scale.default_for(Work(WorkloadKind::Slob)), Some("128G"));
}

#[test]
fn upper_layers_override_single_keys() {
    let flags = layer(&[("update_pct", "50")]);
    let workload = layer(&[("update_pct", "10"), ("work_unit", "8")]);
    let conf = layer(&[("work_unit", "255"), ("scale", "200M")]);
    assert_eq!(
        flags.over(workload).over(conf),
        layer(&[("update_pct", "50"), ("work_unit", "8"), ("scale", "200M")])
    );
}

#[test]
fn the_upper_layer_sets_the_run_length() {
    let time = || layer(&[("run_time", "10s")]);
    let number = || layer(&[("transactions", "10000")]);
    assert_eq!(time().over(number()).transactions, None);
    assert_eq!(number().over(time()).transactions, Some(10_000));
    let calls = || layer(&[("work_loop", "500")]);
    assert_eq!(calls().over(time()), calls());
    assert_eq!(time().over(calls()), time());
}
