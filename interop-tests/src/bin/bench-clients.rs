//! gridhaul beside globus-url-copy, curl and rclone as clients, as a page.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::bench::clients;
use gridhaul_interop::bench::files::Sizes;
use gridhaul_interop::bench::testbed::Testbed;

#[derive(Debug, Parser)]
#[command(about = "Measure gridhaul beside other clients")]
struct Arguments {
    /// Small sizes and one run of each, as a functional test
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Runs of each row and client
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    repeat: usize,
    /// Also write the page to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (sizes, repeat) = match arguments.quick {
        true => (Sizes::QUICK, 1),
        false => (Sizes::FULL, arguments.repeat.max(1)),
    };
    let testbed = Testbed::new(sizes, &std::env::temp_dir(), std::env::current_exe()?)?;
    let sections = clients::measure(&testbed, repeat, &arguments.row);
    for section in &sections {
        println!("{}", section.text());
    }
    if let Some(directory) = &arguments.record {
        clients::write(directory, &sections, &sizes.label())?;
    }
    Ok(())
}
