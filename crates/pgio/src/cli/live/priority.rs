//! The priority of threads that only serve people who watch.
//!
//! A file of its own, since server and renderer both need it and neither should know the other.

use rustix::process::setpriority_process;

/// Lowers the priority of the calling thread to that of `nice -n 19`. On Linux a priority belongs to a
/// thread, and no process id means the calling thread. Failure is harmless: the thread then competes as an
/// ordinary one.
pub(super) fn lower() {
    let _ = setpriority_process(None, 19);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn lower_affects_only_the_priority_of_the_calling_thread() {
        let before = getpriority_process(None).unwrap();
        let lowered = std::thread::spawn(|| {
            lower();
            getpriority_process(None).unwrap()
        });
        assert_eq!(lowered.join().unwrap(), 19);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
