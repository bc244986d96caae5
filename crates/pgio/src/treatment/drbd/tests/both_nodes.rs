//! What is read from both nodes, and what is refused because of either.

use super::*;

#[test]
fn evidence_is_read_from_both_nodes() {
    let (node, there) = node(Fake::new());
    let options = vec![("al-extents", "1237".to_owned())];
    let requested = RequestedState { options, ..asked(true, Some("C")) };
    let nodes = [node];
    let broken = || -> Vec<String> {
        let all = proof::read(&requested, &nodes, When::After, Disks::InSync).into_iter();
        all.filter(|e| !e.holds()).map(|e| format!("{}: {}", e.what, e.found)).collect()
    };
    assert!(broken().is_empty(), "{:?}", broken());
    there.0.lock().unwrap().net.insert("protocol".to_owned(), "A".to_owned());
    there.0.lock().unwrap().disk.insert("al-extents".to_owned(), "7".to_owned());
    assert_eq!(
        broken(),
        [
            "protocol of DRBD pgio on host db1: A",
            "al-extents of /dev/drbd0 of DRBD pgio on host db1: 7"
        ]
    );
    there.0.lock().unwrap().connected = false;
    assert_eq!(broken()[0], "connection of DRBD pgio on host db1: StandAlone");
    there.0.lock().unwrap().up = false;
    assert!(broken()[0].contains("unreadable: DRBD resource `pgio` is not up on host db1"));
}

#[test]
fn a_resync_counts_only_where_disks_must_be_in_sync() {
    let (node, there) = node(Fake { resyncing: true, ..Fake::new() });
    let requested = asked(true, Some("C"));
    let nodes = [node];
    let broken = |disks| -> Vec<String> {
        let all = proof::read(&requested, &nodes, When::Before, disks).into_iter();
        all.filter(|e| !e.holds()).map(|e| e.what).collect()
    };
    assert_eq!(broken(Disks::InSync), ["disks of DRBD pgio on host db1"]);
    assert!(broken(Disks::Any).is_empty());
    there.0.lock().unwrap().net.insert("protocol".to_owned(), "A".to_owned());
    assert_eq!(broken(Disks::Any), ["protocol of DRBD pgio on host db1"]);
}

#[test]
fn the_connection_of_a_resource_with_quorum_is_not_changed() {
    let check = |quorum: &'static str, server: Fake, peer_is_alone: bool, requested: bool| {
        let peer = Fake { connected: !peer_is_alone, role: "Secondary", ..Fake::new() };
        let nodes = [node(Fake { quorum, ..server }).0, node(peer).0];
        checks::roles(&asked(requested, None), &nodes).map_err(|error| error.to_string())
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
