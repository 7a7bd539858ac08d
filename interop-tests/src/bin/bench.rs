//! The benchmark of record: our server, the real one and the bare pump.
//!
//! They run alternately with the same files, so that other load on the machine affects all of them equally. Each run is
//! checked: all files arrived with full length. A contender that fails is a line with the reason.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use gridhaul_interop::bench::cpus::Cpus;
use gridhaul_interop::bench::files::Sizes;
use gridhaul_interop::bench::measured::Measured;
use gridhaul_interop::bench::reserve::Reserve;
use gridhaul_interop::bench::row::Row;
use gridhaul_interop::bench::testbed::Testbed;
use gridhaul_interop::bench::{machine, pump, record, rows, table};

/// The memory reserve, in large files: files of several kinds exist at once.
const RESERVED: u64 = 5;

#[derive(Debug, Parser)]
#[command(about = "Measure gridhaul-server beside globus-gridftp-server and the kernel's limit")]
struct Arguments {
    /// Small sizes and one run of each, as a functional test
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Runs of each row and contender, 7 by default; the median counts. A row that reaches its time limit
    /// makes fewer
    #[arg(long, value_name = "COUNT")]
    repeat: Option<usize>,
    /// The processors that servers, clients and pump may use, such as 0,2-3. Default: all
    #[arg(long, value_name = "LIST", value_parser = Cpus::parse)]
    cpus: Option<Cpus>,
    /// A directory on a disk, for files that are not in memory. Default: the temporary directory
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Also write the tables and charts to this directory, after each row
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(subcommand)]
    half: Option<Half>,
}

#[derive(Debug, Clone, Subcommand)]
enum Half {
    /// Run as one half of the bare pump; for the benchmark itself
    #[command(subcommand, hide = true)]
    Pump(pump::Side),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.half {
        Some(Half::Pump(side)) => pump::serve(side).map(|()| true).map_err(Into::into),
        None => measure(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a contender that can run a row has no result.
fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let rows = wanted(rows::all(), &arguments.row)?;
    if let Some(cpus) = &arguments.cpus {
        cpus.pin()?;
    }
    let (sizes, repeat) = match arguments.quick {
        true => (Sizes::QUICK, 1),
        false => (Sizes::FULL, 7),
    };
    let repeat = arguments.repeat.unwrap_or(repeat).max(1);
    let _reserve = Reserve::of(sizes.large * RESERVED);
    let disk = arguments.disk.clone().unwrap_or_else(std::env::temp_dir);
    let testbed = Testbed::new(sizes, &disk, std::env::current_exe()?)?;
    let mut facts = machine::facts();
    facts.extend(machine::programs());
    facts.push(("files", sizes.label()));
    let runs =
        format!("the median of {repeat} alternating runs, or fewer at the time limit of a row");
    facts.push(("runs", runs));
    for (name, words) in &facts {
        println!("{name}: {words}");
    }
    println!(
        "A ratio above 1 means that ours is better. Spread: the largest deviation from the median.\n"
    );
    print!("{}", table::heading());
    let record = |measured: &[Measured]| match &arguments.record {
        Some(directory) => record::write(directory, &facts, measured),
        None => Ok(()),
    };
    let measured = run(rows, &testbed, repeat, record)?;
    Ok(measured.iter().all(Measured::is_complete))
}

/// Runs the rows and prints each when it is done; prints the progress on standard error.
fn run(
    rows: Vec<Row>,
    testbed: &Testbed,
    repeat: usize,
    record: impl Fn(&[Measured]) -> io::Result<()>,
) -> io::Result<Vec<Measured>> {
    let started = Instant::now();
    let count = rows.len();
    let mut left: Duration = rows.iter().map(|row| row.limit).sum();
    let mut measured = Vec::new();
    for (index, row) in rows.into_iter().enumerate() {
        eprintln!(
            "{:>3} of {count}: {}; {} s so far, {} s left at most",
            index + 1,
            row.name,
            started.elapsed().as_secs(),
            left.as_secs(),
        );
        left -= row.limit;
        let row = Measured::take(row, testbed, repeat);
        print!("{}", table::text(&row));
        measured.push(row);
        // Written after each row, so that an interrupted run leaves its results.
        record(&measured)?;
    }
    Ok(measured)
}

/// The rows whose names contain one of these, or all.
fn wanted(rows: Vec<Row>, names: &[String]) -> Result<Vec<Row>, String> {
    let all: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let is_wanted =
        |row: &Row| names.is_empty() || names.iter().any(|name| row.name.contains(name.as_str()));
    let rows: Vec<Row> = rows.into_iter().filter(is_wanted).collect();
    if rows.is_empty() {
        let all = all.join(", ");
        return Err(format!("there is no such row; there are {all}"));
    }
    Ok(rows)
}
