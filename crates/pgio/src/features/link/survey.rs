//! Checks an interface before its link is slowed: whether it exists, who set its
//! queueing discipline, whether netem works, whether pgio would cut off its own connection.
//!
//! Changes nothing: netem is tried in a temporary network namespace.

use std::time::Duration;

use super::qdisc::{self, End, LinkSettings, Root};
use super::units::exact_delay;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::rights::Rights;
use crate::host::{Host, HostError};
use crate::treatment::error::TreatmentError;

pub(super) const LIMIT: Duration = Duration::from_secs(30);

const DEFAULT_QDISC: &str = "/proc/sys/net/core/default_qdisc";

const CONNECT: &str = include_str!("connect.sh");
/// Ports of sshd and PostgreSQL: one of them usually answers, if only by a refusal.
const PORTS: [&str; 2] = ["22", "5432"];
/// A packet that is dropped on the way is never answered.
const CONNECT_LIMIT: Duration = Duration::from_secs(8);

/// Delay above which pgio's ssh connection would break.
const CUT_OFF_DELAY: Duration = Duration::from_secs(2);
const CUT_OFF_LOSS: f64 = 0.2;
const CUT_OFF_RATE: u64 = 128_000;

/// Runs tc from PATH or from Debian's sbin directories, which are not in PATH of an ssh login.
pub(super) fn tc(words: &[&str]) -> CommandLine {
    let find = "PATH=$PATH:/usr/sbin:/sbin exec tc \"$@\"";
    CommandLine::new("sh").args(["-c", find, "sh"]).args(words).timeout(LIMIT)
}

pub(super) fn root_of(host: &Host, interface: &str) -> Result<Root, TreatmentError> {
    shown(host, interface, qdisc::root)
}

pub(super) fn own_kinds(host: &Host, interface: &str) -> Result<Vec<String>, TreatmentError> {
    shown(host, interface, qdisc::own_kinds)
}

/// Returns the kinds of the kernel's own qdiscs, which it creates again by itself. Refuses an interface whose kinds differ
/// from those that it would create now.
pub(super) fn restored_kinds(host: &Host, interface: &str) -> Result<Vec<String>, TreatmentError> {
    let kinds = own_kinds(host, interface)?;
    let found = host.output(&CommandLine::new("cat").arg(DEFAULT_QDISC).timeout(LIMIT))?;
    // A network namespace other than the first has no such file; the kinds are compared after the deletion as well.
    if !found.status.success() {
        return Ok(kinds);
    }
    let default = found.stdout.trim();
    let Some(kind) = qdisc::not_restored(&kinds, default) else { return Ok(kinds) };
    // No default makes queues of several kinds, which `ethtool -L` may leave.
    let remedy = match kinds.len() {
        ..=2 => format!("run `sysctl -w net.core.default_qdisc={kind}` there first"),
        _ => format!(
            "run `tc qdisc replace dev {interface} root pfifo` and `tc qdisc del dev {interface} root` there first, which gives it the default"
        ),
    };
    Err(TreatmentError::Refused(format!(
        "{interface} on host {} has the queueing discipline {kind}, but the kernel would give it its default {default} after the trial: {remedy}",
        host.name()
    )))
}

fn shown<T>(
    host: &Host,
    interface: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, TreatmentError> {
    let json = host.run(&tc(&["-j", "qdisc", "show", "dev", interface]))?;
    parse(&json).ok_or_else(|| {
        TreatmentError::Refused(format!(
            "cannot parse the output of tc on host {} for {interface}",
            host.name()
        ))
    })
}

pub(super) fn check_end(host: &Host, end: &End) -> Result<(), TreatmentError> {
    let (name, interface) = (host.name(), end.interface.as_str());
    let refused = |why: String| Err(TreatmentError::Refused(why));
    let interfaces = host.run(&CommandLine::new("ls").arg("/sys/class/net").timeout(LIMIT))?;
    if !interfaces.split_whitespace().any(|known| known == interface) {
        let known = interfaces.split_whitespace().collect::<Vec<_>>().join(", ");
        return refused(format!("host {name} has no interface `{interface}` (known: {known})"));
    }
    match root_of(host, interface)? {
        Root::Default(_) => drop(restored_kinds(host, interface)?),
        Root::Ours(_) => {
            return refused(format!(
                "{interface} on host {name} already has a delay of pgio: run `pgio undo` to remove the leftover of an interrupted run"
            ));
        }
        Root::Other(theirs) => {
            return refused(format!(
                "{interface} on host {name} has a queueing discipline that someone set ({theirs}), which pgio does not replace: remove it first with `tc qdisc del dev {interface} root`"
            ));
        }
    }
    let words = end.shape.netem_words();
    let attempt =
        "PATH=$PATH:/usr/sbin:/sbin exec unshare -n tc qdisc add dev lo root netem \"$@\"";
    let attempt = CommandLine::new("sh").args(["-c", attempt, "sh"]).args(&words).timeout(LIMIT);
    let tried = host.output(&attempt)?;
    if !tried.status.success() {
        let output = tried.stderr.trim();
        let rights = Rights::find(host)?;
        let be_root = format!(
            "it needs root there, {}; the capabilities CAP_NET_ADMIN and, for trying it out, CAP_SYS_ADMIN are sufficient",
            rights.root_hint()
        );
        let why = match output {
            _ if output.contains("not permitted") || output.contains("denied") => {
                if rights.is_root() {
                    "root lacks CAP_NET_ADMIN there, or CAP_SYS_ADMIN for trying it out, as in a container"
                } else {
                    &be_root
                }
            }
            _ if output.contains("kind is unknown") => {
                "its kernel has no netem (module sch_netem); between a private primary and its standby use relay = true"
            }
            _ if output.contains("not found") => "tc and unshare are needed (iproute2, util-linux)",
            _ => output,
        };
        return refused(format!("no netem on host {name}: {why}"));
    }
    if let Some(why) = cut_off_reason(&end.shape)
        && carries_our_connection(host, interface)?
    {
        return refused(format!(
            "{interface} on host {name} carries pgio's ssh connection, which {why} would break: use another interface, or a smaller value (delay up to {} is fine)",
            exact_delay(CUT_OFF_DELAY)
        ));
    }
    end.ping.as_ref().map_or(Ok(()), |address| round_trip(host, address).map(drop))
}

fn cut_off_reason(shape: &LinkSettings) -> Option<String> {
    if shape.delay > CUT_OFF_DELAY {
        Some(format!("a delay of {}", exact_delay(shape.delay)))
    } else if shape.loss >= CUT_OFF_LOSS {
        Some(format!("a loss of {} %", shape.loss * 100.0))
    } else if (1..CUT_OFF_RATE).contains(&shape.rate) {
        Some(format!("a rate of {} bit/s", shape.rate))
    } else {
        None
    }
}

/// Whether pgio's ssh connection uses the interface; none does on this machine.
pub(super) fn carries_our_connection(host: &Host, interface: &str) -> Result<bool, TreatmentError> {
    if host.is_local() {
        return Ok(false);
    }
    let script = "PATH=$PATH:/usr/sbin:/sbin; set -- $SSH_CONNECTION; ip -o route get \"$1\"";
    let output = host.output(&CommandLine::new("sh").args(["-c", script]).timeout(LIMIT))?.stdout;
    Ok(parse_device(&output) == Some(interface))
}

/// The interface by which an address, or a name as this host knows it, is reached; `None` where the
/// host cannot say.
pub(super) fn interface_to(host: &Host, address: &str) -> Result<Option<String>, ExecError> {
    let script = "PATH=$PATH:/usr/sbin:/sbin; found=$(getent ahosts \"$1\") && set -- \"${found%% *}\"; ip -o route get \"$1\"";
    let ask = CommandLine::new("sh").args(["-c", script, "sh", address]).timeout(LIMIT);
    Ok(parse_device(&host.output(&ask)?.stdout).map(str::to_owned))
}

/// `10.0.0.2 dev eth1 src 10.0.0.1 uid 0`
fn parse_device(route: &str) -> Option<&str> {
    route.split_whitespace().skip_while(|word| *word != "dev").nth(1)
}

/// The round trip in milliseconds, by a few packets of ping; without that program by a few connections.
pub(super) fn round_trip(host: &Host, address: &str) -> Result<f64, TreatmentError> {
    let ping =
        CommandLine::new("ping").args(["-n", "-q", "-c", "5", "-i", "0.2", "-w", "20", address]);
    let output = match host.output(&ping.env("LC_ALL", "C").timeout(LIMIT)) {
        Err(ExecError::Host(HostError::Missing { .. })) => return connect_time(host, address),
        output => output?,
    };
    quickest(&output.stdout).ok_or_else(|| {
        TreatmentError::Refused(format!(
            "{address} does not answer a ping from host {}: {}",
            host.name(),
            output.stderr.trim()
        ))
    })
}

/// The first of `rtt min/avg/max/mdev = 0.026/0.031/0.037/0.005 ms`: what delayed one packet by chance
/// is not in it.
fn quickest(ping: &str) -> Option<f64> {
    let line = ping.lines().find(|line| line.contains("min/avg/max"))?;
    line.split_once('=')?.1.trim().split('/').next()?.parse().ok()
}

/// A connection is made, or refused, after one round trip. Of several the quickest counts: the shell
/// itself adds to each, and not the same.
fn connect_time(host: &Host, address: &str) -> Result<f64, TreatmentError> {
    for port in PORTS {
        let bash = CommandLine::new("bash").args(["-c", CONNECT, "bash", address, port]);
        let output = match host.output(&bash.env("LC_ALL", "C").timeout(CONNECT_LIMIT)) {
            Err(ExecError::Host(HostError::Missing { .. }) | ExecError::TimedOut { .. }) => {
                continue;
            }
            output => output?.stdout,
        };
        let times = output.lines().filter_map(|line| line.parse::<f64>().ok());
        if let Some(microseconds) = times.reduce(f64::min) {
            return Ok(microseconds / 1e3);
        }
    }
    Err(TreatmentError::Refused(format!(
        "cannot measure the round trip from host {} to {address}: install ping there (package iputils-ping on Debian and Ubuntu, iputils elsewhere), since its ports {} do not answer",
        host.name(),
        PORTS.join(" and ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_round_trip_is_parsed_from_ping() {
        let message = "--- 10.0.0.2 ping statistics ---\n5 packets transmitted, 5 received, 0% packet loss, time 806ms\nrtt min/avg/max/mdev = 2.026/2.431/2.837/0.205 ms\n";
        assert_eq!(quickest(message), Some(2.026));
        assert_eq!(quickest("5 packets transmitted, 0 received"), None);
    }

    #[test]
    fn the_interface_is_parsed_from_ip_route() {
        let by_router = "10.0.0.2 via 10.1.0.1 dev eth1 src 10.1.0.9 uid 0 \\    cache";
        assert_eq!(parse_device(by_router), Some("eth1"));
        assert_eq!(parse_device("local 127.0.0.1 dev lo src 127.0.0.1 uid 0"), Some("lo"));
        assert_eq!(parse_device("RTNETLINK answers: Network is unreachable"), None);
        assert_eq!(parse_device(""), None);
        assert_eq!(interface_to(&Host::local(), "no-such-host.invalid").unwrap(), None);
    }

    /// Also where ping is installed.
    #[test]
    fn connections_measure_the_round_trip() {
        let here = Host::local();
        let milliseconds = connect_time(&here, "127.0.0.1").unwrap();
        assert!(milliseconds > 0.0, "{milliseconds}");
        let error = connect_time(&here, "no-such-host.invalid").unwrap_err().to_string();
        assert!(
            error.contains("iputils-ping") && error.contains("no-such-host.invalid"),
            "{error}"
        );
    }

    #[test]
    fn shapes_that_break_the_ssh_connection_are_refused() {
        let with = |delay, loss, rate| {
            cut_off_reason(&LinkSettings { delay, loss, rate, ..LinkSettings::default() })
        };
        assert_eq!(with(Duration::from_millis(1500), 0.1, 0), None);
        assert!(with(Duration::from_secs(3), 0.0, 0).is_some());
        assert!(with(Duration::ZERO, 1.0, 0).is_some());
        assert!(with(Duration::ZERO, 0.0, 9600).is_some());
        assert_eq!(with(Duration::ZERO, 0.0, 1_000_000), None);
    }

    #[test]
    fn a_missing_interface_is_reported_first() {
        let end = End {
            host: None,
            interface: "pgio-none0".to_owned(),
            shape: LinkSettings { delay: Duration::from_millis(1), ..LinkSettings::default() },
            ping: None,
        };
        let error = check_end(&Host::local(), &end).unwrap_err().to_string();
        assert!(error.contains("no interface `pgio-none0`") && error.contains("lo"), "{error}");
    }
}
