//! Servers with several data nodes, as tables and a plot.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use gridhaul_interop::bench::nodes::{self, Part};
use gridhaul_interop::bench::record::section::Section;

#[derive(Debug, Parser)]
#[command(about = "Measure servers with 1 to 64 data nodes")]
struct Arguments {
    /// Only this part of the page; may be given several times
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Also write the page and its plots to this directory; needs all parts
    #[arg(long, value_name = "DIR", conflicts_with = "part")]
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
    let parts = match arguments.part.as_slice() {
        [] => Part::value_variants(),
        parts => parts,
    };
    let sections = parts
        .iter()
        .map(|part| part.measure())
        .collect::<Result<Vec<_>, _>>()?;
    for section in &sections {
        println!("{}", section.text());
    }
    if let Some(directory) = &arguments.record {
        nodes::write(directory, &sections)?;
    }
    Ok(sections.iter().all(Section::is_met))
}
