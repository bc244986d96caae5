//! The state of DRBD on a node: one model for kernel modules 8.4 and 9, parsed from text. Pure.
//!
//! | | module 9 | module 8.4 |
//! |---|---|---|
//! | state, [`super::status`] | `drbdsetup status --json --statistics` | `drbdsetup events2 --now --statistics` |
//! | state, cheaper | the same | /proc/drbd, without names |
//! | configuration, [`super::show`] | `drbdsetup show --json --show-defaults` | `drbdsetup show --show-defaults` |
//!
//! The parsers ignore unknown fields, because fields differ between versions; a missing required
//! field is an error that names it. Next: [`super::node`], which runs these commands, and [`super::observer`].

use pgio_results::telemetry::DrbdState;

/// The state of one volume of a resource and of its connection to one peer, as seen by one node. State
/// names are `drbdsetup`'s for every source.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    /// Absent in /proc/drbd.
    pub(super) resource: Option<String>,
    /// The device is /dev/drbdMINOR.
    pub(super) minor: u32,
    pub(super) role: String,
    pub(super) peer_role: String,
    /// `StandAlone`, `Connecting`, `Connected` or a transitional state.
    pub(super) connection: String,
    /// `Off`, `Established`, `SyncSource`, `Ahead` and others.
    pub(super) replication: String,
    pub(super) disk: String,
    pub(super) peer_disk: String,
    /// `A`, `B` or `C`; present only if the source reports it.
    pub(super) protocol: Option<String>,
    /// Whether I/O is suspended.
    pub(super) suspended: bool,
    /// Whether the send buffer to the peer is full; absent in /proc/drbd.
    pub(super) congested: Option<bool>,
    /// Counters since the device or the connection was established.
    pub(super) sent_kib: u64,
    pub(super) received_kib: u64,
    pub(super) al_writes: u64,
    /// Requests sent to the peer and not yet acknowledged.
    pub(super) pending: u64,
    /// Requests received from the peer and not yet acknowledged.
    pub(super) unacked: u64,
    pub(super) out_of_sync_kib: u64,
    pub(super) percent_in_sync: Option<f64>,
}

impl State {
    /// The state without any information about a peer.
    pub(super) fn without_peer() -> State {
        State {
            peer_role: UNKNOWN_ROLE.to_owned(),
            connection: STANDALONE.to_owned(),
            replication: "Off".to_owned(),
            peer_disk: "DUnknown".to_owned(),
            ..State::default()
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection == CONNECTED
    }

    /// Returns whether the node is neither connected nor connecting.
    pub(super) fn is_standalone(&self) -> bool {
        self.connection == STANDALONE
    }

    /// Returns whether both disks have the same data and no resync or similar work is in progress.
    pub(super) fn is_in_sync(&self) -> bool {
        self.is_connected()
            && self.replication == ESTABLISHED
            && self.disk == UP_TO_DATE
            && self.peer_disk == UP_TO_DATE
            && self.out_of_sync_kib == 0
    }

    /// Returns `Connected/Established`, or only the connection state if there is no connection.
    pub(super) fn link(&self) -> String {
        if self.is_connected() {
            format!("{}/{}", self.connection, self.replication)
        } else {
            self.connection.clone()
        }
    }

    /// Returns the disk states of this node and of the peer: `UpToDate/UpToDate`.
    pub(super) fn disks(&self) -> String {
        format!("{}/{}", self.disk, self.peer_disk)
    }
}

/// Returns the kernel's name of a device.
pub(super) fn device(minor: u32) -> String {
    format!("drbd{minor}")
}

/// Returns whether a resync or an online verification is running or about to start.
pub(super) fn is_resync(replication: &str) -> bool {
    let prefixes = ["StartingSync", "WFBitMap", "WFSyncUUID", "Sync", "PausedSync", "Verify"];
    prefixes.iter().any(|prefix| replication.starts_with(prefix))
}

/// Returns whether replication is paused on purpose, which on-congestion allows.
pub(super) fn is_behind(replication: &str) -> bool {
    matches!(replication, "Ahead" | "Behind")
}

pub(super) const STANDALONE: &str = "StandAlone";
pub(super) const CONNECTED: &str = "Connected";
pub(super) const ESTABLISHED: &str = "Established";
pub(super) const UP_TO_DATE: &str = "UpToDate";
const UNKNOWN_ROLE: &str = "Unknown";

/// The generation of the kernel module, which determines the output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    /// Module 8.4.
    V84,
    V9,
}

/// Parses the generation from /proc/drbd, which both modules have.
pub(super) fn generation(proc_drbd: &str) -> Result<Generation, DrbdError> {
    let version = proc_drbd.lines().find_map(|line| line.strip_prefix("version:"));
    let version = version.and_then(|v| v.split_whitespace().next()).unwrap_or_default();
    match version.split('.').collect::<Vec<_>>().as_slice() {
        ["8", "4", ..] => Ok(Generation::V84),
        ["9", ..] => Ok(Generation::V9),
        _ => Err(DrbdError::Version(version.to_owned())),
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DrbdError {
    #[error("DRBD kernel module version `{0}` is not supported; pgio supports 8.4 and 9")]
    Version(String),
    #[error("cannot parse the output of `{from}`")]
    Json { from: &'static str, source: serde_json::Error },
    #[error(
        "`{from}` does not report {field}{object}; use drbd-utils that match the kernel module"
    )]
    Missing { from: &'static str, field: &'static str, object: String },
}

impl DrbdError {
    pub(super) fn missing(from: &'static str, field: &'static str, of: &str) -> DrbdError {
        let object = if of.is_empty() { String::new() } else { format!(" of {of}") };
        DrbdError::Missing { from, field, object }
    }
}

pub(super) const LOST_ID: &str = "drbd-connection-lost";
pub(super) const LOST_REMEDY: &str =
    "check the kernel log of both hosts and the network between them";
pub(super) const CONGESTED_ID: &str = "drbd-congested";
pub(super) const CONGESTED_REMEDY: &str =
    "offer a lower rate than the link can carry, or increase sndbuf-size";

/// Describes a state in which writes do not reach the peer; `None` for a healthy one.
pub(super) fn connection_loss(state: &DrbdState) -> Option<String> {
    if state.connection != CONNECTED {
        Some(state.connection.clone())
    } else if [&state.disk, &state.peer_disk].iter().any(|disk| *disk != UP_TO_DATE) {
        Some(format!("{}/{}", state.disk, state.peer_disk))
    } else {
        state.suspended.then(|| "suspended".to_owned())
    }
}

pub(super) fn samples(n: u64) -> String {
    counted(n, "sample")
}

pub(super) fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::drbd::show::{self, Config};
    use crate::features::drbd::status;

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
            let [by_events] = status::parse_events(events2).unwrap().try_into().unwrap();
            let [by_proc] = status::parse_proc(proc_drbd).unwrap().try_into().unwrap();
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
        let expected = [
            "connected-c.primary: Connected/Established Primary/Secondary UpToDate/UpToDate out of sync false, C",
            "connected-c.secondary: Connected/Established Secondary/Primary UpToDate/UpToDate out of sync false, C",
            "connected-b.primary: Connected/Established Primary/Secondary UpToDate/UpToDate out of sync false, B",
            "connected-a.primary: Connected/Established Primary/Secondary UpToDate/UpToDate out of sync false, A",
            "connected-a.secondary: Connected/Established Secondary/Primary UpToDate/UpToDate out of sync false, A",
            "standalone.primary: StandAlone Primary/Unknown UpToDate/DUnknown out of sync false, no protocol",
            "standalone.secondary: Connecting Secondary/Unknown UpToDate/DUnknown out of sync false, C",
            "standalone-written.primary: StandAlone Primary/Unknown UpToDate/DUnknown out of sync true, no protocol",
            "both-standalone.secondary: StandAlone Secondary/Unknown UpToDate/DUnknown out of sync false, no protocol",
            "waiting.primary: StandAlone Primary/Unknown UpToDate/DUnknown out of sync true, no protocol",
            "waiting.secondary: Connecting Secondary/Unknown UpToDate/DUnknown out of sync false, C",
            "resyncing.primary: Connected/SyncSource Primary/Secondary UpToDate/Inconsistent out of sync true, C",
            "resyncing.secondary: Connected/SyncTarget Secondary/Primary Inconsistent/UpToDate out of sync true, C",
            "resynced.primary: Connected/Established Primary/Secondary UpToDate/UpToDate out of sync false, C",
        ];
        assert_eq!(all, expected);
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
        let found = status::parse_status(nine!("status-connected.json")).unwrap();
        let [state] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(state.resource.as_deref(), Some("pgio"));
        assert_eq!((state.minor, device(state.minor).as_str()), (7, "drbd7"));
        assert!(state.role == "Primary" && state.is_connected() && state.is_in_sync());
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
            status::parse_status(&text).unwrap()
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
            status::parse_events(&text).unwrap()
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
        let found = status::parse_status(text).unwrap();
        let [state] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (state.connection.as_str(), state.disks().as_str()),
            ("Connecting", "UpToDate/DUnknown")
        );
        assert!(!state.is_standalone() && !state.is_in_sync());
    }

    #[test]
    fn module_9_standalone() {
        let found = status::parse_status(nine!("status-standalone.json")).unwrap();
        let [state] = found.as_slice() else { panic!("{found:?}") };
        assert!(state.is_standalone() && !state.is_in_sync());
        assert_eq!((state.link().as_str(), state.out_of_sync_kib), ("StandAlone", 81_920));
        assert_eq!(state.disks(), "UpToDate/DUnknown");
    }

    #[test]
    fn module_9_with_several_resources_volumes_and_peers() {
        let found = status::parse_status(nine!("status-three-nodes.json")).unwrap();
        let states: Vec<_> =
            found.iter().map(|s| (s.minor, s.link(), s.peer_disk.as_str())).collect();
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
            let json =
                nine!("show-connected.json").replace(off, &format!("\"quorum\": \"{quorum}\""));
            assert_eq!(show::parse_json(&json).unwrap()[0].quorum(), Some(quorum));
            let text = format!("resource r {{ options {{ quorum {quorum}; }} }}");
            assert_eq!(show::parse(&text).unwrap()[0].quorum(), Some(quorum));
        }
    }

    #[test]
    fn the_protocol_is_known_only_if_all_connections_agree() {
        let two = |b: &str| {
            let net =
                |p: &str| format!("connection {{ _peer_node_id 1; net {{ protocol {p}; }} }}");
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
        let found = status::parse_proc(text).unwrap();
        let [sync, waiting] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((sync.minor, sync.protocol.as_deref()), (1, Some("B")));
        assert_eq!(sync.link(), "Connected/SyncSource");
        assert!(is_resync(&sync.replication) && !sync.is_in_sync());
        assert_eq!((sync.sent_kib, sync.received_kib, sync.al_writes), (1024, 7, 3));
        assert_eq!((sync.pending, sync.unacked, sync.out_of_sync_kib), (2, 5, 943_404));
        assert_eq!((waiting.minor, waiting.protocol.as_deref()), (12, None));
        assert_eq!((waiting.link().as_str(), waiting.suspended), ("Connecting", true));
        // With module 9 the file contains only the version.
        assert_eq!(
            status::parse_proc("version: 9.2.12 (api:2/proto:86-122)\nTransports: tcp\n").unwrap(),
            []
        );
        let error =
            status::parse_proc(" 0: cs:Connected ro:Primary/Secondary C r-----\n").unwrap_err();
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
        let error =
            status::parse_status("[{\"name\": \"r\", \"devices\": [{\"minor\": 1}]}]").unwrap_err();
        assert!(error.to_string().contains("does not report role of r"), "{error}");
        assert!(
            status::parse_status("no resources")
                .unwrap_err()
                .to_string()
                .contains("cannot parse the output")
        );
        let events =
            "exists resource name:r role:Primary\nexists device name:r volume:0 disk:UpToDate\n";
        let error = status::parse_events(events).unwrap_err().to_string();
        assert!(error.contains("does not report minor of r"), "{error}");
        let error =
            show::parse("resource r { _this_host { volume 0 { } } }").unwrap_err().to_string();
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
                status::parse_status(&text).err(),
                status::parse_events(&text).err(),
                status::parse_proc(&text).err(),
                show::parse(&text).err(),
                show::parse_json(&text).err(),
                generation(&text).err(),
            ];
            errors.iter().flatten().for_each(|error| pgio_fuzz::print(error));
        });
    }
}
