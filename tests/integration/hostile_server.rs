//! The listener at the address is not PostgreSQL: it floods, makes false claims, trickles or stays silent.
//!
//! pgio must leave with one sentence and the exit code for a server that cannot be reached, within the
//! time for connecting, and must not have grown.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::panic;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pgio_tests::fixture::pgio;
use pgio_tests::timing;

const CONNECT: i32 = 3;
/// A run of pgio that fails at once takes about 20 MB.
const MAX_KB: u64 = 150 << 10;
/// Less than any run of the program takes.
const MIN_PROGRAM_KB: u64 = 1000;

#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Endless NoticeResponse, before or after AuthenticationOk.
    Notices { after_ok: bool },
    /// A header that claims 2 GB, followed by endless bytes.
    Length,
    /// ParameterStatus with ever new names.
    Parameters,
    /// An error of 50 MB.
    Error,
    /// Nothing at all.
    Silence,
    /// The start of a message, a byte at a time.
    Trickle,
    /// A correct login, and endless rows in response to the first statement.
    Rows,
    /// A login in order, and then a header that claims 2 GB.
    LaterLength,
}

const ALL: [Attack; 9] = [
    Attack::Notices { after_ok: false },
    Attack::Notices { after_ok: true },
    Attack::Length,
    Attack::Parameters,
    Attack::Error,
    Attack::Silence,
    Attack::Trickle,
    Attack::Rows,
    Attack::LaterLength,
];

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// Reads what every client begins with; TLS is refused.
fn greet(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let (length, code) = head.split_at(4);
        if code == 80_877_103_u32.to_be_bytes() {
            stream.write_all(b"N")?;
            continue;
        }
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        return stream.read_exact(&mut vec![0; length - 8]);
    }
}

fn attack(stream: &mut (impl Read + Write), how: Attack) -> std::io::Result<()> {
    greet(stream)?;
    let ok = message(b'R', &0_u32.to_be_bytes());
    let key = message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]);
    let logged_in = [ok.clone(), key, message(b'Z', b"I")].concat();
    let huge = [b'E', 0x7f, 0xff, 0xff, 0xff];
    match how {
        Attack::Notices { after_ok } => {
            if after_ok {
                stream.write_all(&ok)?;
            }
            let text = format!("SNOTICE\0C00000\0M{}\0\0", "x".repeat(1000));
            let notices = message(b'N', text.as_bytes()).repeat(1000);
            loop {
                stream.write_all(&notices)?;
            }
        }
        Attack::Length => {
            stream.write_all(&huge)?;
            endless(stream)
        }
        Attack::Parameters => {
            stream.write_all(&ok)?;
            for n in 0_u64.. {
                stream.write_all(&message(b'S', format!("p{n}\0{n}\0").as_bytes()))?;
            }
            Ok(())
        }
        Attack::Error => {
            let length: u32 = 50 << 20;
            stream.write_all(&[&b"E"[..], &length.to_be_bytes(), b"SFATAL\0C28000\0M"].concat())?;
            // The rest and more: pgio should no longer read.
            endless(stream)
        }
        Attack::Silence => {
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Attack::Trickle => {
            stream.write_all(&[b'E', 0, 0, 0x10, 0])?;
            loop {
                thread::sleep(Duration::from_millis(200));
                stream.write_all(b"x")?;
            }
        }
        Attack::Rows => {
            stream.write_all(&logged_in)?;
            let mut tag = [0];
            stream.read_exact(&mut tag)?;
            let column = b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
            assert_eq!(tag, *b"Q", "the first statement has no parameters");
            stream.write_all(&message(b'T', column))?;
            // One column of 94 bytes.
            let row = [&[0, 1, 0, 0, 0, 94][..], &[b'x'; 94]].concat();
            let rows = message(b'D', &row).repeat(1000);
            loop {
                stream.write_all(&rows)?;
            }
        }
        Attack::LaterLength => {
            stream.write_all(&logged_in)?;
            stream.read_exact(&mut [0])?;
            stream.write_all(&huge)?;
            endless(stream)
        }
    }
}

fn endless(stream: &mut impl Write) -> std::io::Result<()> {
    let bytes = vec![b'x'; 1 << 20];
    loop {
        stream.write_all(&bytes)?;
    }
}

fn by_tcp(how: Attack) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || attack(&mut stream, how));
        }
    });
    format!("host=127.0.0.1 port={port}")
}

fn by_socket(dir: &Path, how: Attack) -> String {
    let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || attack(&mut stream, how));
        }
    });
    format!("host={} port=5432", dir.display())
}

struct ProgramResult {
    code: Option<i32>,
    err: String,
    took: Duration,
    peak_kb: u64,
}

/// Returns the peak of the resident memory in /proc/PID/status. A process that is about to execute its program still
/// has the name and the memory of this one.
fn peak_of_program(status: &str) -> Option<u64> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("Name:").filter(|name| *name == "pgio")?;
    field("VmHWM:")?.trim_end_matches(" kB").parse().ok()
}

/// Runs the command to its end and records the peak of its resident memory.
fn run_watched(command: &mut Command) -> ProgramResult {
    let began = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let err = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    let code = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        peak_kb = peak_kb.max(peak_of_program(&text).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed() > Duration::from_secs(60) || peak_kb > 8 * MAX_KB {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    };
    ProgramResult { code, err: err.join().unwrap(), took: began.elapsed(), peak_kb }
}

/// Long for a server that answers, so that on a busy machine its answer is what ends the attempt.
fn connect_timeout(how: Attack) -> &'static str {
    match how {
        Attack::Silence | Attack::Trickle => "connect_timeout=2",
        _ => "connect_timeout=30",
    }
}

fn run_against(place: &str, options: &str) -> ProgramResult {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{place} user=u dbname=d password=p {options}");
    loop {
        let mut command = pgio();
        command.current_dir(dir.path()).args(["run", "--connect-string", &text]);
        let result = run_watched(&mut command);
        // On a busy machine pgio may have ended before its memory was looked at.
        if result.peak_kb > MIN_PROGRAM_KB {
            return result;
        }
    }
}

fn assert_contained(how: Attack, result: &ProgramResult) {
    let ProgramResult { code, err, took, peak_kb } = result;
    let shown = &err[..err.len().min(3000)];
    assert!(*peak_kb < MAX_KB, "{how:?}: {peak_kb} kB: {shown}");
    assert!(err.len() < 3000 && err.lines().count() == 1, "{how:?}: {} bytes: {shown}", err.len());
    assert!(err.starts_with("pgio: "), "{how:?}: {shown}");
    assert!(*took < Duration::from_secs(45), "{how:?}: {took:?}");
    match how {
        // The session was open by then: what fails is a statement.
        Attack::Rows | Attack::LaterLength => assert_ne!(*code, Some(0), "{how:?}: {shown}"),
        _ => assert_eq!(*code, Some(CONNECT), "{how:?}: {shown}"),
    }
    let reason = match how {
        Attack::Silence | Attack::Trickle => "within connect_timeout=2",
        // No notice comes before the password was asked for.
        Attack::Notices { after_ok: false } => "check that a PostgreSQL server listens there",
        Attack::Notices { after_ok: true } => "notices before the login was complete",
        Attack::Parameters => "parameters",
        Attack::Length | Attack::Error | Attack::LaterLength => "the header of a message of",
        Attack::Rows => "in answer to one statement",
    };
    assert!(err.contains(reason), "{how:?}: {shown}");
}

/// Those that pgio waits for run beside the others, which take the processors.
fn each(attacks: &[Attack], test: impl Fn(Attack) + Sync) {
    timing::begin();
    let waits = |how: &&Attack| matches!(how, Attack::Silence | Attack::Trickle);
    thread::scope(|scope| {
        let test = &test;
        let beside: Vec<_> =
            attacks.iter().filter(waits).map(|how| scope.spawn(move || test(*how))).collect();
        attacks.iter().filter(|how| !waits(how)).for_each(|how| test(*how));
        // What failed there is then the last message of the test.
        if let Some(panic) = beside.into_iter().find_map(|thread| thread.join().err()) {
            panic::resume_unwind(panic);
        }
    });
}

#[test]
fn no_server_by_tcp_makes_pgio_grow_or_wait() {
    each(&ALL, |how| {
        for tls in ["disable", "prefer"] {
            let options = format!("{} sslmode={tls}", connect_timeout(how));
            assert_contained(how, &run_against(&by_tcp(how), &options));
        }
    });
}

#[test]
fn no_listener_on_a_socket_makes_pgio_grow_or_wait() {
    each(&ALL, |how| {
        // The `postgres` crate takes no stream of ours there; see `pg::connect::open`.
        if matches!(how, Attack::Rows | Attack::LaterLength) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        assert_contained(how, &run_against(&by_socket(dir.path(), how), connect_timeout(how)));
    });
}
