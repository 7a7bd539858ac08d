//! What is measured, as tables of Markdown.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::perftest::{Device, WriteBandwidth};
use super::pump::{Load, Moved};
use crate::bench::registration;
use crate::guest::{Network, RIGHT};
use crate::{Client, Finished};

/// A table, and the network of the guest that it is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// Block size against depth over RoCE.
    Roce,
    /// Block size against depth over iWARP.
    Iwarp,
    /// A policer in the path.
    Policer,
    /// Processor time over one link.
    Processor,
    /// What registering memory costs.
    Registration,
    /// iWARP in user space beside TCP, on the host itself.
    Loopback,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Policer,
        Self::Roce,
        Self::Iwarp,
        Self::Processor,
        Self::Registration,
        Self::Loopback,
    ];

    /// The network of its guest, unless it is measured on the host.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Roce | Self::Policer | Self::Processor | Self::Registration => Some(Network::Rxe),
            Self::Iwarp => Some(Network::Siw),
            Self::Loopback => None,
        }
    }

    /// Measures it, here.
    ///
    /// # Errors
    ///
    /// When the path could not be made.
    pub fn measure(self) -> io::Result<String> {
        match self {
            Self::Roce => Ok(sizes(Device::Roce)),
            Self::Iwarp => Ok(sizes(Device::Iwarp)),
            Self::Policer => policer(),
            Self::Processor => Ok(processor()),
            Self::Registration => registration(),
            Self::Loopback => Ok(loopback()),
        }
    }
}

const MIB: u64 = 1 << 20;

/// Sent by each channel, unless a path is slow.
const BYTES: u64 = 512 * MIB;

fn sizes(device: Device) -> String {
    let mut table = format!(
        "### Block size against depth, {device} (RFTP, figures 15 and 16)\n\n\
         Millions of bytes in a second, and beside it `ib_write_bw` of the same run.\n\n\
         | message | depth | channels | rdma | ib_write_bw | ratio |\n|---|---|---|---|---|---|\n",
    );
    for channels in [1, 8] {
        for message_bytes in [64 << 10, 256 << 10, MIB, 4 * MIB] {
            for depth in [4, 16] {
                let stack = format!(
                    "rdma:provider=verbs;slab={message_bytes};slabs={depth};message={message_bytes}"
                );
                let moved = load(&stack, RIGHT, channels, BYTES / channels as u64);
                let bandwidth = WriteBandwidth {
                    device,
                    message_bytes,
                    depth,
                    queue_pairs: channels,
                    bytes: BYTES,
                };
                let theirs = bandwidth.megabytes_per_second();
                let ratio = match (&moved, &theirs) {
                    (Ok(moved), Ok(theirs)) => {
                        format!("{:.2}", moved.megabytes_per_second() / theirs)
                    }
                    _ => "-".into(),
                };
                let _ = writeln!(
                    table,
                    "| {} KiB | {depth} | {channels} | {} | {} | {ratio} |",
                    message_bytes >> 10,
                    speed(&moved),
                    theirs
                        .map_or_else(|words| in_one_line(&words), |number| format!("{number:.0}")),
                );
            }
        }
    }
    table
}

/// The policer's rate, in bits per second, and its burst in bytes.
const POLICED: u64 = 400_000_000;
const BURST: u64 = 128 << 10;

fn policer() -> io::Result<String> {
    tc("qdisc add dev right handle ffff: ingress")?;
    let mut table = format!(
        "### A policer of {} Mb/s with a burst of {} KiB, RoCE (XIO-RDMA, figure 9)\n\n\
         | stack | Mb/s | of the policed rate | packets dropped | stalls and replaced queue pairs |\n|---|---|---|---|---|\n",
        POLICED / 1_000_000,
        BURST >> 10
    );
    for options in [
        "message=32K;rate=388m;burst=96K",
        "message=64K;rate=388m;burst=64K",
        "message=256K;rate=388m",
        "message=64K",
        "message=1M",
        "message=64K;rate=auto",
        "message=1M;rate=auto",
    ] {
        // A new one has all of its burst, and counts from zero.
        let _ = tc("filter del dev right parent ffff:");
        // tc-police(8): without `mtu` it drops every packet of more than 2040 bytes.
        tc(&format!(
            "filter add dev right parent ffff: protocol all matchall action police rate {POLICED} \
             burst {BURST} mtu 9100 conform-exceed drop/ok"
        ))?;
        let moved = load(
            &format!("rdma:provider=verbs;{options}"),
            RIGHT,
            1,
            128 * MIB,
        );
        let shown = tc("-s filter show dev right parent ffff:")?.output();
        let dropped = shown
            .split("dropped ")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        let (rate, share) = match &moved {
            Ok(moved) => {
                let bits = moved.megabytes_per_second() * 8.0;
                (
                    format!("{bits:.0}"),
                    format!("{:.1} %", bits * 1e8 / POLICED as f64),
                )
            }
            Err(words) => (words.clone(), "-".into()),
        };
        let troubles = moved.map_or_else(|_| String::new(), |moved| troubles(&moved));
        let dropped = dropped.unwrap_or("-");
        let _ = writeln!(
            table,
            "| `{options}` | {rate} | {share} | {dropped} | {troubles} |"
        );
    }
    Ok(table)
}

fn processor() -> String {
    let mut table = String::from(
        "### Processor time over one link (the WAN paper, figure 10; RFTP, table 3)\n\n\
         Of all of the guest, its kernel's devices included, for both ends together.\n\n\
         | stack | MB/s | processor seconds for 10^9 bytes |\n|---|---|---|\n",
    );
    for stack in [
        "rdma:provider=verbs;message=1M",
        "rdma:provider=soft",
        "tcp",
        "splice",
    ] {
        let moved = load(stack, RIGHT, 1, BYTES);
        let seconds = match &moved {
            Ok(moved) => format!("{:.2}", moved.processor_seconds()),
            Err(_) => "-".into(),
        };
        let _ = writeln!(table, "| `{stack}` | {} | {seconds} |", speed(&moved));
    }
    table
}

fn registration() -> io::Result<String> {
    let bench = registration::Bench {
        options: "provider=verbs".into(),
        to: RIGHT.parse().expect("an address of ours"),
        time: Duration::from_secs(1),
    };
    bench.table().map_err(io::Error::other)
}

fn loopback() -> String {
    const ROUNDS: usize = 7;
    let stacks = ["tcp", "rdma:provider=soft", "rdma:provider=soft;slab=1M"];
    let mut speeds = stacks.map(|_| Vec::new());
    let mut failures = Vec::new();
    // In turn, so that whatever else the machine does meets everybody.
    for _ in 0..ROUNDS {
        for (stack, speeds) in stacks.iter().zip(&mut speeds) {
            match load(stack, "127.0.0.1", 1, 4 * BYTES) {
                Ok(moved) => speeds.push(moved.megabytes_per_second()),
                Err(words) => failures.push(words),
            }
        }
    }
    let mut table = format!(
        "### iWARP in user space beside TCP, loopback of the host\n\n\
         The median of {ROUNDS}, in turn.\n\n| stack | MB/s | of tcp |\n|---|---|---|\n"
    );
    let medians = speeds.map(|mut speeds| {
        speeds.sort_by(f64::total_cmp);
        speeds.get(speeds.len() / 2).copied().unwrap_or(f64::NAN)
    });
    for (stack, median) in stacks.iter().zip(medians) {
        let share = median / medians[0] * 100.0;
        let _ = writeln!(table, "| `{stack}` | {median:.0} | {share:.0} % |");
    }
    for words in failures {
        let _ = writeln!(table, "\n{words}");
    }
    table
}

/// Moves zeros; an error in words.
fn load(stack: &str, to: &str, channels: usize, bytes: u64) -> Result<Moved, String> {
    let load = Load {
        stack,
        to: to.parse().expect("an address of ours"),
        channels,
        bytes,
        source: Path::new("/dev/zero"),
        limit: Duration::from_secs(20),
    };
    load.run().map_err(|error| in_one_line(&error.to_string()))
}

fn speed(moved: &Result<Moved, String>) -> String {
    match moved {
        Ok(moved) => match &moved.failure {
            None => format!("{:.0}", moved.megabytes_per_second()),
            Some(error) => format!("{:.0}, then: {error}", moved.megabytes_per_second()),
        },
        Err(words) => words.clone(),
    }
}

/// What went wrong and was mended, or was not.
fn troubles(moved: &Moved) -> String {
    let told = moved.details.iter().filter(|detail| {
        ["stall", "lost", "replaced", "restored", "retr"]
            .iter()
            .any(|word| detail.contains(word))
    });
    let mut words: Vec<String> = told.cloned().collect();
    words.extend(moved.failure.as_ref().map(ToString::to_string));
    words.join(", ")
}

/// A cell of a table is a line.
fn in_one_line(words: &str) -> String {
    words
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "/")
}

fn tc(arguments: &str) -> io::Result<Finished> {
    let finished = Client::new("tc").args(arguments.split_whitespace()).run();
    let finished = finished.map_err(io::Error::other)?;
    match finished.status.success() {
        true => Ok(finished),
        false => Err(io::Error::other(finished.to_string())),
    }
}
