//! The program: parses the command line and hands over to `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pgio::cli::main()
}
