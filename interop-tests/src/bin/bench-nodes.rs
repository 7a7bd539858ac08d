//! Servers with several data nodes, as tables and a plot.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::bench::nodes;
use gridhaul_interop::bench::record::section::Section;

#[derive(Debug, Parser)]
#[command(about = "Measure servers with 1 to 64 data nodes")]
struct Arguments {
    /// Also write the page and its plot to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-nodes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a target is missed.
fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let sections = nodes::measure()?;
    for section in &sections {
        println!("{}", section.text());
    }
    if let Some(directory) = &arguments.record {
        nodes::write(directory, &sections)?;
    }
    Ok(sections.iter().all(Section::is_met))
}
