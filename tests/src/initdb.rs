//! Stands in for `initdb` in `.ci/run`: copies what the real one made once, which takes a tenth of the time.
//!
//! Beside it are `initdb.real`, `template`, a data directory made with the arguments in `template.args` and
//! `--pgdata DIRECTORY`, and links to all other programs. With other arguments the real one does the work.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let program = std::env::current_exe().unwrap();
    let beside = program.parent().unwrap();
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let usual = fs::read_to_string(beside.join("template.args")).unwrap_or_default();
    let data = given.iter().position(|argument| argument == "--pgdata");
    let data = data.map(|at| given.drain(at..at + 2).nth(1).unwrap());
    // The template belongs to the usual server user.
    let readable = File::open(beside.join("template/PG_VERSION")).is_ok();
    let is_usual = readable && given.iter().eq(usual.split_whitespace());
    let Some(data) = data.filter(|_| is_usual) else {
        let error = Command::new(beside.join("initdb.real")).args(std::env::args().skip(1)).exec();
        eprintln!("initdb.real: {error}");
        return ExitCode::FAILURE;
    };
    let copy = ["-a", "--reflink=auto"];
    let copied = Command::new("cp").args(copy).arg(beside.join("template/.")).arg(&data).status();
    // Under a limit of processes, say, as the real one may not start its own.
    if !copied.is_ok_and(|status| status.success()) {
        eprintln!("initdb: cannot copy its template to {data}");
        return ExitCode::FAILURE;
    }
    identify(Path::new(&data));
    ExitCode::SUCCESS
}

/// Gives the copy a system identifier of its own, made as initdb does.
fn identify(data: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let process = u64::from(std::process::id() & 0xFFF);
    let identifier = now.as_secs() << 32 | u64::from(now.subsec_micros()) << 12 | process;
    let control = data.join("global/pg_control");
    let mut bytes = fs::read(&control).unwrap();
    // Its length depends on the version, and the checksum is at its end.
    let crc = |bytes: &[u8], end: usize| crc32c(&bytes[..end]).to_ne_bytes();
    let end = (8..1024).step_by(4).find(|&end| crc(&bytes, end) == bytes[end..end + 4]);
    let end = end.expect("pg_control has a checksum");
    bytes[..8].copy_from_slice(&identifier.to_ne_bytes());
    let checksum = crc(&bytes, end);
    bytes[end..end + 4].copy_from_slice(&checksum);
    fs::write(&control, bytes).unwrap();
    for segment in fs::read_dir(data.join("pg_wal")).unwrap() {
        let path = segment.unwrap().path();
        if path.is_file() {
            let segment = File::options().write(true).open(path).unwrap();
            segment.write_all_at(&identifier.to_ne_bytes(), 24).unwrap();
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg())
        })
    })
}
