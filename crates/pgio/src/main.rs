use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    match args.next() {
        Some(command) if command == "supervise" => pgio::pg::private::supervise(args).into(),
        _ => ExitCode::FAILURE,
    }
}
