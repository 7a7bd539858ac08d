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
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a row gave no number.
fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let rows = rows(&arguments.row)?;
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
        "{:.3} GB in one file, {} files of {} bytes, {} idle sessions; median of {repeat}, in turn",
        sizes.large_gigabytes(),
        sizes.files,
        sizes.small,
        sizes.sessions,
    );
    println!(
        "A ratio of more than 1 means that ours is better. Spread: the run furthest from the median.\n"
    );
    print!("{}", heading());
    let mut complete = true;
    for row in rows {
        match runs(row, &arena, repeat) {
            Ok(measured) => print!("{}", measured.lines()),
            Err(error) => {
                complete = false;
                println!("{:<17} {error}", row.name);
            }
        }
    }
    Ok(complete)
}

/// The rows whose names contain one of these, or all.
fn rows(wanted: &[String]) -> Result<Vec<&'static Row>, String> {
    let is_wanted = |row: &&Row| {
        wanted.is_empty() || wanted.iter().any(|name| row.name.contains(name.as_str()))
    };
    let rows: Vec<&Row> = ROWS.iter().filter(is_wanted).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!(
            "there is no such row; there are {}",
            names.join(", ")
        ));
    }
    Ok(rows)
}

/// Runs a row against both kinds of servers, in turn.
fn runs(row: &Row, arena: &BenchArena, repeat: usize) -> Result<Measured, String> {
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
            let sample = row.run(arena, kind);
            let sample = sample.map_err(|error| format!("failed with {}: {error}", kind.name()))?;
            match kind {
                Kind::Gridhaul => measured.ours.push(sample),
                Kind::Globus => measured.theirs.push(sample),
            }
        }
    }
    Ok(measured)
}
