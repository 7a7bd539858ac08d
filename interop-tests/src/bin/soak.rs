//! Holds many sessions against our server and looks for what they leave behind.
//!
//! Some of the sessions transfer all the time, in stream mode and in MODE E, and compare every byte.
//! Afterwards the server must be back to the processes, threads, descriptors and memory that it had
//! before they connected.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::Kind;
use gridhaul_interop::bench::scratch::Scratch;
use gridhaul_interop::bench::soak::Soak;

#[derive(Debug, Parser)]
#[command(about = "Run many sessions against the server and look for leaks")]
struct Arguments {
    /// Sessions in all
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// Those of them that transfer all the time
    #[arg(long, default_value_t = 100)]
    transferring: usize,
    /// How long to hold them
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Run against globus-gridftp-server instead
    #[arg(long)]
    theirs: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let soak = Soak {
        kind: if arguments.theirs {
            Kind::Globus
        } else {
            Kind::Gridhaul
        },
        sessions: arguments.sessions.max(arguments.transferring),
        transferring: arguments.transferring,
        duration: Duration::from_secs(arguments.seconds),
    };
    let outcome = Scratch::beneath(Path::new("/dev/shm"))
        .map_err(Into::into)
        .and_then(|scratch| soak.run(scratch.path()));
    match outcome {
        Ok(outcome) => {
            print!("{outcome}");
            if outcome.complaints().is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
