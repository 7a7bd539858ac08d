//! Leak test: holds many sessions with our server and checks its resources afterwards.
//!
//! Some of the sessions transfer continuously, in stream mode and in MODE E, and compare every byte.
//! Afterwards the server must be back to the processes, threads, descriptors and memory that it had
//! before they connected. With `--small-files` `globus-url-copy` copies many files of 1 KiB instead.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::Kind;
use gridhaul_interop::bench::small_files::SmallFiles;
use gridhaul_interop::bench::soak::Soak;
use gridhaul_interop::support::scratch::Scratch;

#[derive(Debug, Parser)]
#[command(about = "Run many sessions against the server and look for leaks")]
struct Arguments {
    /// The number of sessions
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// The number of sessions that transfer continuously
    #[arg(long, default_value_t = 100)]
    transferring: usize,
    /// The duration
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Copy this number of files of 1 KiB instead
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["sessions", "transferring", "seconds", "theirs"])]
    small_files: Option<usize>,
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
    let scratch = match Scratch::beneath(Path::new("/dev/shm")) {
        Ok(scratch) => scratch,
        Err(error) => return fail(&error),
    };
    let problems = match arguments.small_files {
        Some(files) => SmallFiles { files, bytes: 1024 }
            .run(scratch.path())
            .map(|copied| {
                print!("{copied}");
                copied.problems()
            }),
        None => soak.run(scratch.path()).map(|outcome| {
            print!("{outcome}");
            outcome.problems()
        }),
    };
    match problems {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("soak: {error}");
    ExitCode::FAILURE
}
