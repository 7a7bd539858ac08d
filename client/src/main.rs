//! The program `gridhaul`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gridhaul_client::program::main()
}
