//! The delay that hostile connections cause for a client from another address: our server and globus-gridftp-server.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_interop::Kind;
use gridhaul_interop::bench::hostile::{Attack, Outcome, Size, measure};

#[derive(Debug, Parser)]
#[command(
    about = "Time a login and a get beside 1,000 hostile connections from three other addresses"
)]
struct Arguments {
    /// Few connections, as a functional test; targets do not count
    #[arg(long)]
    quick: bool,
    /// Only this attack: silent, unread-listings, unread-transfers, wrong-passwords or half-handshakes
    #[arg(long, value_name = "NAME")]
    attack: Option<String>,
    /// Only our server
    #[arg(long)]
    ours: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-crowds: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line for each attack and server; false when ours misses a target.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let size = if arguments.quick {
        Size::QUICK
    } else {
        Size::FULL
    };
    let wanted = arguments.attack.as_deref();
    let attacks: Vec<Attack> = Attack::ALL
        .into_iter()
        .filter(|attack| wanted.is_none_or(|wanted| wanted == attack.name()))
        .collect();
    if attacks.is_empty() {
        return Err("unknown attack".into());
    }
    println!("{}", Outcome::heading());
    let mut all_met = true;
    for attack in attacks {
        for kind in [Kind::Gridhaul, Kind::Globus] {
            if arguments.ours && kind != Kind::Gridhaul {
                continue;
            }
            match measure(kind, attack, size) {
                Ok(outcome) => {
                    println!("{}", outcome.line());
                    all_met &= kind != Kind::Gridhaul || outcome.is_met();
                }
                Err(error) if kind == Kind::Gridhaul => return Err(error.into()),
                Err(error) => println!("{:<17} {kind:?}: {error}", attack.name()),
            }
        }
    }
    Ok(all_met || arguments.quick)
}
