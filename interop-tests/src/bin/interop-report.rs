//! Runs the table and prints the outcomes of both servers.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use gridhaul_interop::Kind;
use gridhaul_interop::cases::{Report, Testbed, run, table};

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
    /// Print the names of the cases and run nothing.
    #[arg(long)]
    list: bool,
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

fn main() -> std::io::Result<ExitCode> {
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
    let testbed = Testbed::with_nodes(arguments.nodes)?;
    let mut report = Report::default();
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
