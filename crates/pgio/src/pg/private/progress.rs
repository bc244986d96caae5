//! The progress of starting a private server: bytes downloaded, time left, the current step.
//!
//! This module only holds data for the caller to show; it prints nothing.

use std::fmt;
use std::time::Duration;

use super::version::ServerVersion;

/// A step on the way to a running private server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Download {
        version: ServerVersion,
        received: u64,
        /// Absent if the server does not state a length.
        total: Option<u64>,
        left: Option<Duration>,
    },
    Unpack(ServerVersion),
    Start,
}

/// Receives each step; a program without a terminal ignores them.
pub type Observer<'a> = &'a mut dyn FnMut(&Progress);

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Download { version, received, total, left } => {
                write!(f, "downloading PostgreSQL {version}: {}", megabytes(*received))?;
                if let Some(total) = total {
                    write!(f, " of {}", megabytes(*total))?;
                }
                f.write_str(" MB")?;
                match left {
                    Some(left) if left.as_secs() >= 120 => {
                        write!(f, ", {} min left", left.as_secs().div_ceil(60))
                    }
                    Some(left) => write!(f, ", {} s left", left.as_secs_f64().ceil()),
                    None => Ok(()),
                }
            }
            Progress::Unpack(version) => write!(f, "unpacking PostgreSQL {version} …"),
            Progress::Start => f.write_str("starting PostgreSQL …"),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: ServerVersion = ServerVersion { major: 18, minor: 6 };

    fn text(received: u64, total: Option<u64>, seconds: Option<u64>) -> String {
        let left = seconds.map(Duration::from_secs);
        Progress::Download { version: VERSION, received, total, left }.to_string()
    }

    #[test]
    fn a_download_shows_size_and_time_left() {
        let total = Some(15_119_738);
        assert_eq!(text(0, None, None), "downloading PostgreSQL 18.6: 0.0 MB");
        assert_eq!(text(0, total, None), "downloading PostgreSQL 18.6: 0.0 of 15.1 MB");
        let shown = text(3_100_000, total, Some(4));
        assert_eq!(shown, "downloading PostgreSQL 18.6: 3.1 of 15.1 MB, 4 s left");
        let shown = text(3_100_000, total, Some(150));
        assert_eq!(shown, "downloading PostgreSQL 18.6: 3.1 of 15.1 MB, 3 min left");
    }
}
