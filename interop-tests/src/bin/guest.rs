//! Runs a program in a guest and exits with its status: cargo's runner for tests that need RDMA devices.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::guest::{Guest, Network};

#[derive(Debug, Parser)]
#[command(about = "Run a program in user-mode Linux with RDMA devices in software")]
struct Arguments {
    /// The network that the guest has
    #[arg(long, value_enum, default_value_t = Network::None)]
    network: Network,
    /// Its memory, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Its time limit, in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let guest = Guest::new(arguments.network, arguments.words)
        .memory_mib(arguments.memory)
        .time_limit(Duration::from_secs(arguments.seconds));
    match guest.run() {
        Ok(report) => {
            // A closed standard output is no error.
            let _ = io::stdout().write_all(&report.output);
            report.status.into()
        }
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::FAILURE
        }
    }
}
