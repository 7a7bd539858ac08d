//! The driver `rdma` on simulated paths, as tables and plots.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::bench::rdma;
use gridhaul_interop::bench::record::section::Section;

#[derive(Debug, Parser)]
#[command(about = "Measure the driver rdma on simulated paths")]
struct Arguments {
    /// Also write the page and its plots to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-rdma: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a target is missed.
fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let sections = rdma::measure(|section| println!("{}", section.text()))?;
    if let Some(directory) = &arguments.record {
        rdma::write(directory, &sections)?;
    }
    Ok(sections.iter().all(Section::is_met))
}
