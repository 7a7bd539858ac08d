//! Kills data nodes and control servers, and cuts the network between them, at random moments of transfers.
//!
//! After each fault the client restarts its transfer. The file must then be exact; nodes must hold nothing of ended sessions after
//! 15 seconds; and sessions that do not use what was killed must not notice. A seed plays the same round again.
//!
//! With a client, kills it, a server or all of them during its copies in place of that, and resumes them. At most two blocks for each channel may be
//! sent again.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::kills::{Campaign, CopyCampaign, CopySummary};

#[derive(Debug, Parser)]
#[command(about = "Kill data nodes, control servers and the network between them during transfers")]
struct Arguments {
    /// The seed of the first round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of rounds
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// Rounds at the same time, each with programs of its own
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// The program gridhaul: kill it, a server or all of them during copies, and resume them
    #[arg(long, value_name = "PROGRAM", value_parser = absolute)]
    client: Option<PathBuf>,
}

/// The absolute path of a file: copies run in directories of their own.
fn absolute(path: &str) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

fn main() -> ExitCode {
    let Arguments {
        seed,
        count,
        jobs,
        client,
    } = Arguments::parse();
    if let Some(client) = client {
        return copies(&CopyCampaign {
            client,
            seed,
            rounds: count,
        });
    }
    let campaign = Campaign {
        seed,
        rounds: count,
        jobs,
    };
    match campaign.run() {
        Ok(summary) => {
            println!("{summary}");
            for (seed, defect) in &summary.defects {
                let line = defect.lines().next().unwrap_or_default();
                println!("seed {seed}: {line}");
            }
            if summary.defects.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("kills: {error}");
            ExitCode::FAILURE
        }
    }
}

fn copies(campaign: &CopyCampaign) -> ExitCode {
    let CopySummary { hit, defects } = campaign.run();
    println!(
        "{} copies, {hit} of them killed and completed, {} defects",
        campaign.rounds,
        defects.len()
    );
    for (seed, defect) in &defects {
        let line = defect.lines().next().unwrap_or_default();
        println!("seed {seed}: {line}");
    }
    match defects.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_may_be_named_by_a_relative_path() {
        let arguments = Arguments::try_parse_from(["kills", "--client", "src/bin/kills.rs"]);
        let client = arguments.unwrap().client.unwrap();
        assert!(client.is_absolute() && client.ends_with("interop-tests/src/bin/kills.rs"));
        let missing = Arguments::try_parse_from(["kills", "--client", "missing"]);
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
