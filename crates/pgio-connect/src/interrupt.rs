//! Interrupts waits for PostgreSQL servers that do not answer.
//!
//! The driver's calls block in a read while the server is silent: a stopped process, hanging
//! storage, an interrupted network. The driver has no API to end such a read; shutting down the
//! socket ends it with an error. This module therefore finds the process's sockets to servers
//! itself: those whose peer is a PostgreSQL socket, or an address that was [noted](note) before the
//! connection. It shuts down all of them at once; a session to a server that does answer is lost
//! too, and its owner reconnects.
//!
//! Next: `pgio::cli::signals`, which cuts some time after Ctrl-C.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, SocketAddrAny, SocketAddrUnix, getpeername, shutdown};

/// Interval between cuts: a wait may have begun on a session opened since the last one.
pub const REPEAT: Duration = Duration::from_millis(100);

/// Addresses of servers. Global, because the sockets of a process are.
static SERVER_ADDRESSES: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
static CUTTING: AtomicBool = AtomicBool::new(false);
static WAS_CUT: AtomicBool = AtomicBool::new(false);

/// Registers the address of a server. Call it before connecting.
pub fn note(address: SocketAddr) {
    let mut noted = SERVER_ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    noted.insert(canonical(address));
}

/// Whether connections are being cut, so that the caller must end its wait. That counts as a cut.
pub fn must_end_wait() -> bool {
    let cutting = CUTTING.load(Ordering::SeqCst);
    if cutting {
        WAS_CUT.store(true, Ordering::SeqCst);
    }
    cutting
}

/// Whether a session was cut because pgio was asked to stop; later errors are consequences.
pub fn was_cut() -> bool {
    WAS_CUT.load(Ordering::SeqCst)
}

/// Starts or stops cutting connections to servers.
pub fn set_cutting(cutting: bool) {
    CUTTING.store(cutting, Ordering::SeqCst);
    if cutting {
        // Set before the wait ends with an error, whose reader may ask at once.
        cut_each(|| WAS_CUT.store(true, Ordering::SeqCst));
    }
}

/// Waits until cutting has stopped, unless pgio must exit immediately (`urgent`). Call it before undoing
/// changes.
pub fn settle(urgent: impl Fn() -> bool) {
    while CUTTING.load(Ordering::SeqCst) && !urgent() {
        thread::sleep(REPEAT / 10);
    }
}

/// Runs `work` and cuts connections to servers if it exceeds the limit.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let watch = move || {
        let mut timeout = limit;
        while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(timeout) {
            cut_all();
            timeout = REPEAT;
        }
    };
    // If the thread cannot start there is no limit, but Ctrl-C still works.
    let watching = thread::Builder::new().name("limit".to_owned()).spawn(watch);
    let result = work();
    drop(done);
    // Otherwise a pending cut could hit the next session.
    let _ = watching.map(thread::JoinHandle::join);
    result
}

/// Ends every current wait of this process for a server.
pub fn cut_all() {
    cut_each(|| {});
}

/// `before` is called before each session is cut.
fn cut_each(before: impl Fn()) {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = entries.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<RawFd>().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        target.as_os_str().as_encoded_bytes().starts_with(b"socket:").then_some(number)
    });
    for number in numbers.collect::<Vec<_>>() {
        if let Some(socket) = duplicate(number).filter(is_of_server) {
            before();
            // The connection may have ended by itself.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}

/// A new descriptor for the same socket.
#[allow(unsafe_code)]
fn duplicate(number: RawFd) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the descriptor is borrowed for one fcntl(2) only. If its owner closes it meanwhile,
    // the call fails or duplicates the file that now has the number. We own the duplicate, and the
    // check whether it is a server's socket uses the duplicate.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).ok()
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_of_server(socket: &OwnedFd) -> bool {
    let Ok(Some(peer)) = getpeername(socket) else { return false };
    if let Ok(address) = SocketAddr::try_from(peer.clone()) {
        let noted = SERVER_ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        return noted.contains(&canonical(address));
    }
    is_server_socket(&peer)
}

/// Compares only the file name, because the server may use another path for the directory.
fn is_server_socket(peer: &SocketAddrAny) -> bool {
    let Ok(unix) = SocketAddrUnix::try_from(peer.clone()) else { return false };
    let path = unix.path().map(|path| path.to_string_lossy().into_owned());
    let name = path.as_deref().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b".s.PGSQL."))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Held by tests that cut connections or would be cut: all are of one process.
    pub(crate) static CUTS: Mutex<()> = Mutex::new(());

    #[test]
    fn waits_for_servers_are_cut_and_others_continue() {
        let _alone = CUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let server = dir.path().join(".s.PGSQL.5432");
        let (_at_socket, other) = (
            UnixListener::bind(&server).unwrap(),
            UnixListener::bind(dir.path().join("x")).unwrap(),
        );
        let (tcp, tcp_other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        note(address);
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
            // Closing the listener is not a cut; a cut would make the read return 0.
            assert!(read.is_err(), "{read:?}");
        }
        assert!(!was_cut(), "a limit is not a request to stop");

        drop((unix, by_tcp));
        set_cutting(true);
        assert!(!was_cut(), "there is no session to cut");
        let mut session = TcpStream::connect(address).unwrap();
        set_cutting(true);
        set_cutting(false);
        assert_eq!(session.read(&mut [0]).unwrap(), 0);
        assert!(was_cut() && !must_end_wait());
    }

    #[test]
    fn work_within_the_limit_is_not_interrupted() {
        assert_eq!(within(Duration::from_secs(60), || 7), 7);
    }
}
