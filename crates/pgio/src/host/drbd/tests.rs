use super::show::Config;
use super::*;

/// Written by hand from the documentation: see the README in fixtures/9.
macro_rules! nine {
    ($file:literal) => {
        include_str!(concat!("fixtures/9/", $file))
    };
}

/// Recorded from two real nodes.
macro_rules! eight {
    ($($part:literal),+) => {
        include_str!(concat!("fixtures/8.4/", $($part),+))
    };
}

/// `drbdsetup events2` and /proc/drbd, read immediately after each other.
macro_rules! both {
    ($name:literal) => {
        ($name, eight!($name, ".events2"), eight!($name, ".proc"))
    };
}

#[test]
fn module_8_4_sources_agree() {
    let summary = |name: &str, state: &State| {
        format!(
            "{name}: {} {}/{} {} out of sync {}",
            state.link(),
            state.role,
            state.peer_role,
            state.disks(),
            state.out_of_sync_kib > 0
        )
    };
    let mut all = Vec::new();
    for (name, events2, proc_drbd) in [
        both!("connected-c.primary"),
        both!("connected-c.secondary"),
        both!("connected-b.primary"),
        both!("connected-a.primary"),
        both!("connected-a.secondary"),
        both!("standalone.primary"),
        both!("standalone.secondary"),
        both!("standalone-written.primary"),
        both!("both-standalone.secondary"),
        both!("waiting.primary"),
        both!("waiting.secondary"),
        both!("resyncing.primary"),
        both!("resyncing.secondary"),
        both!("resynced.primary"),
    ] {
        let [by_events] = events::parse(events2).unwrap().try_into().unwrap();
        let [by_proc] = proc::parse(proc_drbd).unwrap().try_into().unwrap();
        assert_eq!(summary(name, &by_events), summary(name, &by_proc));
        assert_eq!((by_events.minor, by_events.al_writes), (by_proc.minor, by_proc.al_writes));
        assert_eq!(by_events.resource.as_deref(), Some("pgio"));
        assert_eq!(by_events.congested, Some(false));
        // The second source was read slightly later.
        let near = |a: u64, b: u64| assert!(a.abs_diff(b) < 4096, "{name}: {a} {b}");
        near(by_events.sent_kib, by_proc.sent_kib);
        near(by_events.received_kib, by_proc.received_kib);
        near(by_events.out_of_sync_kib, by_proc.out_of_sync_kib);
        let protocol = by_proc.protocol.as_deref().unwrap_or("no protocol");
        all.push(format!("{}, {protocol}", summary(name, &by_events)));
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn module_8_4_configuration() {
    for (text, protocol) in [
        (eight!("connected-a.primary.show-defaults"), Some("A")),
        (eight!("connected-a.secondary.show-defaults"), Some("A")),
        (eight!("connected-b.primary.show-defaults"), Some("B")),
        (eight!("connected-c.primary.show-defaults"), Some("C")),
        (eight!("standalone.primary.show-defaults"), None),
    ] {
        let [config] = show::parse(text).unwrap().try_into().unwrap();
        assert_eq!((config.resource.as_str(), config.protocol()), ("pgio", protocol));
        assert_eq!(config.quorum(), None);
        let [volume] = config.volumes.as_slice() else { panic!("{config:?}") };
        assert_eq!((volume.minor, volume.backing.as_deref()), (0, Some("/dev/ubdb")));
        assert_eq!(volume.options["al-extents"], "1237");
        assert_eq!(volume.options["disk-barrier"], "no");
        assert!(config.connections.iter().all(|c| !c.options.contains_key("shared-secret")));
        assert_eq!(config.connections.len(), usize::from(protocol.is_some()));
    }
}

#[test]
fn module_9_connected() {
    let found = status::parse(nine!("status-connected.json")).unwrap();
    let [state] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(state.resource.as_deref(), Some("pgio"));
    assert_eq!((state.minor, device(state.minor).as_str()), (7, "drbd7"));
    assert!(state.is_primary() && state.is_connected() && state.is_in_sync());
    assert_eq!(
        (state.link().as_str(), state.disks().as_str()),
        ("Connected/Established", "UpToDate/UpToDate")
    );
    assert_eq!((state.sent_kib, state.received_kib, state.al_writes), (2_202_704, 0, 215));
    assert_eq!((state.pending, state.unacked, state.out_of_sync_kib), (4, 0, 0));
    assert_eq!((state.suspended, state.congested), (false, Some(false)));
    assert_eq!(state.percent_in_sync, Some(100.0));
}

#[test]
fn a_peer_that_is_diskless_on_purpose_is_no_replica() {
    let connection = |peer: &str, disk: &str, client: bool| {
        format!(
            r#"{{ "name": "{peer}", "connection-state": "Connected", "peer-role": "Secondary",
                "peer_devices": [{{ "volume": 0, "replication-state": "Established",
                    "peer-disk-state": "{disk}", "peer-client": {client} }}] }}"#
        )
    };
    let status = |peers: &[String]| {
        let text = format!(
            r#"[{{ "name": "r", "role": "Primary", "connections": [{}],
                "devices": [{{ "volume": 0, "minor": 7, "disk-state": "UpToDate" }}] }}]"#,
            peers.join(",")
        );
        status::parse(&text).unwrap()
    };
    let (replica, tiebreaker) =
        (connection("db2", "UpToDate", false), connection("db3", "Diskless", true));
    let found = status(&[replica, tiebreaker.clone()]);
    assert_eq!(found.iter().map(State::disks).collect::<Vec<_>>(), ["UpToDate/UpToDate"]);
    assert!(found[0].is_in_sync());
    assert_eq!(status(&[tiebreaker])[0].connection, STANDALONE, "no replica");
    // A disk that was detached after an error is missing.
    let failed = status(&[connection("db2", "Diskless", false)]);
    assert_eq!(failed[0].disks(), "UpToDate/Diskless");

    let events = |client: &str| {
        let text = format!(
            "exists resource name:r role:Primary suspended:no\n\
             exists connection name:r peer-node-id:1 conn-name:db3 connection:Connected role:Secondary\n\
             exists device name:r volume:0 minor:7 disk:UpToDate client:no\n\
             exists peer-device name:r peer-node-id:1 conn-name:db3 volume:0 \
             replication:Established peer-disk:Diskless peer-client:{client}\n"
        );
        events::parse(&text).unwrap()
    };
    assert_eq!(events("yes")[0].connection, STANDALONE);
    assert_eq!(events("no")[0].disks(), "UpToDate/Diskless");
}

/// The form in which some versions report an unreachable peer.
#[test]
fn module_9_unreachable_peer_without_volumes() {
    let text = r#"[{ "name": "pgio", "role": "Primary",
        "devices": [{ "volume": 0, "minor": 7, "disk-state": "UpToDate" }],
        "connections": [{ "name": "db2", "connection-state": "Connecting", "peer_devices": [] }] }]"#;
    let found = status::parse(text).unwrap();
    let [state] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (state.connection.as_str(), state.disks().as_str()),
        ("Connecting", "UpToDate/DUnknown")
    );
    assert!(!state.is_standalone() && !state.is_in_sync());
}

#[test]
fn module_9_standalone() {
    let found = status::parse(nine!("status-standalone.json")).unwrap();
    let [state] = found.as_slice() else { panic!("{found:?}") };
    assert!(state.is_standalone() && !state.is_in_sync());
    assert_eq!((state.link().as_str(), state.out_of_sync_kib), ("StandAlone", 81_920));
    assert_eq!(state.disks(), "UpToDate/DUnknown");
}

#[test]
fn module_9_with_several_resources_volumes_and_peers() {
    let found = status::parse(nine!("status-three-nodes.json")).unwrap();
    let states: Vec<_> = found.iter().map(|s| (s.minor, s.link(), s.peer_disk.as_str())).collect();
    assert_eq!(
        states,
        [
            (7, "Connected/SyncSource".to_owned(), "Inconsistent"),
            (7, "Connecting".to_owned(), "DUnknown"),
            (8, "Connected/Established".to_owned(), "UpToDate"),
        ]
    );
    assert!(found[0].suspended && found[0].congested == Some(true));
    assert!(is_resync(&found[0].replication));
    // Statistics are absent unless requested.
    assert_eq!((found[2].al_writes, found[2].sent_kib), (0, 8));
}

fn check_configuration_9(config: &Config) {
    assert_eq!(config.resource, "pgio");
    assert_eq!(config.protocol(), Some("C"));
    assert_eq!(config.quorum(), None, "it is off");
    let [volume] = config.volumes.as_slice() else { panic!("{config:?}") };
    assert_eq!((volume.minor, volume.backing.as_deref()), (7, Some("/dev/vg0/pgio")));
    for (name, value) in [
        ("al-extents", "1237"),
        ("disk-flushes", "yes"),
        ("disk-barrier", "no"),
        ("md-flushes", "yes"),
        ("al-updates", "yes"),
    ] {
        assert_eq!(volume.options.get(name).map(String::as_str), Some(value), "{name}");
    }
    let [connection] = config.connections.as_slice() else { panic!("{config:?}") };
    assert_eq!(connection.node_id, Some(1));
    assert_eq!(connection.options.get("cram-hmac-alg").map(String::as_str), Some("sha256"));
    assert!(!format!("{config:?}").contains("not-to-be-kept"), "a secret is never kept");
    assert!(connection.options.keys().all(|name| !name.starts_with('_')));
}

#[test]
fn module_9_configuration_as_text_and_json() {
    for found in [
        show::parse_json(nine!("show-connected.json")).unwrap(),
        show::parse(nine!("show-connected.txt")).unwrap(),
    ] {
        let [config] = found.as_slice() else { panic!("{found:?}") };
        check_configuration_9(config);
    }
}

#[test]
fn a_quorum_is_majority_all_or_a_number() {
    let off = "\"quorum\": \"off\"";
    for quorum in ["majority", "all", "2"] {
        let json = nine!("show-connected.json").replace(off, &format!("\"quorum\": \"{quorum}\""));
        assert_eq!(show::parse_json(&json).unwrap()[0].quorum(), Some(quorum));
        let text = format!("resource r {{ options {{ quorum {quorum}; }} }}");
        assert_eq!(show::parse(&text).unwrap()[0].quorum(), Some(quorum));
    }
}

#[test]
fn the_protocol_is_known_only_if_all_connections_agree() {
    let two = |b: &str| {
        let net = |p: &str| format!("connection {{ _peer_node_id 1; net {{ protocol {p}; }} }}");
        let text = format!("resource r {{ {} {} }}", net("A"), net(b));
        show::parse(&text).unwrap().remove(0)
    };
    assert_eq!(two("A").protocol(), Some("A"));
    assert_eq!(two("C").protocol(), None);
}

#[test]
fn drbd_8_4_and_9_are_recognized_and_other_versions_refused() {
    let line = |v: &str| format!("version: {v} (api:1/proto:86-101)\nsrcversion: 5A6\n");
    assert_eq!(generation(&line("8.4.11")).unwrap(), Generation::V84);
    assert_eq!(generation(&line("9.2.12")).unwrap(), Generation::V9);
    for (unknown, expected) in [("8.3.16", "`8.3.16`"), ("10.0", "`10.0`")] {
        let error = generation(&line(unknown)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("8.4 and 9"), "{error}");
    }
    assert!(generation("").is_err());
}

#[test]
fn proc_drbd_in_all_states() {
    let text = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: 5A6\n\n \
        0: cs:Unconfigured\n \
        1: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent B r-----\n    \
        ns:1024 nr:7 dw:0 dr:1 al:3 bm:0 lo:0 pe:2 ua:5 ap:0 ep:1 wo:f oos:943404\n\
        \t[=>..................] sync'ed:  9.5% (943404/1048508)K\n\
        \tfinish: 0:00:26 speed: 34,952 (34,952) K/sec\n\
        12: cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown   s-----\n    \
        ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0\n";
    let found = proc::parse(text).unwrap();
    let [sync, waiting] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((sync.minor, sync.protocol.as_deref()), (1, Some("B")));
    assert_eq!(sync.link(), "Connected/SyncSource");
    assert!(is_resync(&sync.replication) && !sync.is_in_sync());
    assert_eq!((sync.sent_kib, sync.received_kib, sync.al_writes), (1024, 7, 3));
    assert_eq!((sync.pending, sync.unacked, sync.out_of_sync_kib), (2, 5, 943_404));
    assert_eq!((waiting.minor, waiting.protocol.as_deref()), (12, None));
    assert_eq!((waiting.link().as_str(), waiting.suspended), ("Connecting", true));
    // With module 9 the file contains only the version.
    assert_eq!(proc::parse("version: 9.2.12 (api:2/proto:86-122)\nTransports: tcp\n").unwrap(), []);
    let error = proc::parse(" 0: cs:Connected ro:Primary/Secondary C r-----\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/proc/drbd` does not report ds: of minor 0; use drbd-utils that match the kernel module"
    );
}

#[test]
fn replication_states() {
    for resync in
        ["SyncSource", "SyncTarget", "PausedSyncT", "VerifyS", "WFBitMapS", "StartingSyncT"]
    {
        assert!(is_resync(resync) && !is_behind(resync), "{resync}");
    }
    for other in ["Established", "Off", "Ahead", "Behind"] {
        assert!(!is_resync(other), "{other}");
    }
    assert!(is_behind("Ahead") && is_behind("Behind"));
}

#[test]
fn missing_required_fields_are_named() {
    let error = status::parse("[{\"name\": \"r\", \"devices\": [{\"minor\": 1}]}]").unwrap_err();
    assert!(error.to_string().contains("does not report role of r"), "{error}");
    assert!(
        status::parse("no resources").unwrap_err().to_string().contains("cannot parse the output")
    );
    let events =
        "exists resource name:r role:Primary\nexists device name:r volume:0 disk:UpToDate\n";
    let error = events::parse(events).unwrap_err().to_string();
    assert!(error.contains("does not report minor of r"), "{error}");
    let error = show::parse("resource r { _this_host { volume 0 { } } }").unwrap_err().to_string();
    assert!(error.contains("the minor of r"), "{error}");
}

#[test]
fn quoted_words_and_comments_of_the_configuration() {
    let text = "resource \"a;b\" { # resource c {\n net { protocol B; } \
                _this_host { volume 3 { device minor 9; disk \"/dev/x \\\"y\"; } } }";
    let found = show::parse(text).unwrap();
    assert_eq!((found[0].resource.as_str(), found[0].protocol()), ("a;b", Some("B")));
    assert_eq!(found[0].volumes[0].backing.as_deref(), Some("/dev/x \"y"));
    assert_eq!(found[0].volumes[0].minor, 9);
}

#[test]
fn fuzzed_outputs_are_parsed_or_refused() {
    let samples = [
        eight!("connected-c.primary", ".proc"),
        eight!("resyncing.primary", ".proc"),
        eight!("resyncing.primary", ".events2"),
        eight!("connected-c.primary", ".show"),
        nine!("status-connected.json"),
        nine!("show-connected.json"),
        nine!("show-connected.txt"),
    ];
    pgio_fuzz::fuzz(&samples, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let errors = [
            status::parse(&text).err(),
            events::parse(&text).err(),
            proc::parse(&text).err(),
            show::parse(&text).err(),
            show::parse_json(&text).err(),
            generation(&text).err(),
        ];
        errors.iter().flatten().for_each(|error| pgio_fuzz::print(error));
    });
}
