use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::deadline::HANDSHAKE_TIMEOUT;
use crate::handshake::{Hello, PROTOCOL, Ranks};
use crate::listen::{Arrival, Listener, MAX_HANDSHAKES, MAX_REFUSALS, Run};
use crate::token::Token;
use crate::{Patience, Welcome, build_hash, dial};

const LONG: Duration = Duration::from_secs(60);
const PATIENT: Patience<'static> = Patience { within: LONG, stopped: &|| false };

struct Coordinator {
    listener: Listener,
    arrivals: Receiver<Arrival>,
    token: Token,
}

fn coordinator(drivers: u32) -> Coordinator {
    let (sender, arrivals) = channel();
    let token = Token::draw().unwrap();
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let run = Run {
        id: "run".to_owned(),
        token: token.clone(),
        version: "1.0".to_owned(),
        ranks: Ranks::new(drivers),
    };
    let listener = Listener::open(any, run, Clock::start(), sender).unwrap();
    Coordinator { listener, arrivals, token }
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: "1.0".to_owned(),
        build: build_hash().unwrap(),
        host: "h".to_owned(),
        pid: 7,
        rank: None,
    }
}

fn address_of(coordinator: &Coordinator) -> String {
    format!("127.0.0.1:{}", coordinator.listener.port())
}

type Dialed = Result<(Welcome, Link), LinkError>;

fn dialed(to: &Coordinator, token: &Token, hello: &Hello) -> (Dialed, Receiver<Event>) {
    let (sender, events) = channel();
    let sink = Box::new(move |event| drop(sender.send(event)));
    let address = address_of(to);
    (dial(&address, &PATIENT, token, hello, Clock::start(), sink), events)
}

fn message(event: Event) -> String {
    match event {
        Event::Message(json) => String::from_utf8(json).unwrap(),
        Event::Lost(why) => panic!("{why}"),
    }
}

#[test]
fn coordinator_and_driver_exchange_messages_and_notice_a_lost_link() {
    let coordinator = coordinator(2);
    let (dialed, events) = dialed(&coordinator, &coordinator.token, &hello());
    let (welcome, driver) = dialed.unwrap();
    assert_eq!((welcome.rank, welcome.drivers, welcome.run_id.as_str()), (0, 2, "run"));
    let Arrival::Joined { rank: 0, id, link, hello, .. } = coordinator.arrivals.recv().unwrap()
    else {
        panic!("no driver")
    };
    assert_eq!(hello.pid, 7);
    // Larger than one TLS record and than the socket's buffers.
    let large = "x".repeat(3 << 20);
    link.send(&large).unwrap();
    assert_eq!(message(events.recv().unwrap()).len(), large.len() + 2);
    driver.send(&"answer").unwrap();
    match coordinator.arrivals.recv().unwrap() {
        Arrival::FromDriver { id: from, event, .. } => {
            assert_eq!((from, message(event).as_str()), (id, "\"answer\""));
        }
        other => panic!("{other:?}"),
    }
    let offset = link.offset(16, LONG, "driver 0").unwrap();
    assert!(offset.quickest <= offset.worst);
    // Both clocks are of this machine: the offset is between their starts, which are in order.
    assert!(offset.ns < 0, "{offset:?}");
    drop(driver);
    let ended = coordinator.arrivals.recv().unwrap();
    assert!(matches!(ended, Arrival::FromDriver { event: Event::Lost(_), .. }), "{ended:?}");
}

#[test]
fn a_driver_without_the_token_is_refused_with_the_reason() {
    let coordinator = coordinator(1);
    let (refused, _) = dialed(&coordinator, &Token::draw().unwrap(), &hello());
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("does not know this driver's token"), "{text}");
    match coordinator.arrivals.recv().unwrap() {
        Arrival::Refused { why, hello: Some(hello), .. } => {
            assert_eq!((why.as_str(), hello.host.as_str()), ("its token is not this run's", "h"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn drivers_of_another_version_build_or_rank_are_refused_with_the_reason() {
    let coordinator = coordinator(1);
    for (hello, expected) in [
        (Hello { version: "0.9".to_owned(), ..hello() }, "pgio 1.0, this driver pgio 0.9"),
        (Hello { build: "0".repeat(64), ..hello() }, "this driver build 000000000000"),
        (Hello { protocol: 9, ..hello() }, "this driver version 9"),
        (Hello { rank: Some(4), ..hello() }, "it has rank 4, but the run has 1 drivers"),
    ] {
        let (refused, _) = dialed(&coordinator, &coordinator.token, &hello);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        let arrival = coordinator.arrivals.recv().unwrap();
        assert!(
            matches!(&arrival, Arrival::Refused { why, .. } if text.ends_with(why)),
            "{arrival:?}"
        );
    }
    let (first, _events) = dialed(&coordinator, &coordinator.token, &hello());
    let _link = first.unwrap();
    let (second, _) = dialed(&coordinator, &coordinator.token, &hello());
    assert!(second.unwrap_err().to_string().contains("connected already"));
}

#[test]
fn a_peer_that_does_not_speak_the_protocol_is_refused() {
    let coordinator = coordinator(1);
    let mut stream = TcpStream::connect(("127.0.0.1", coordinator.listener.port())).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(coordinator.arrivals.recv().unwrap(), Arrival::Refused { hello: None, .. }));
}

/// Sends the beginning of a TLS record, a byte at a time, until the other side closes the connection.
fn drip(mut stream: TcpStream) {
    let begun = Instant::now();
    for byte in [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(0)) {
        if begun.elapsed() > LONG || stream.write_all(&[byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_peer_that_sends_byte_after_byte_is_refused_in_time() {
    let coordinator = coordinator(1);
    let stream = TcpStream::connect(("127.0.0.1", coordinator.listener.port())).unwrap();
    thread::spawn(move || drip(stream));
    match coordinator.arrivals.recv_timeout(LONG / 2).unwrap() {
        Arrival::Refused { hello: None, why, .. } => {
            assert!(why.contains("took longer than 10 s"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listener_full_of_silent_peers_can_be_closed() {
    let coordinator = coordinator(1);
    let address = ("127.0.0.1", coordinator.listener.port());
    let _silent: Vec<TcpStream> =
        (0..=MAX_HANDSHAKES).map(|_| TcpStream::connect(address).unwrap()).collect();
    // The last one waits for a place by then.
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    drop(coordinator.listener);
    // The last thread of the listener drops the sender.
    while coordinator.arrivals.recv_timeout(LONG).is_ok() {}
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn silent_peers_do_not_keep_a_driver_out() {
    let coordinator = coordinator(1);
    let address = ("127.0.0.1", coordinator.listener.port());
    let silent = (0..2 * MAX_HANDSHAKES).map(|_| TcpStream::connect(address).unwrap());
    let _silent: Vec<TcpStream> = silent.collect();
    let begun = Instant::now();
    let (joined, _events) = dialed(&coordinator, &coordinator.token, &hello());
    assert!(joined.is_ok(), "{:?}", joined.err());
    // Twice that, if each silent peer has its whole time.
    assert!(begun.elapsed() < HANDSHAKE_TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn refusals_that_nobody_reads_are_limited() {
    let coordinator = coordinator(1);
    let be_refused = || {
        let mut stream = TcpStream::connect(("127.0.0.1", coordinator.listener.port())).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // The coordinator reports the refusal before it closes the connection, which may reset it.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let reported = || coordinator.arrivals.try_iter().count();
    (0..3 * MAX_REFUSALS).for_each(|_| be_refused());
    assert_eq!(reported(), MAX_REFUSALS);
    be_refused();
    assert_eq!(reported(), 1);
}

#[test]
fn texts_of_a_driver_without_proof_are_shortened() {
    let coordinator = coordinator(1);
    let long = Hello { host: "é".repeat(3000), ..hello() };
    let (refused, _) = dialed(&coordinator, &Token::draw().unwrap(), &long);
    assert!(refused.is_err());
    match coordinator.arrivals.recv().unwrap() {
        Arrival::Refused { hello: Some(hello), .. } => {
            assert!(hello.host.starts_with("éé") && hello.host.ends_with('…'));
            assert!(hello.host.chars().count() < 300, "{}", hello.host);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_driver_that_is_stopped_leaves_a_peer_that_sends_byte_after_byte() {
    let dripping = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = dripping.local_addr().unwrap().to_string();
    thread::spawn(move || drip(dripping.accept().unwrap().0));
    let begun = Instant::now();
    let stopped = || begun.elapsed() > Duration::from_millis(500);
    let patience = Patience { within: LONG, stopped: &stopped };
    let token = Token::draw().unwrap();
    let error = dialed_at(&address, &patience, &token, &hello()).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    // No longer than a handshake may take.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// The address of a program of another kind.
fn other_program() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A driver may have left already.
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    address
}

fn dialed_at(addresses: &str, patience: &Patience<'_>, token: &Token, hello: &Hello) -> Dialed {
    dial(addresses, patience, token, hello, Clock::start(), Box::new(|_: Event| {}))
}

#[test]
fn a_driver_goes_on_after_addresses_that_lead_elsewhere() {
    let (other, own) = (coordinator(1), coordinator(1));
    let addresses = [other_program(), address_of(&other), address_of(&own)].join(",");
    let (welcome, _driver) = dialed_at(&addresses, &PATIENT, &own.token, &hello()).unwrap();
    assert_eq!(welcome.rank, 0);
    let seen = other.arrivals.recv_timeout(LONG).unwrap();
    assert!(matches!(&seen, Arrival::Refused { hello: Some(_), .. }), "{seen:?}");
    let seen = own.arrivals.recv_timeout(LONG).unwrap();
    assert!(matches!(&seen, Arrival::Joined { .. }), "{seen:?}");
}

#[test]
fn a_driver_that_finds_no_coordinator_reports_every_address() {
    let other = coordinator(1);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let addresses = [address_of(&other), closed.clone(), other_program()].join(",");
    let patience = Patience { within: Duration::ZERO, stopped: &|| false };
    let token = Token::draw().unwrap();
    let text = dialed_at(&addresses, &patience, &token, &hello()).unwrap_err().to_string();
    for expected in [
        "does not know this driver's token",
        &format!("cannot connect to {closed}"),
        "failed during the handshake",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_refusal_by_the_coordinator_that_knows_the_token_is_final() {
    let (own, other) = (coordinator(1), coordinator(1));
    let addresses = [address_of(&own), address_of(&other)].join(",");
    let old = Hello { version: "0.9".to_owned(), ..hello() };
    let error = dialed_at(&addresses, &PATIENT, &own.token, &old).unwrap_err();
    assert!(matches!(&error, LinkError::Refused { .. }), "{error}");
    let seen = other.arrivals.try_recv();
    assert!(seen.is_err(), "{seen:?}");
}

#[test]
fn a_coordinator_whose_connection_breaks_off_is_dialed_again() {
    let coordinator = coordinator(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = coordinator.listener.port();
    thread::spawn(move || {
        drop(listener.accept().unwrap());
        let (mut driver, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", to)).unwrap();
        let (mut from, mut into) = (driver.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut into));
        io::copy(&mut far, &mut driver)
    });
    let (welcome, _driver) = dialed_at(&address, &PATIENT, &coordinator.token, &hello()).unwrap();
    assert_eq!(welcome.rank, 0);
}

/// Forwards both ways between a driver and the coordinator, to the driver no faster than so many bytes a second.
fn slow_network(to: u16, bytes_per_second: usize) -> String {
    const PIECE: usize = 16 << 10;
    // Less than the loopback device's segments makes the kernel wait for probes.
    const BUFFER: usize = 128 << 10;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (driver, _) = listener.accept().unwrap();
        let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
        // Otherwise the kernel takes a whole message at once.
        rustix::net::sockopt::set_socket_recv_buffer_size(&far, BUFFER).unwrap();
        let (mut from, mut into) = (driver.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut into));
        let (mut far, mut driver, mut piece) = (far, driver, [0; PIECE]);
        let (begun, mut forwarded) = (Instant::now(), 0);
        while let Ok(length @ 1..) = far.read(&mut piece) {
            forwarded += length;
            let due = Duration::from_secs_f64(forwarded as f64 / bytes_per_second as f64);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            if driver.write_all(&piece[..length]).is_err() {
                return;
            }
        }
    });
    address
}

#[test]
fn a_driver_that_receives_a_long_message_does_not_time_out() {
    let coordinator = coordinator(1);
    let through = slow_network(coordinator.listener.port(), 600 << 10);
    let (sender, events) = channel();
    let sink = Box::new(move |event| drop(sender.send(event)));
    let dialed = dial(&through, &PATIENT, &coordinator.token, &hello(), Clock::start(), sink);
    let (_, _driver) = dialed.unwrap();
    let Arrival::Joined { link, .. } = coordinator.arrivals.recv().unwrap() else {
        panic!("no driver")
    };
    let begun = Instant::now();
    let long = "x".repeat(3 << 20);
    link.send(&long).unwrap();
    assert_eq!(message(events.recv().unwrap()).len(), long.len() + 2);
    assert!(begun.elapsed() > DRIVER_TIMEOUT, "{:?}", begun.elapsed());
    thread::sleep(HEARTBEAT);
    let lost = coordinator.arrivals.try_recv();
    assert!(lost.is_err(), "{lost:?}");
}

#[test]
fn messages_sent_before_close_are_delivered() {
    for _ in 0..50 {
        let coordinator = coordinator(1);
        let (dialed, _events) = dialed(&coordinator, &coordinator.token, &hello());
        let (_, driver) = dialed.unwrap();
        let joined = coordinator.arrivals.recv().unwrap();
        assert!(matches!(joined, Arrival::Joined { .. }), "{joined:?}");
        // The thread may just be between its queue and the order to close.
        driver.send(&"one").unwrap();
        driver.send(&"last").unwrap();
        driver.close();
        assert_eq!(next(&coordinator), "\"one\"");
        assert_eq!(next(&coordinator), "\"last\"");
    }
}

fn next(coordinator: &Coordinator) -> String {
    match coordinator.arrivals.recv_timeout(LONG).unwrap() {
        Arrival::FromDriver { event, .. } => message(event),
        other => panic!("{other:?}"),
    }
}

/// A driver that hears nothing ends, whatever its socket says; the peer here keeps the connection open.
#[test]
fn a_driver_that_hears_nothing_reports_a_lost_connection() {
    let (near, far) = (TcpListener::bind("127.0.0.1:0").unwrap(), crate::tls::connect().unwrap());
    let stream = TcpStream::connect(near.local_addr().unwrap()).unwrap();
    let _open = near.accept().unwrap();
    let (sender, events) = channel();
    let connection = Connection::Client(far);
    let inbox = Inbox::new(crate::frame::MAX_FRAME_BYTES);
    let sink = Box::new(move |event| drop(sender.send(event)));
    let begun = Instant::now();
    let link = Link::start(connection, stream, inbox, Role::Driver, Clock::start(), sink).unwrap();
    let clock = link.offset(16, Duration::from_millis(50), "driver 3 on h").unwrap_err();
    let text = clock.to_string();
    assert!(text.contains("driver 3 on h") && text.contains("0 of 16"), "{text}");
    match events.recv().unwrap() {
        Event::Lost(why) => assert!(why.starts_with("nothing was received"), "{why}"),
        Event::Message(_) => panic!("nobody speaks"),
    }
    assert!(begun.elapsed() >= COORDINATOR_TIMEOUT);
}
