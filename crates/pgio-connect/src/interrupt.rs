//! Interrupts waits for PostgreSQL servers that do not answer.
//!
//! A call for a server blocks while the server is silent: a stopped process, hanging storage, an
//! interrupted network. Shutting down the socket ends the wait with an error. All sockets of pgio to
//! servers are registered here, because a signal is for all of the process, and shut down at once; a
//! session to a server that does answer is lost too, and its owner reconnects.
//!
//! Next: `pgio::cli::signals`, which cuts some time after Ctrl-C.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

/// Interval between cuts: a wait may have begun on a session opened since the last one.
pub const REPEAT: Duration = Duration::from_millis(100);

static SOCKETS: Mutex<Vec<Weak<OwnedFd>>> = Mutex::new(Vec::new());
static CUTTING: AtomicBool = AtomicBool::new(false);
static WAS_CUT: AtomicBool = AtomicBool::new(false);

/// Makes a socket one of those that are cut. Call it before connecting.
pub(crate) fn register(socket: &Arc<OwnedFd>) {
    let mut sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.retain(|socket| socket.strong_count() > 0);
    sockets.push(Arc::downgrade(socket));
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
    let sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for socket in sockets.iter().filter_map(Weak::upgrade) {
        before();
        // The connection may have ended by itself.
        let _ = shutdown(&socket, Shutdown::Both);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::params::Keepalives;
    use crate::socket::Socket;

    /// Held by tests that cut connections or would be cut: all are of one process.
    pub(crate) static CUTS: Mutex<()> = Mutex::new(());

    #[test]
    fn waits_for_servers_are_cut_and_others_continue() {
        let _alone = CUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        let (_by_file, tcp) =
            (UnixListener::bind(&file).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        let by_address = || Socket::to_address(&address, &Keepalives::default(), None).unwrap();
        let mut sessions = [Socket::to_file(&file, None).unwrap(), by_address()];
        let mut still = TcpStream::connect(address).unwrap();
        within(Duration::from_millis(50), || {
            for session in &mut sessions {
                assert_eq!(session.read(&mut [0]).unwrap(), 0);
            }
        });
        let read = still.set_nonblocking(true).and_then(|()| still.read(&mut [0]));
        assert!(read.is_err(), "a cut would make the read return 0: {read:?}");
        assert!(!was_cut(), "a limit is not a request to stop");

        drop(sessions);
        set_cutting(true);
        assert!(!was_cut(), "there is no session to cut");
        let mut session = by_address();
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
