//! Benchmarks of the driver `rdma` over the RDMA devices of guests and over the host's loopback, compared with perftest
//! and other drivers.
//!
//! For most tables this program starts itself in a guest, with the name of the table.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::bench::awake::Awake;
use gridhaul_interop::bench::cpus::Cpus;
use gridhaul_interop::bench::devices::tables::{Page, Table};
use gridhaul_interop::bench::machine;
use gridhaul_interop::bench::record::section::{self, Section};
use gridhaul_interop::guest::Guest;

#[derive(Debug, Parser)]
#[command(about = "Measure the driver rdma over soft-RoCE and software iWARP")]
struct Arguments {
    /// Only this table; may be given several times
    #[arg(long, value_enum)]
    table: Vec<Table>,
    /// Also write the pages of the tables to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Measure the table in this process, inside a guest
    #[arg(long, hide = true, conflicts_with = "record")]
    here: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-devices: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a target is missed.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let tables = match arguments.table.as_slice() {
        [] => &Table::ALL[..],
        some => some,
    };
    if arguments.here {
        for table in tables {
            print!("{}", toml::to_string(&table.measure()?)?);
        }
        return Ok(true);
    }
    let facts = machine::facts();
    let facts = facts
        .iter()
        .map(|(name, words)| format!("- {name}: {words}\n"));
    let facts: String = facts.collect();
    let mut sections = Vec::new();
    for &table in tables {
        let section = measure(table)?;
        println!("{}", section.text());
        sections.push((table.page(), section));
        // Written after each table, so that an interrupted run leaves its results.
        if let Some(directory) = &arguments.record {
            record(directory, &facts, &sections)?;
        }
    }
    Ok(sections.iter().all(|(_, section)| section.is_met()))
}

/// Writes the pages of the sections. If the directory contains a `rdma-notes.md`, that becomes the end of the page of stacks.
fn record(directory: &Path, facts: &str, sections: &[(Page, Section)]) -> io::Result<()> {
    for page in Page::ALL {
        let of_page = sections.iter().filter(|(of, _)| *of == page);
        let of_page: Vec<Section> = of_page.map(|(_, section)| section.clone()).collect();
        if of_page.is_empty() {
            continue;
        }
        // Hand-written notes on the numbers: the causes of missed targets, and experiments.
        let notes = match page {
            Page::Stacks => fs::read_to_string(directory.join("rdma-notes.md")).ok(),
            Page::Files => None,
        };
        let notes = notes.map_or_else(String::new, |notes| format!("\n{notes}"));
        let introduction = page.introduction().to_owned() + facts;
        section::write(directory, page.name(), &introduction, &of_page, &notes)?;
    }
    Ok(())
}

fn measure(table: Table) -> Result<Section, Box<dyn std::error::Error>> {
    let Some(network) = table.network() else {
        return Ok(table.measure()?);
    };
    let program = std::env::current_exe()?;
    let name = clap::ValueEnum::to_possible_value(&table).expect("no table is hidden");
    let words = ["--here", "--table", name.get_name()].map(Into::into);
    let words = std::iter::once(program.into_os_string()).chain(words);
    let processor = Cpus::allowed()?.last();
    let _awake = Awake::keep(processor)?;
    let guest = Guest::new(network, words)
        .on_processor(processor)
        .memory_mib(table.memory_mib())
        .disk_mib(table.disk_mib())
        .time_limit(Duration::from_secs(900));
    let report = guest.run()?;
    let section =
        (report.status == 0).then(|| toml::from_str(&String::from_utf8_lossy(&report.output)));
    match section {
        Some(Ok(section)) => Ok(section),
        Some(Err(error)) => Err(format!("{error}: {report}").into()),
        None => Err(report.to_string().into()),
    }
}
