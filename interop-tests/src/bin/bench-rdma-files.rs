//! Copies from file to file over RDMA and TCP, as tables and plots.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::bench::rdma_files::{self, Plan};
use gridhaul_interop::bench::record::section::Section;

#[derive(Debug, Parser)]
#[command(about = "Measure copies from file to file over RDMA, beside TCP")]
struct Arguments {
    /// Small files and one run of each, as a functional test
    #[arg(long)]
    quick: bool,
    /// Runs of each row
    #[arg(long, value_name = "COUNT")]
    repeat: Option<usize>,
    /// Also write the page and its plots to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-rdma-files: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a target is missed.
fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let mut plan = match arguments.quick {
        true => Plan::QUICK,
        false => Plan::FULL,
    };
    plan.repeat = arguments.repeat.unwrap_or(plan.repeat).max(1);
    let sections = rdma_files::measure(plan, |section| println!("{}", section.text()))?;
    if let Some(directory) = &arguments.record {
        rdma_files::write(directory, plan, &sections)?;
    }
    // Rates of small files are those of starting programs.
    Ok(arguments.quick || sections.iter().all(Section::is_met))
}
