//! Kills data nodes and control servers, and cuts the network between them, at random moments of transfers.
//!
//! After each fault the client restarts its transfer. The file must then be exact; nodes must hold nothing of ended sessions after
//! 15 seconds; and sessions that do not use what was killed must not notice. A seed plays the same round again.

use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::kills::Campaign;

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
}

fn main() -> ExitCode {
    let Arguments { seed, count, jobs } = Arguments::parse();
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
