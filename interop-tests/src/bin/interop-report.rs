//! Runs the table and prints the outcomes of both servers.

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use gridhaul_interop::cases::{Report, Testbed, run, table};
use gridhaul_interop::{Copier, Kind, ProgramError, gridhaul_program};

/// Runs the same cases against gridhaul-server and globus-gridftp-server, side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run only cases whose name contains one of these.
    filters: Vec<String>,
    /// Run against these servers.
    #[arg(long, value_enum, default_value = "both")]
    server: Servers,
    /// The number of concurrent cases.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// Run our server with this number of data nodes, also in cases that are not about them.
    #[arg(long, default_value_t = 0)]
    nodes: u8,
    /// Run the commands of globus-url-copy with our client, in the directory of gridhaul-server.
    #[arg(long, value_enum, value_name = "COMMAND")]
    client: Option<OurClient>,
    /// Print the names of the cases and run nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OurClient {
    Guc,
    Copy,
}

impl OurClient {
    fn copier(self) -> Result<Copier, ProgramError> {
        let path = gridhaul_program()?.with_file_name("gridhaul");
        Ok(match self {
            Self::Guc => Copier::Guc(path),
            Self::Copy => Copier::Copy(path),
        })
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Servers {
    Ours,
    Theirs,
    Both,
}

impl Servers {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Ours => &[Kind::Gridhaul],
            Self::Theirs => &[Kind::Globus],
            Self::Both => &[Kind::Gridhaul, Kind::Globus],
        }
    }
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen = |name: &str| {
        arguments.filters.is_empty() || arguments.filters.iter().any(|part| name.contains(part))
    };
    let cases: Vec<_> = table::cases()
        .into_iter()
        .filter(|case| chosen(&case.name))
        .collect();
    if arguments.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let copier = arguments.client.map(OurClient::copier).transpose();
    let copier = copier.map_err(io::Error::other)?.unwrap_or_default();
    let testbed = Testbed::with_nodes(arguments.nodes)?.with_copier(copier.clone());
    let mut report = Report::with_copier(copier);
    for kind in arguments.server.kinds() {
        match kind.program() {
            Ok(program) => println!("{}: {}", kind.name(), program.display()),
            Err(error) => println!("{}: {error}", kind.name()),
        }
    }
    println!("{}", Report::heading());
    run(
        &cases,
        arguments.server.kinds(),
        arguments.workers,
        &testbed,
        |row| {
            println!("{}", report.line(&row));
        },
    );
    println!("{}", report.ending(started.elapsed()));
    Ok(if report.failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
