//! Block size against depth, compared with `ib_write_bw`.

use gridhaul_rdma::Rdma;
use gridhaul_stack::Driver;

use super::perftest::{Bandwidth, Device, Program};
use super::runs::{MIB, Runs, load, share};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::table;
use crate::support::guest_network::RIGHT;

const ROUNDS: usize = 3;

/// The number of rounds of rows with a target: single runs of either program differ by a third.
const JUDGED_ROUNDS: usize = 7;

/// Bytes of all channels together.
const BYTES: u64 = 256 * MIB;

const MESSAGES: [u64; 4] = [64 << 10, 256 << 10, MIB, 4 * MIB];
const DEPTHS: [u64; 2] = [4, 16];
const CHANNELS: [usize; 2] = [1, 8];

/// The message size that has a target.
const JUDGED: u64 = MIB;

/// Our runs and those of `ib_write_bw` for one message size, depth and number of channels.
struct Cell {
    message_bytes: u64,
    depth: u64,
    channels: usize,
    ours: Runs,
    theirs: Runs,
}

pub(super) fn measure(device: Device) -> Section {
    // With the default limit, a quarter of the memory, many channels would get shorter rings and messages.
    Rdma.limit_memory(u64::MAX);
    let mut cells = Vec::new();
    for channels in CHANNELS {
        for message_bytes in MESSAGES {
            for depth in DEPTHS {
                cells.push(cell(device, message_bytes, depth, channels));
            }
        }
    }
    let word = device.to_string().to_lowercase();
    let picture = |channels: usize| Picture {
        name: format!("rdma-{word}-{channels}.svg"),
        plot: plot(device, channels, &cells),
    };
    Section {
        title: format!("Block size against depth, {device}"),
        description: format!(
            "RFTP, figures 15 and 16: MB/s, compared with `ib_write_bw` with as many queue pairs as channels. \
             Each number is the median of {ROUNDS} alternating runs, of {JUDGED_ROUNDS} with messages of {}.",
            message(JUDGED)
        ),
        table: cells_table(&cells),
        targets: CHANNELS
            .map(|channels| target(device, channels, &cells))
            .into(),
        pictures: CHANNELS.map(picture).into(),
    }
}

fn cell(device: Device, message_bytes: u64, depth: u64, channels: usize) -> Cell {
    let stack =
        format!("rdma:provider=verbs;slab={message_bytes};slabs={depth};message={message_bytes}");
    let bandwidth = Bandwidth {
        program: Program::Write,
        device,
        message_bytes,
        depth,
        queue_pairs: channels,
        bytes: BYTES,
    };
    let rounds = match message_bytes {
        JUDGED => JUDGED_ROUNDS,
        _ => ROUNDS,
    };
    let mut runs = Runs::take(rounds, &[true, false], |is_ours| match is_ours {
        true => {
            let moved = load(&stack, RIGHT, channels, BYTES / channels as u64)?;
            match moved.setting("ring-bytes") {
                Some(bytes) if bytes == message_bytes * depth => Ok(moved.megabytes_per_second()),
                shortest => Err(format!("rings of {shortest:?} bytes")),
            }
        }
        false => Ok(bandwidth.run()?.rate),
    })
    .into_iter();
    Cell {
        message_bytes,
        depth,
        channels,
        ours: runs.next().unwrap_or_default(),
        theirs: runs.next().unwrap_or_default(),
    }
}

fn cells_table(cells: &[Cell]) -> String {
    let row = |cell: &Cell| {
        [
            message(cell.message_bytes),
            cell.depth.to_string(),
            cell.channels.to_string(),
            cell.ours.cell(),
            cell.theirs.cell(),
            share(cell.ours.of(&cell.theirs)),
        ]
    };
    let heading = [
        "message",
        "depth",
        "channels",
        "rdma",
        "ib_write_bw",
        "ratio",
    ];
    table(heading, cells.iter().map(row).collect())
}

fn message(bytes: u64) -> String {
    match bytes {
        small if small < MIB => format!("{} KiB", small >> 10),
        _ => format!("{} MiB", bytes / MIB),
    }
}

fn target(device: Device, channels: usize, cells: &[Cell]) -> Target {
    let least = match device {
        Device::Roce => 0.90,
        Device::Iwarp => 0.85,
    };
    let judged = cells
        .iter()
        .filter(|cell| cell.message_bytes == JUDGED && cell.channels == channels);
    let ratios: Vec<Option<f64>> = judged.map(|cell| cell.ours.of(&cell.theirs)).collect();
    let words: Vec<String> = ratios.iter().map(|&ratio| share(ratio)).collect();
    let plural = if channels == 1 { "" } else { "s" };
    Target {
        wanted: format!(
            "at least {least:.2} of `ib_write_bw` with messages of {} and {channels} channel{plural}",
            message(JUDGED)
        ),
        found: words.join(" and "),
        is_met: ratios
            .iter()
            .all(|ratio| ratio.is_some_and(|ratio| ratio >= least)),
    }
}

fn plot(device: Device, channels: usize, cells: &[Cell]) -> Plot {
    let mut lines = Vec::new();
    for depth in DEPTHS {
        for is_model in [false, true] {
            let line = cells
                .iter()
                .filter(|cell| cell.channels == channels && cell.depth == depth);
            let points = line.filter_map(|cell| {
                let runs = if is_model { &cell.theirs } else { &cell.ours };
                let place = MESSAGES
                    .iter()
                    .position(|&bytes| bytes == cell.message_bytes)?;
                Some([place as f64, runs.median()?])
            });
            let name = if is_model { "ib_write_bw" } else { "rdma" };
            lines.push(PlotLine {
                name: format!("{name}, depth {depth}"),
                is_model,
                points: points.collect(),
            });
        }
    }
    let plural = if channels == 1 { "" } else { "s" };
    Plot {
        title: format!("{device}, {channels} channel{plural}"),
        horizontal: Axis::steps("message", MESSAGES.map(message)),
        vertical: "MB/s".to_owned(),
        lines,
    }
}
