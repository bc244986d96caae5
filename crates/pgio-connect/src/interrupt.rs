//! Ends waits for PostgreSQL servers that do not answer.
//!
//! The driver's calls block in a read for as long as the server is silent: a process that was stopped,
//! storage that hangs, a network that is cut. Shutting the socket down ends the read with an error,
//! whoever waits in it and whatever for, and the driver knows no other way in. So this module finds
//! this process's sockets to servers itself: those whose other end is a PostgreSQL socket, or an address that
//! was [noted](note) before it was connected to. All of them are cut at once, which costs a session to a
//! server that does answer; its owner opens another.
//!
//! Next: `pgio::cli::signals`, which cuts some time after Ctrl-C.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, SocketAddrAny, SocketAddrUnix, getpeername, shutdown};

/// A wait may have begun on a session that was opened since the last cut.
pub const AGAIN: Duration = Duration::from_millis(100);

/// A process has one set of sockets, so this is one for the process as well.
static NOTED: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
static CUTTING: AtomicBool = AtomicBool::new(false);
static CUT: AtomicBool = AtomicBool::new(false);

/// A server is connected to there.
pub fn note(address: IpAddr, port: u16) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.insert(SocketAddr::new(address.to_canonical(), port));
}

/// Whether nobody is to begin a wait now.
pub fn is_cutting() -> bool {
    CUTTING.load(Ordering::SeqCst)
}

/// Whether sessions were cut because pgio was asked to stop: errors after it say no more than that.
pub fn was_cut() -> bool {
    CUT.load(Ordering::SeqCst)
}

/// From now on, or no longer, whoever waits for a server is cut off.
pub fn set_cutting(cutting: bool) {
    CUTTING.store(cutting, Ordering::SeqCst);
    if cutting {
        CUT.store(true, Ordering::SeqCst);
        cut_all();
    }
}

/// Waits before something is restored: returns when sessions are no longer cut, or when `urgent` is true.
pub fn settle(urgent: impl Fn() -> bool) {
    while is_cutting() && !urgent() {
        thread::sleep(AGAIN / 10);
    }
}

/// Does something that asks a server, which answers within the limit or is cut off.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let watch = move || {
        let mut patience = limit;
        while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(patience) {
            cut_all();
            patience = AGAIN;
        }
    };
    // Without a thread there is no limit, and Ctrl-C is heard all the same.
    let watching = thread::Builder::new().name("limit".to_owned()).spawn(watch);
    let result = work();
    drop(done);
    // Or a cut that is under way would meet the next session.
    let _ = watching.map(thread::JoinHandle::join);
    result
}

/// Ends every wait for a server that this process has at this moment.
pub fn cut_all() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = entries.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<RawFd>().ok()?;
        let what = fs::read_link(entry.path()).ok()?;
        what.as_os_str().as_encoded_bytes().starts_with(b"socket:").then_some(number)
    });
    for number in numbers.collect::<Vec<_>>() {
        if let Some(socket) = duplicate(number).filter(is_of_server) {
            // It may have ended by itself.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}

/// A descriptor of our own for the same socket.
#[allow(unsafe_code)]
fn duplicate(number: RawFd) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the descriptor is borrowed for one fcntl(2) and nothing else. If its owner closes it
    // meanwhile, that call fails or duplicates what has the number now; what it gives is ours, and
    // whether it is a server's is looked at on the duplicate.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).ok()
}

fn is_of_server(socket: &OwnedFd) -> bool {
    let Ok(Some(peer)) = getpeername(socket) else { return false };
    if let Ok(address) = SocketAddr::try_from(peer.clone()) {
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        return NOTED.lock().unwrap_or_else(PoisonError::into_inner).contains(&canonical);
    }
    is_server_socket(&peer)
}

/// By its name, as the server may know the directory by another one.
fn is_server_socket(peer: &SocketAddrAny) -> bool {
    let Ok(unix) = SocketAddrUnix::try_from(peer.clone()) else { return false };
    let path = unix.path().map(|path| path.to_string_lossy().into_owned());
    let name = path.as_deref().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b".s.PGSQL."))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn who_waits_for_a_server_is_cut_and_others_wait_on() {
        let dir = tempfile::tempdir().unwrap();
        let server = dir.path().join(".s.PGSQL.5432");
        let (_at_socket, other) = (
            UnixListener::bind(&server).unwrap(),
            UnixListener::bind(dir.path().join("x")).unwrap(),
        );
        let (tcp, tcp_other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        note(address.ip(), address.port());
        let mut unix = UnixStream::connect(&server).unwrap();
        let mut by_tcp = TcpStream::connect(address).unwrap();
        let still = UnixStream::connect(dir.path().join("x")).unwrap();
        let still_tcp = TcpStream::connect(tcp_other.local_addr().unwrap()).unwrap();
        within(Duration::from_millis(50), || {
            assert_eq!(unix.read(&mut [0]).unwrap(), 0);
            assert_eq!(by_tcp.read(&mut [0]).unwrap(), 0);
        });
        drop(other);
        for read in [
            still.set_nonblocking(true).and_then(|()| (&still).read(&mut [0])),
            still_tcp.set_nonblocking(true).and_then(|()| (&still_tcp).read(&mut [0])),
        ] {
            // The end that its listener's end makes is no cut; a cut is seen as 0 on an open one.
            assert!(read.is_err(), "{read:?}");
        }
        assert!(!was_cut(), "a limit is nobody's word to stop");
    }

    #[test]
    fn what_is_done_in_time_is_left_alone() {
        assert_eq!(within(Duration::from_secs(60), || 7), 7);
    }
}
