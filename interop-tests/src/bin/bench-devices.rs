//! The driver `rdma` over the RDMA devices of guests, and over the host's loopback, beside perftest and other drivers.
//!
//! Most tables are measured by this program in a guest, where it is started with the name of one.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::bench::devices::tables::Table;
use gridhaul_interop::bench::machine;
use gridhaul_interop::guest::Guest;

#[derive(Debug, Parser)]
#[command(about = "Measure the driver rdma over soft-RoCE and software iWARP")]
struct Arguments {
    /// Only this table; may be given several times
    #[arg(long, value_enum)]
    table: Vec<Table>,
    /// Also write the page to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Measure the table here, which is a guest
    #[arg(long, hide = true, conflicts_with = "record")]
    here: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-devices: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let tables = match arguments.table.as_slice() {
        [] => &Table::ALL[..],
        some => some,
    };
    if arguments.here {
        for table in tables {
            print!("{}", table.measure()?);
        }
        return Ok(());
    }
    let mut page = String::from(INTRODUCTION);
    for (name, words) in machine::facts() {
        page += &format!("- {name}: {words}\n");
    }
    for &table in tables {
        let measured = measure(table)?;
        println!("{measured}");
        page += &format!("\n{measured}");
        // A run that is interrupted leaves what it has.
        if let Some(directory) = &arguments.record {
            fs::create_dir_all(directory)?;
            fs::write(directory.join("rdma-devices.md"), &page)?;
        }
    }
    if let Some(directory) = &arguments.record
        && let Ok(notes) = fs::read_to_string(directory.join("rdma-notes.md"))
    {
        page += &format!("\n{notes}");
        fs::write(directory.join("rdma-devices.md"), &page)?;
    }
    Ok(())
}

/// What the page begins with.
const INTRODUCTION: &str = "# The driver rdma over devices in software

This page is written by `make bench-rdma`. Zeros go from one end of a cable to the other through a driver stack,
without a server or a file system, in a guest with one processor: both ends, the devices and the cable share it.

";

fn measure(table: Table) -> Result<String, Box<dyn std::error::Error>> {
    let Some(network) = table.network() else {
        return Ok(table.measure()?);
    };
    let program = std::env::current_exe()?;
    let name = clap::ValueEnum::to_possible_value(&table).expect("no table is hidden");
    let words = ["--here", "--table", name.get_name()].map(Into::into);
    let words = std::iter::once(program.into_os_string()).chain(words);
    let guest = Guest::new(network, words).time_limit(Duration::from_secs(900));
    let report = guest.run()?;
    match report.status {
        0 => Ok(String::from_utf8_lossy(&report.output).into_owned()),
        _ => Err(report.to_string().into()),
    }
}
