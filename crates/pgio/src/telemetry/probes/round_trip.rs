//! Reads the round-trip time to the standby, as the kernel measures it on the replication
//! connection.
//!
//! `ss` shows TCP's smoothed estimate; pgio sends no packets.

use std::net::IpAddr;
use std::time::Duration;

use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};

const LIMIT: Duration = Duration::from_secs(10);

/// The standby's end of the replication connection, from pg_stat_replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walsender {
    /// `None` for a Unix socket.
    pub client_address: Option<IpAddr>,
    pub client_port: u16,
}

/// Seconds, and a note on how they were measured or why not.
pub(super) fn probe(
    primary: Option<&Host>,
    same_machine: bool,
    walsender: Walsender,
) -> (Option<f64>, String) {
    let Some(address) = walsender.client_address.map(|address| address.to_canonical()) else {
        return (
            Some(0.0),
            "round trip: none, the standby connects through a Unix socket".to_owned(),
        );
    };
    if same_machine || address.is_loopback() {
        return (Some(0.0), "round trip: none, the standby is on the same host".to_owned());
    }
    let Some(primary) = primary else {
        return (None, "round trip: not measured, the primary's host is unknown".to_owned());
    };
    let filter = format!("dport = :{}", walsender.client_port);
    let ss = CommandLine::new("ss").args(["-tinH", "state", "established", &filter]).timeout(LIMIT);
    match primary.run(&ss) {
        Ok(text) => match seconds(&text, address, walsender.client_port) {
            Some(seconds) => (
                Some(seconds),
                format!("round trip: TCP's estimate on host {} (ss)", primary.name()),
            ),
            None => {
                let port = walsender.client_port;
                (
                    None,
                    format!(
                        "round trip: ss on host {} shows no connection to {address} port {port}",
                        primary.name()
                    ),
                )
            }
        },
        Err(error) => (None, format!("round trip: not measured: {error} (ss is in iproute2)")),
    }
}

/// `ss -ti` prints a line of addresses, the peer's last, followed by an indented line of details.
fn seconds(text: &str, address: IpAddr, port: u16) -> Option<f64> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let details = lines.next_if(|next| next.starts_with(char::is_whitespace));
        if line.split_whitespace().next_back().and_then(peer) == Some((address, port)) {
            let rtt = details?.split_whitespace().find_map(|word| word.strip_prefix("rtt:"))?;
            let milliseconds: f64 = rtt.split('/').next()?.parse().ok()?;
            return Some(milliseconds / 1e3);
        }
    }
    None
}

/// `10.0.0.2:41234`, `[fe80::1%eth0]:41234`, `[::ffff:10.0.0.2]:41234`.
fn peer(word: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = word.rsplit_once(':')?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = address.split('%').next()?.parse().ok()?;
    Some((address.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SS: &str = "\
0      0          10.0.0.1:5432       10.0.0.2:41233
\t cubic wscale:7,7 rto:204 rtt:9.5/0.08 ato:40 mss:1448
0      0      [::ffff:10.0.0.1]:5432   [::ffff:10.0.0.2]:41234
\t cubic wscale:7,7 rto:204 rtt:0.187/0.08 ato:40 minrtt:0.05
0      0      [fe80::1%eth0]:5432   [fe80::2%eth0]:7
\t cubic
";

    #[test]
    fn finds_the_line_of_the_connection() {
        let of = |address: &str, port| seconds(SS, address.parse().unwrap(), port);
        assert_eq!(of("10.0.0.2", 41234), Some(0.187e-3));
        assert_eq!(of("10.0.0.2", 41233), Some(9.5e-3));
        assert_eq!(of("10.0.0.3", 41234), None);
        assert_eq!(of("fe80::2", 7), None, "no estimate yet");
    }

    #[test]
    fn reads_a_real_connection_of_this_machine() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let ss = ["-tinH", "state", "established"];
        let ss = CommandLine::new("ss").args(ss).arg(format!("dport = :{port}"));
        let text = Host::local().run(&ss).unwrap();
        assert!(seconds(&text, "127.0.0.1".parse().unwrap(), port).is_some(), "{text}");
        let walsender =
            Walsender { client_address: Some("127.0.0.1".parse().unwrap()), client_port: port };
        let (seconds, note) = probe(Some(&Host::local()), false, walsender);
        assert_eq!(seconds, Some(0.0));
        assert!(note.contains("same host"), "{note}");
    }

    #[test]
    fn a_value_that_cannot_be_measured_has_a_note() {
        let walsender =
            Walsender { client_address: Some("192.0.2.1".parse().unwrap()), client_port: 1 };
        let (seconds, note) = probe(Some(&Host::local()), false, walsender);
        assert_eq!(seconds, None);
        assert_eq!(note, "round trip: ss on host local shows no connection to 192.0.2.1 port 1");
        let (seconds, note) = probe(None, false, walsender);
        assert_eq!((seconds, note.contains("is unknown")), (None, true));
    }
}
