//! Measures our server against the real one and prints the ratios.
//!
//! Both serve the same files, in memory, and are driven by the same `globus-url-copy`, in turn, so that
//! whatever else the machine does meets both. Each run is checked: all files arrived, in full length.

use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::Kind;
use gridhaul_interop::bench::arena::{BenchArena, Sizes};
use gridhaul_interop::bench::rows::{ROWS, Row};
use gridhaul_interop::bench::table::{Measured, heading, machine};

#[derive(Debug, Parser)]
#[command(about = "Measure gridhaul-server against globus-gridftp-server")]
struct Arguments {
    /// Small sizes and one run of each: to see that everything works, not how fast
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Runs of each row and server; the median counts
    #[arg(long, value_name = "COUNT")]
    repeat: Option<usize>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let wanted = |row: &&Row| {
        arguments.row.is_empty()
            || arguments
                .row
                .iter()
                .any(|name| row.name.contains(name.as_str()))
    };
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("there is no such row; there are {}", names.join(", ")).into());
    }
    let sizes = if arguments.quick {
        Sizes::QUICK
    } else {
        Sizes::FULL
    };
    let repeat = arguments
        .repeat
        .unwrap_or(if arguments.quick { 1 } else { 5 })
        .max(1);
    let arena = BenchArena::new(sizes)?;
    println!("{}", machine(&arena.program(Kind::Gridhaul)));
    println!(
        "{:.1} GB in one file, {} files of {} bytes, {} idle sessions; median of {repeat}, in turn",
        sizes.large_gigabytes(),
        sizes.files,
        sizes.small,
        sizes.sessions,
    );
    println!(
        "A ratio of more than 1 means that ours is better. Spread: the run furthest from the median.\n"
    );
    print!("{}", heading());
    for row in rows {
        let mut measured = Measured {
            row: *row,
            ours: Vec::new(),
            theirs: Vec::new(),
        };
        for round in 0..repeat {
            // Whoever goes first may find the machine in another state: take turns at that too.
            let mut kinds = [Kind::Gridhaul, Kind::Globus];
            kinds.rotate_left(round % 2);
            for kind in kinds {
                let sample = row
                    .run(&arena, kind)
                    .map_err(|error| format!("{} with {}: {error}", row.name, kind.name()))?;
                match kind {
                    Kind::Gridhaul => measured.ours.push(sample),
                    Kind::Globus => measured.theirs.push(sample),
                }
            }
        }
        print!("{}", measured.lines());
    }
    Ok(())
}
