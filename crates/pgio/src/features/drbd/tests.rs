//! Against a node that behaves as module 8.4 does; the real one is in the lab.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard};

use super::show::Options;
use super::step::{AppliedDrbdChange, DrbdStep};
use super::*;
use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::host::stop::Stop;
use crate::treatment::context::Replica;
use crate::treatment::step::{OnConflict, Record, Step, Undone};
use crate::treatment::test_support::{assert_refused, described, in_context};
use pgio_results::model::CheckVerdict::{Invalid, Ok as Fine, Warning};
use pgio_results::telemetry::{Device, DrbdState, DrbdUse, HostUse, Storage, Telemetry};
use pgio_results::test_support::full_trial;

/// One resource `pgio`, configured for protocol C.
#[derive(Debug, Clone, PartialEq)]
struct Fake {
    boot: &'static str,
    up: bool,
    connected: bool,
    /// The peer is alone, too, and takes any protocol.
    alone: bool,
    /// A waiting peer keeps it.
    peer_protocol: String,
    refused: bool,
    /// The buffer to the peer is full.
    congested: bool,
    resyncing: bool,
    /// The number of answers that cannot be read.
    unreadable: u32,
    role: &'static str,
    quorum: &'static str,
    net: Options,
    disk: Options,
    changes: Vec<String>,
}

struct FakeNode(Mutex<Fake>);

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn configured() -> Options {
    options(&[("protocol", "C"), ("ko-count", "7")])
}

impl Fake {
    fn new() -> Fake {
        Fake {
            boot: "first",
            up: true,
            connected: true,
            alone: false,
            peer_protocol: "C".to_owned(),
            refused: false,
            congested: false,
            resyncing: false,
            unreadable: 0,
            role: "Primary",
            quorum: "off",
            net: configured(),
            disk: options(&[("al-extents", "1237"), ("disk-flushes", "yes")]),
            changes: Vec::new(),
        }
    }

    fn show(&self) -> String {
        let section = |name: &str, all: &Options| {
            let lines: String = all.iter().map(|(k, v)| format!("{k} {v};\n")).collect();
            format!("{name} {{ {lines} }}")
        };
        let net = if self.connected { section("net", &self.net) } else { String::new() };
        let disk = section("disk", &self.disk);
        let quorum = section("options", &options(&[("quorum", self.quorum)]));
        format!(
            "resource mail {{ _this_host {{ volume 0 {{ device minor 1; }} }} }}\n\
             resource pgio {{ {quorum} {net} _this_host {{ volume 0 {{ device minor 0; disk \"/dev/sdb\"; {disk} }} }} }}"
        )
    }

    fn events(&mut self) -> String {
        let left = if self.unreadable > 0 { "nan" } else { "0" };
        self.unreadable = self.unreadable.saturating_sub(1);
        let (connection, replication, peer) = match (self.connected, self.refused) {
            (true, false) if self.resyncing => ("Connected", "Established", "Inconsistent"),
            (true, false) => ("Connected", "Established", "UpToDate"),
            (true, true) => ("Connecting", "Off", "DUnknown"),
            (false, _) => ("StandAlone", "Off", "DUnknown"),
        };
        let role = self.role;
        let congested = if self.congested { "yes" } else { "no" };
        format!(
            "exists resource name:pgio role:{role} suspended:no\n\
             exists connection name:pgio peer-node-id:0 connection:{connection} role:Secondary congested:{congested}\n\
             exists device name:pgio volume:0 minor:0 disk:UpToDate\n\
             exists peer-device name:pgio peer-node-id:0 volume:0 replication:{replication} peer-disk:{peer} out-of-sync:{left}\n\
             exists -\n"
        )
    }

    fn answer(&mut self, words: &[&str]) -> Option<String> {
        let set = |options: &mut Options, words: &[&str]| {
            for word in words {
                let (name, value) = word.strip_prefix("--").unwrap().split_once('=').unwrap();
                options.insert(name.to_owned(), value.to_owned());
            }
        };
        match words {
            ["cat", "/proc/drbd"] => Some("version: 8.4.11 (api:1/proto:86-101)\n".to_owned()),
            ["sh", .., "sh", "drbdsetup"] if self.up => {
                let (show, events) = (self.show(), self.events());
                Some(format!("{}\n{show}\n==> state\n{events}", self.boot))
            }
            ["sh", .., "sh", "drbdsetup"] => Some(format!("{}\n==> state\n", self.boot)),
            ["sh", ..] => Some("uid 0\ncapabilities ffffffffffffffff\n".to_owned()),
            ["drbdsetup", "events2", ..] if self.up => Some(self.events()),
            ["drbdsetup", ..] if !self.up => Some(String::new()),
            ["drbdadm", "connect", given @ .., "pgio"] => {
                // As 8.4: with the options of the configuration, and those given.
                (self.connected, self.net) = (true, configured());
                set(&mut self.net, given);
                self.refused = !self.alone && self.net["protocol"] != self.peer_protocol;
                Some(String::new())
            }
            ["drbdadm", "disconnect", "pgio"] => {
                self.connected = false;
                Some(String::new())
            }
            ["drbdadm", "net-options", set_to @ .., "pgio"] if self.connected => {
                set(&mut self.net, set_to);
                self.peer_protocol = self.net["protocol"].clone();
                Some(String::new())
            }
            ["drbdsetup", "disk-options", "0", set_to @ ..] => {
                set(&mut self.disk, set_to);
                Some(String::new())
            }
            _ => None,
        }
    }
}

impl FakeNode {
    fn now(&self) -> MutexGuard<'_, Fake> {
        self.0.lock().unwrap()
    }
}

impl Exec for FakeNode {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        let line = command.to_string();
        let words: Vec<&str> = line.split(' ').collect();
        let mut fake = self.now();
        let message = fake.answer(&words);
        if words[0] == "drbdadm" || words.get(1) == Some(&"disk-options") {
            fake.changes.push(line.clone());
        }
        let status = ExitStatus::from_raw(if message.is_some() { 0 } else { 256 });
        Ok(Output { status, stdout: message.unwrap_or_default(), stderr: line })
    }
}

fn node(fake: Fake) -> (Node, Arc<FakeNode>) {
    let there = Arc::new(FakeNode(Mutex::new(fake)));
    (Node::open_with("db1".to_owned(), there.clone()).unwrap(), there)
}

fn asked(connected: bool, protocol: Option<&'static str>) -> RequestedState {
    RequestedState { resource: "pgio".to_owned(), connected, protocol, options: Vec::new() }
}

/// The steps as they are read back from a journal.
fn journaled(requested: &RequestedState, node: &Node) -> Vec<DrbdStep> {
    let seen = node.snapshot("pgio").unwrap();
    let step = |(change, value): (Change, String)| {
        let prior = change.current_value(&seen);
        let (resource, boot) = (requested.resource.clone(), seen.boot.clone());
        let role = seen.role().cloned();
        let step = DrbdStep::new(
            &node.name,
            prior,
            AppliedDrbdChange { resource, value, boot, role, change },
        );
        let stored = serde_json::to_string(&step.record()).unwrap();
        let read: Record = serde_json::from_str(&stored).unwrap();
        assert_eq!(DrbdStep::from_record(&read).unwrap(), step);
        step
    };
    requested.needed_changes(true, &seen).into_iter().map(step).collect()
}

#[test]
fn drbd_bodies_are_described_or_refused_with_line_and_key() {
    let described = |body: &str| described("drbd", body).unwrap();
    assert_eq!(
        described("{ resource = 'r', connection = 'disconnected' }"),
        ["DRBD r = disconnected"]
    );
    assert_eq!(
        described("{ resource = 'r', protocol = 'A', secondary = 's' }"),
        ["DRBD r = connected by protocol A"],
        "one factor"
    );
    assert_eq!(
        described(
            "{ resource = 'r', secondary = 's', al-extents = 257, md-flushes = false, disk-barrier = true }"
        ),
        [
            "DRBD r = connected",
            "al-extents of DRBD r = 257",
            "disk-barrier of DRBD r = yes",
            "md-flushes of DRBD r = no"
        ]
    );
    let cases = [
        ("3", "line 7: drbd: must be a table"),
        ("{ secondary = 's' }", "line 7: drbd.resource: is missing: the name of the DRBD resource"),
        ("{ resource = 'all', secondary = 's' }", "`all` is not a resource name"),
        ("{ resource = 'r' }", "line 7: drbd.secondary: is missing: the name of the peer's host"),
        ("{ resource = 'r', protocl = 'A' }", "nearest valid one is `protocol`"),
        ("{ resource = 'r', protocol = 'D', secondary = 's' }", "drbd.protocol: cannot be `D`"),
        (
            "{ resource = 'r', protocol = 'A', connection = 'disconnected' }",
            "has no effect while disconnected",
        ),
        ("{ resource = 'r', connection = 'yes' }", "drbd.connection: cannot be `yes`"),
        ("{ resource = 'r', secondary = 's', al-extents = 3 }", "from 7 to 65534, not 3"),
        ("{ resource = 'r', secondary = 's', md-flushes = 'no' }", "must be true or false"),
    ];
    assert_refused("drbd", &cases);
}

#[test]
fn drbd_steps_change_only_values_that_differ() {
    let (node, there) = node(Fake::new());
    assert_eq!(journaled(&asked(true, None), &node), []);
    assert_eq!(journaled(&asked(true, Some("C")), &node), []);
    let steps = journaled(&asked(true, Some("A")), &node);
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(step.label.what, "protocol of DRBD resource pgio");
    assert_eq!((step.label.host(), step.prior.as_deref()), (Some("db1"), Some("C")));
    let options = vec![("al-extents", "257".to_owned()), ("disk-flushes", "yes".to_owned())];
    let steps = journaled(&RequestedState { options, ..asked(false, None) }, &node);
    let what: Vec<&str> = steps.iter().map(|s| s.label.what.as_str()).collect();
    assert_eq!(
        what,
        ["connection of DRBD resource pgio", "al-extents of /dev/drbd0 (DRBD resource pgio)"]
    );
    assert!(there.now().changes.is_empty(), "looking changes nothing");
}

#[test]
fn a_standalone_peer_is_connected_and_a_waiting_one_kept() {
    let (node, _) = node(Fake { connected: false, ..Fake::new() });
    let seen = node.snapshot("pgio").unwrap();
    let kinds = |requested: &RequestedState, first| requested.needed_changes(first, &seen).len();
    assert_eq!(kinds(&asked(true, None), false), 1);
    assert_eq!(kinds(&asked(false, None), false), 0);
    // What the protocol will be is not known before there is a connection.
    assert_eq!(kinds(&asked(true, Some("C")), true), 2);
    assert_eq!(kinds(&asked(true, Some("C")), false), 1, "the peer follows");
}

#[test]
fn a_node_that_changed_its_role_is_not_connected() {
    let (node, there) = node(Fake::new());
    let [step] = &journaled(&asked(false, None), &node)[..] else { panic!() };
    step.apply(&node, &Stop::new()).unwrap();
    let undo = |on_conflict| step.undo_on(&node, on_conflict, &Stop::new());
    there.now().role = "Secondary";
    for on_conflict in [OnConflict::Ask, OnConflict::Restore] {
        let error = undo(on_conflict).unwrap_err().to_string();
        assert!(error.contains("was Primary") && error.contains("is Secondary now"), "{error}");
        assert!(error.contains("`drbdadm connect pgio`"), "{error}");
    }
    assert_eq!(undo(OnConflict::Keep).unwrap(), Undone::Kept);
    assert!(!there.now().connected);
    there.now().role = "Primary";
    assert_eq!(undo(OnConflict::Ask).unwrap(), Undone::Restored);
    assert!(there.now().connected);
}

/// Everything at once, and with values that no configuration has.
fn everything() -> (RequestedState, Fake) {
    let options = vec![("al-extents", "257".to_owned()), ("disk-flushes", "no".to_owned())];
    let mut found = Fake::new();
    found.net = self::options(&[("protocol", "B"), ("ko-count", "3")]);
    found.peer_protocol = "B".to_owned();
    found.disk.insert("al-extents".to_owned(), "601".to_owned());
    (RequestedState { options, ..asked(false, None) }, found)
}

#[test]
fn undo_after_any_number_of_steps_restores_the_prior_state() {
    let (everything, found) = everything();
    let protocol = asked(true, Some("A"));
    for requested in [&everything, &protocol] {
        let (node, _) = node(found.clone());
        let steps = journaled(requested, &node);
        // The last intent may be written and not applied.
        for (applied, intent) in (0..=steps.len()).flat_map(|n| [(n, false), (n, true)]) {
            let (node, there) = self::node(found.clone());
            for step in &steps[..applied] {
                step.apply(&node, &Stop::new()).unwrap();
            }
            let journaled = (applied + usize::from(intent)).min(steps.len());
            // Twice: an undo can be cut short as well.
            for _ in 0..2 {
                for step in steps[..journaled].iter().rev() {
                    let undone = step.undo_on(&node, OnConflict::Ask, &Stop::new());
                    assert_eq!(undone.unwrap(), Undone::Restored);
                }
            }
            let now = there.now().clone();
            assert_eq!(Fake { changes: Vec::new(), ..now }, found, "{applied} {intent}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_asked_again() {
    let unreadable = || Fake { unreadable: 3, ..Fake::new() };
    let (requested, stop) = (asked(true, None), Stop::new());
    for waits in [node::until_connected, node::until_in_sync, node::until_resync_ends] {
        waits(&node(unreadable()).0, "pgio", &stop).unwrap();
    }
    let (back, _) = node(unreadable());
    assert_eq!(node::until_returned(&back, "pgio", &stop).unwrap(), Undone::Restored);
    let (node, _) = node(unreadable());
    let evidence = proof::read(&requested, &[node], When::After, Disks::InSync);
    assert!(evidence.iter().all(Evidence::holds), "{evidence:?}");
}

#[test]
fn a_stop_request_ends_a_wait() {
    // The peers wait for each other, for ever.
    let (node, _) = node(Fake { refused: true, ..Fake::new() });
    let stop = Stop::new();
    stop.request();
    for waited in [node::until_connected, node::until_alone, node::until_in_sync] {
        let waited = waited(&node, "pgio", &stop);
        assert!(matches!(waited, Err(TreatmentError::Stopped)), "{waited:?}");
    }
    // What is being undone is waited for, until it is asked once more.
    let again = stop.clone();
    let asking = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        again.request();
    });
    assert_eq!(node::until_returned(&node, "pgio", &stop).unwrap(), Undone::RestoredNotAwaited);
    assert!(stop.urgent());
    asking.join().unwrap();
}

#[test]
fn undo_asks_about_options_of_a_manual_connection() {
    let (everything, found) = everything();
    let (node, there) = node(Fake { alone: true, ..found });
    let steps = journaled(&everything, &node);
    let ours = &steps[0];
    ours.apply(&node, &Stop::new()).unwrap();
    node.connect("pgio", &Options::new()).unwrap();
    let undo = |on_conflict| ours.undo_on(&node, on_conflict, &Stop::new());
    let error = undo(OnConflict::Ask).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "connection of DRBD resource pgio on host db1 is now connected with ko-count 7, protocol C, neither pgio's value (disconnected) nor the prior one (connected with ko-count 3, protocol B)"
        ),
        "{error}"
    );
    assert_eq!(undo(OnConflict::Keep).unwrap(), Undone::Kept);
    assert_eq!(there.now().net, configured(), "undo asked and changed nothing");
    assert_eq!(undo(OnConflict::Restore).unwrap(), Undone::Restored);
    assert_eq!(there.now().net["protocol"], "B");
    assert_eq!(there.now().net["ko-count"], "3");
    assert_eq!(undo(OnConflict::Ask).unwrap(), Undone::Restored, "nothing is left to ask");
}

#[test]
fn a_protocol_without_prior_value_is_undone_by_disconnecting() {
    let (node, there) = node(Fake { connected: false, ..Fake::new() });
    let steps = journaled(&asked(true, Some("A")), &node);
    assert_eq!(steps[1].record().prior, serde_json::Value::Null);
    for step in &steps {
        step.apply(&node, &Stop::new()).unwrap();
    }
    assert_eq!(there.now().net["protocol"], "A");
    for step in steps.iter().rev() {
        step.undo_on(&node, OnConflict::Ask, &Stop::new()).unwrap();
    }
    assert!(!there.now().connected);
}

#[test]
fn a_reboot_removes_every_change() {
    let (everything, found) = everything();
    let (node, _) = node(found.clone());
    let steps = journaled(&everything, &node);
    // The connection, al-extents, disk-flushes: what the files have is what was found, or it is not.
    let (kept, same) = (Undone::Kept, Undone::Restored);
    for (there, expected) in [
        (Fake { boot: "second", connected: false, ..Fake::new() }, [kept, kept, same]),
        (Fake { boot: "second", ..Fake::new() }, [kept, kept, same]),
        (Fake { boot: "second", ..found }, [same, same, same]),
        (Fake { up: false, ..Fake::new() }, [kept, kept, kept]),
    ] {
        let (node, there) = self::node(there);
        let before = there.now().clone();
        for (step, expected) in steps.iter().zip(expected).rev() {
            let undone = step.undo_on(&node, OnConflict::Ask, &Stop::new());
            assert_eq!(undone.unwrap(), expected, "{}", step.label);
        }
        assert_eq!(*there.now(), before, "and nothing is changed");
    }
}

#[test]
fn a_protocol_is_not_restored_without_its_connection() {
    let (node, there) = node(Fake::new());
    let steps = journaled(&asked(true, Some("A")), &node);
    let ours = &steps[0];
    ours.apply(&node, &Stop::new()).unwrap();
    node.disconnect("pgio").unwrap();
    let undone = ours.undo_on(&node, OnConflict::Ask, &Stop::new()).unwrap();
    assert_eq!(undone, Undone::Kept);
    assert!(!there.now().connected);
}

#[test]
fn undo_asks_about_changes_of_others() {
    let (node, there) = node(Fake::new());
    let steps = journaled(&asked(true, Some("A")), &node);
    let ours = &steps[0];
    ours.apply(&node, &Stop::new()).unwrap();
    there.now().net.insert("protocol".to_owned(), "B".to_owned());
    let error = ours.undo_on(&node, OnConflict::Ask, &Stop::new()).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "protocol of DRBD resource pgio on host db1 is now B, neither pgio's value (A) nor the prior one (C)"
        ),
        "{error}"
    );
    assert_eq!(ours.undo_on(&node, OnConflict::Keep, &Stop::new()).unwrap(), Undone::Kept);
    assert_eq!(there.now().net["protocol"], "B");
    assert_eq!(ours.undo_on(&node, OnConflict::Restore, &Stop::new()).unwrap(), Undone::Restored);
    assert_eq!(there.now().net["protocol"], "C");
}

#[test]
fn a_missing_resource_is_refused_with_the_known_ones() {
    let (node, _) = node(Fake::new());
    assert_eq!(
        node.snapshot("pgoi").unwrap_err().to_string(),
        "DRBD resource `pgoi` is not up on host db1 (up: mail, pgio); correct the name, or run \
         `drbdadm up pgoi` there"
    );
    let (down, _) = self::node(Fake { up: false, ..Fake::new() });
    assert_eq!(
        down.snapshot("pgio").unwrap_err().to_string(),
        "DRBD resource `pgio` is not up on host db1 (up: none); run `drbdadm up pgio` there"
    );
    let none = Node::open_with("db1".to_owned(), Arc::new(Nothing));
    assert!(none.err().unwrap().to_string().starts_with("host db1 has no DRBD"));
}

#[test]
fn the_peers_disk_is_in_the_layout_for_later_treatments() {
    let (peer, _) = node(Fake::new());
    let expected = Replica {
        host: "db1".to_owned(),
        description: "DRBD pgio".to_owned(),
        devices: vec!["/dev/sdb".to_owned()],
    };
    assert_eq!(replica(&asked(true, None), &peer).unwrap(), expected);
}

struct Nothing;

impl Exec for Nothing {
    fn output(&self, _: &CommandLine) -> Result<Output, ExecError> {
        let status = ExitStatus::from_raw(256);
        Ok(Output { status, stdout: "boot\n".to_owned(), stderr: String::new() })
    }
}

/// What is not in force, and what was found instead.
fn broken(requested: &RequestedState, node: &Node, when: When, disks: Disks) -> Vec<String> {
    let all = proof::read(requested, std::slice::from_ref(node), when, disks).into_iter();
    all.filter(|e| !e.holds()).map(|e| format!("{}: {}", e.what, e.found)).collect()
}

#[test]
fn evidence_is_read_from_both_nodes() {
    let (node, there) = node(Fake::new());
    let options = vec![("al-extents", "1237".to_owned())];
    let requested = RequestedState { options, ..asked(true, Some("C")) };
    let broken = || broken(&requested, &node, When::After, Disks::InSync);
    assert!(broken().is_empty(), "{:?}", broken());
    there.now().net.insert("protocol".to_owned(), "A".to_owned());
    there.now().disk.insert("al-extents".to_owned(), "7".to_owned());
    assert_eq!(
        broken(),
        [
            "protocol of DRBD pgio on host db1: A",
            "al-extents of /dev/drbd0 of DRBD pgio on host db1: 7"
        ]
    );
    there.now().connected = false;
    assert_eq!(broken()[0], "connection of DRBD pgio on host db1: StandAlone");
    there.now().up = false;
    assert!(broken()[0].contains("unreadable: DRBD resource `pgio` is not up on host db1"));
}

#[test]
fn a_resync_counts_only_where_disks_must_be_in_sync() {
    let (node, there) = node(Fake { resyncing: true, ..Fake::new() });
    let broken = |disks| broken(&asked(true, Some("C")), &node, When::Before, disks);
    let [disks] = &broken(Disks::InSync)[..] else { panic!() };
    assert!(disks.starts_with("disks of DRBD pgio on host db1: "), "{disks}");
    assert!(broken(Disks::Any).is_empty());
    there.now().net.insert("protocol".to_owned(), "A".to_owned());
    assert_eq!(broken(Disks::Any), ["protocol of DRBD pgio on host db1: A"]);
}

#[test]
fn the_connection_of_a_resource_with_quorum_is_not_changed() {
    let check = |quorum: &'static str, server: Fake, peer_is_alone: bool, requested: bool| {
        let peer = Fake { connected: !peer_is_alone, role: "Secondary", ..Fake::new() };
        let nodes = [node(Fake { quorum, ..server }).0, node(peer).0];
        roles(&asked(requested, None), &nodes).map_err(|error| error.to_string())
    };
    let refused = |server: &Fake, peer_is_alone: bool, requested: bool| {
        let why = check("majority", server.clone(), peer_is_alone, requested).unwrap_err();
        assert!(why.starts_with("DRBD resource `pgio` has quorum majority on host db1"), "{why}");
        assert_eq!(check("off", server.clone(), peer_is_alone, requested), Ok(()));
    };
    let (connected, alone) = (Fake::new(), Fake { connected: false, ..Fake::new() });
    assert_eq!(check("majority", connected.clone(), false, true), Ok(()), "nothing to change");
    assert_eq!(check("majority", alone.clone(), true, false), Ok(()), "nothing to change");
    refused(&connected, false, false);
    refused(&alone, false, true);
    // The server's node waits already, and the peer is to connect.
    refused(&Fake { refused: true, ..connected }, true, true);
}

const GOOD: (&str, &str, u64) = ("Connected", "Established", 20);

fn trial_of(states: &[(&str, &str, u64)], change: impl Fn(&mut DrbdUse)) -> Trial {
    let state = |(connection, replication, samples): &(&str, &str, u64)| DrbdState {
        role: "Primary".to_owned(),
        peer_role: "Secondary".to_owned(),
        connection: (*connection).to_owned(),
        replication: (*replication).to_owned(),
        disk: "UpToDate".to_owned(),
        peer_disk: "UpToDate".to_owned(),
        protocol: Some("C".to_owned()),
        samples: *samples,
        ..DrbdState::default()
    };
    let mut drbd = DrbdUse { states: states.iter().map(state).collect(), ..DrbdUse::default() };
    change(&mut drbd);
    let host = HostUse { drbd: [("drbd0".to_owned(), drbd)].into(), ..HostUse::default() };
    let device = Device { name: "drbd0".to_owned(), ..Device::default() };
    let storage = Storage { host: "db1".to_owned(), devices: vec![device], ..Storage::default() };
    let telemetry = Telemetry {
        hosts: BTreeMap::from([("db1".to_owned(), host)]),
        storage: vec![storage],
        ..Telemetry::default()
    };
    Trial { telemetry: Some(telemetry), ..full_trial() }
}

#[test]
fn the_samples_inside_the_window_are_judged() {
    let (connected, alone) = (asked(true, Some("C")), asked(false, None));
    let good = |change: fn(&mut DrbdUse)| trial_of(&[GOOD], change);
    let and = |states| trial_of(&[GOOD, states], |_| ());
    let full = |samples| {
        trial_of(&[GOOD, ("Connected", "Established", samples)], |d| {
            d.states[0].congested = Some(false);
            d.states[1].congested = Some(true);
        })
    };
    let apart = trial_of(&[("StandAlone", "Off", 20)], |d| d.out_of_sync_bytes_after = 1 << 30);
    let unwatched = || Trial { telemetry: None, ..full_trial() };
    // Verdicts on connection, loss and congestion.
    for (case, requested, trial, expected) in [
        ("good", &connected, good(|_| ()), &[Fine, Fine, Fine][..]),
        ("taken away", &connected, and(("StandAlone", "Off", 1)), &[Invalid, Fine, Fine]),
        ("lost", &connected, and(("Connecting", "Off", 1)), &[Fine, Warning, Fine]),
        ("ahead", &connected, and(("Connected", "Ahead", 1)), &[Fine, Fine, Warning]),
        ("grown", &connected, good(|d| d.out_of_sync_bytes_after = 4096), &[Fine, Warning, Fine]),
        ("connected anew", &connected, good(|d| d.connected_anew = 1), &[Fine, Warning, Fine]),
        (
            "outdated",
            &connected,
            good(|d| d.states[0].peer_disk = "Outdated".to_owned()),
            &[Fine, Warning, Fine],
        ),
        ("full once", &connected, full(1), &[Fine, Fine, Warning]),
        ("full", &connected, full(9), &[Fine, Fine, Warning]),
        ("alone", &alone, apart, &[Fine]),
        ("other", &connected, good(|d| d.resource = Some("mail".to_owned())), &[Invalid]),
        ("unwatched", &connected, unwatched(), &[Invalid]),
        ("alone and unwatched", &alone, unwatched(), &[Invalid]),
    ] {
        let checks = proof::judge(requested, BufferReadings::default(), &trial);
        let found: Vec<_> = checks.iter().map(|c| (c.id.as_str(), c.verdict)).collect();
        let ids = ["drbd-connection", "drbd-connection-lost", "drbd-congested"];
        let expected: Vec<_> = ids.into_iter().zip(expected.iter().copied()).collect();
        assert_eq!(found, expected, "{case}");
        if case == "lost" {
            let text = "DRBD pgio: it was Connecting on `db1` in 1 sample";
            assert_eq!(checks[1].message, text);
        }
    }
    for requested in [asked(true, Some("A")), alone] {
        let checks = proof::judge(&requested, BufferReadings::default(), &good(|_| ()));
        assert_eq!(checks[0].verdict, Invalid, "{requested:?}");
    }
}

/// Readings count, because DRBD 8.4 is sampled from /proc/drbd, which does not report congestion.
#[test]
fn a_full_buffer_is_counted_inside_the_window() {
    let (node, there) = node(Fake::new());
    let mut in_force = DrbdInForce {
        requested: asked(true, Some("C")),
        nodes: Arc::new([node]),
        buffer: BufferReadings::default(),
    };
    let look = |in_force: &mut DrbdInForce, times: usize, congested: bool| {
        there.now().congested = congested;
        let evidence = in_context(|context| {
            (0..times).flat_map(|_| in_force.verify(context, When::During)).collect::<Vec<_>>()
        });
        assert_eq!(evidence, [], "equal ones would be kept once");
    };
    let trial = trial_of(&[GOOD], |_| ());
    let judged = |in_force: &DrbdInForce| {
        let check = in_force.judge(&trial).remove(2);
        (check.verdict, check.message)
    };
    look(&mut in_force, 18, false);
    assert_eq!(judged(&in_force).0, Fine);
    look(&mut in_force, 2, true);
    let text = "the buffer to the peer of DRBD pgio was full in 2 of 20 readings";
    assert_eq!(judged(&in_force), (Warning, text.to_owned()));
    look(&mut in_force, 1, true);
    assert_eq!(judged(&in_force).0, Warning);
    // A reading that fails is not counted.
    there.now().up = false;
    look(&mut in_force, 5, true);
    assert!(judged(&in_force).1.ends_with("3 of 21 readings"), "{}", judged(&in_force).1);
    // The next trial begins with none.
    in_context(|context| in_force.verify(context, When::Before));
    assert!(judged(&in_force).1.contains("whether the buffer to it was full is unknown"));
}

#[test]
fn an_unknown_buffer_matters_with_protocol_a() {
    let verdict = |requested: &RequestedState, protocol: &str| {
        let trial = trial_of(&[GOOD], |d| d.states[0].protocol = Some(protocol.to_owned()));
        proof::judge(requested, BufferReadings::default(), &trial).remove(2).verdict
    };
    assert_eq!(verdict(&asked(true, Some("C")), "C"), Fine);
    assert_eq!(verdict(&asked(true, Some("A")), "A"), Warning);
    assert_eq!(verdict(&asked(true, None), "A"), Warning, "by its files");
}
