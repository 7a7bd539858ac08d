//! What registering memory costs the sender of files, as a table in Markdown.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gridhaul_interop::bench::registration::{Bench, RegistrationError, Way};
use gridhaul_rdma::memory_load;

#[derive(Debug, Parser)]
#[command(about = "Measure static and dynamic registration, and the pin-down cache")]
struct Arguments {
    /// Further options of the driver rdma
    #[arg(long, default_value = "provider=soft")]
    options: String,
    /// The address of the receiving end
    #[arg(long, default_value = "127.0.0.1")]
    to: IpAddr,
    /// How long each measurement takes, in milliseconds
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bench = Bench {
        options: arguments.options,
        to: arguments.to,
        time: Duration::from_millis(arguments.milliseconds),
    };
    match print(&bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-registration: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(bench: &Bench) -> Result<(), RegistrationError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Options `{}`; MB/s, and processor seconds of the sender per GB.\n",
        bench.options
    );
    println!(
        "| range | processors | static | dynamic | pin-down cache | most of the bound used, MiB | most pinned by the kernel, MiB |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for size in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        for spinning in [0, 2 * processors] {
            let load = if spinning == 0 { "idle" } else { "loaded" };
            print!("| {} KiB | {load} |", size >> 10);
            let (mut used, mut pinned) = (0, 0);
            for way in Way::ALL {
                let cost = bench.measure(way, size, spinning)?;
                print!(" {:.0}, {:.2} |", cost.rate / 1e6, cost.processor_seconds);
                used = used.max(cost.used_bytes);
                pinned = pinned.max(cost.pinned_bytes);
            }
            println!(" {:.0} | {:.0} |", used as f64 / MIB, pinned as f64 / MIB);
        }
    }
    let bound = memory_load().limit_bytes as f64 / MIB;
    println!("\nThe bound is {bound:.0} MiB.");
    Ok(())
}
