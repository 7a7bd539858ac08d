//! The program `gridhaul`: its commands, and what they print.
//!
//! ```text
//!   arguments      the command line
//!   config         configuration files, which add to it
//!   profile        what they set
//!   copy, sum      the commands
//!   guc            the options of globus-url-copy
//!   files          ls, stat, mkdir, rm, mv
//!   trees          chmod, du, tree
//!   ping           how a server answers
//!   bench          how fast bytes move
//!   interrupt      signals that end the program
//!   environment    variables of Globus programs
//!   plan           the list of a dry run
//!   proxy          proxies of the user
//!   servers        sessions by server, and how to log in
//!   identities     certificates of the user
//!   telling        what --verbose says about sessions
//!   secret         passwords and passphrases
//!   output         lines on standard output and standard error
//!   report         lines for people, JSON for programs
//! ```

mod arguments;
mod bench;
mod config;
mod copy;
mod environment;
mod files;
mod guc;
mod identities;
mod interrupt;
mod output;
mod ping;
mod place;
mod plan;
mod profile;
mod proxy;
mod report;
mod secret;
mod servers;
mod sum;
mod telling;
mod trees;

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use arguments::{Command, RdmaWay};

/// How the program ends. The numbers are documented in `docs/client.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Everything is complete.
    Complete,
    /// Something failed; the messages say what.
    Failed,
    /// The arguments make no sense together.
    Usage,
    /// By a signal of [`interrupt`]. The number is that of programs that SIGINT ends.
    Interrupted,
    /// The reader of standard output has gone. The number is that of programs that SIGPIPE ends.
    Closed,
}

impl Ending {
    fn status(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
            Self::Closed => 141,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(ending.status())
    }
}

/// The commands and options of the program, for manual pages and completions.
pub fn command_line() -> clap::Command {
    arguments::Arguments::command()
}

/// The options of `copy` that configuration files may set, for the file of the package.
pub fn configuration_keys() -> impl Iterator<Item = &'static str> {
    config::keys()
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let as_globus = env::args_os()
        .next()
        .is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new("globus-url-copy")));
    let command = match as_globus {
        true => Command::Guc {
            words: env::args_os().skip(1).collect(),
        },
        false => match config::command() {
            Some(command) => command,
            None => return Ending::Usage.into(),
        },
    };
    if let Err(error) = environment::check()
        && listens(&command)
    {
        output::warn(error);
        return Ending::Failed.into();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Without optimization the frames of a copy between servers take most of the default of 2 MiB.
        .thread_stack_size(4 << 20)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("gridhaul: no threads: {error}");
            return Ending::Failed.into();
        }
    };
    if let Err(error) = interrupt::watch() {
        output::warn(format_args!("signals: {error}"));
    }
    let ending = runtime.block_on(async {
        tokio::select! {
            ending = run(&command) => ending,
            () = interrupt::arrived(), if !stops_itself(&command) => Ending::Interrupted,
        }
    });
    secret::stop_asking();
    // Threads that wait for a peer do not hold the end up.
    runtime.shutdown_background();
    ending.into()
}

/// Whether a command says what is left, or removes it, when it is interrupted.
fn stops_itself(command: &Command) -> bool {
    matches!(
        command,
        Command::Copy(_)
            | Command::Rput(_)
            | Command::Rget(_)
            | Command::Cat(_)
            | Command::Guc { .. }
            | Command::Bench(_)
    )
}

/// Whether a command may listen for data connections.
fn listens(command: &Command) -> bool {
    matches!(
        command,
        Command::Copy(_)
            | Command::Rput(_)
            | Command::Rget(_)
            | Command::Guc { .. }
            | Command::Bench(_)
    )
}

async fn run(command: &Command) -> Ending {
    match command {
        Command::Copy(arguments) => copy::run(arguments).await,
        Command::Rput(arguments) => copy::over_rdma(arguments, RdmaWay::Put).await,
        Command::Rget(arguments) => copy::over_rdma(arguments, RdmaWay::Get).await,
        Command::Cat(arguments) => copy::cat(arguments).await,
        Command::Sum(arguments) => sum::run(arguments).await,
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Ping(arguments) => ping::run(arguments).await,
        Command::Proxy { command } => proxy::run(command).await,
        Command::Ls(arguments) => files::ls(arguments).await,
        Command::Stat(arguments) => files::stat(arguments).await,
        Command::Mkdir(arguments) => files::mkdir(arguments).await,
        Command::Rm(arguments) => files::rm(arguments).await,
        Command::Mv(arguments) => files::mv(arguments).await,
        Command::Chmod(arguments) => trees::chmod(arguments).await,
        Command::Du(arguments) => trees::du(arguments).await,
        Command::Tree(arguments) => trees::tree(arguments).await,
        Command::Config { url } => config::run(url.as_deref()),
        Command::Guc { words } => guc::run(words).await,
    }
}
