//! Copies over the devices of a guest by the size of messages, through the page cache and past it.
//!
//! The files are on a RAM disk: it is as fast as memory, and unlike tmpfs of Linux 6.1 it has direct I/O.

use std::io;
use std::path::Path;

use super::baselines::Baselines;
use super::rounds::Rounds;
use super::site::{Run, Site, Way, ends_of_cable};
use crate::bench::record::section::{Section, Target};
use crate::bench::record::table;
use crate::support::guest_network::DISK;

const BYTES: u64 = 512 << 20;

/// The disk of the guest, in MiB: the file and one copy of it.
pub const DISK_MIB: u32 = 1280;

const ROUNDS: usize = 3;

const STACKS: [&str; 7] = [
    "rdma:provider=verbs;message=64K",
    USUAL,
    "rdma:provider=verbs;message=1M",
    "rdma:provider=verbs;message=4M",
    SOFT,
    "splice",
    TCP,
];

/// With messages of the default size.
const USUAL: &str = "rdma:provider=verbs;message=256K";
const SOFT: &str = "rdma:provider=soft;message=256K";

/// It has no direct I/O.
const TCP: &str = "tcp";

/// The least part of the rate from memory to memory that the better way of files has.
const LEAST: f64 = 0.9;

/// Where the bytes of a run come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Cache,
    Direct,
    Memory,
}

impl Source {
    const ALL: [Self; 3] = [Self::Cache, Self::Direct, Self::Memory];

    /// The stack with the option that chooses this.
    fn of(self, stack: &str) -> String {
        let separator = if stack.contains(':') { ';' } else { ':' };
        match self {
            Self::Cache if stack != TCP => format!("{stack}{separator}direct=0"),
            Self::Direct => format!("{stack}{separator}direct=1"),
            Self::Cache | Self::Memory => stack.to_owned(),
        }
    }
}

/// Copies between servers at both ends of the cable.
///
/// # Errors
///
/// When the servers or the files cannot be made.
pub fn measure(device: &str, baselines: &mut dyn Baselines) -> io::Result<Section> {
    let site = Site::on_disk(Path::new(DISK), ends_of_cable(), BYTES).map_err(io::Error::other)?;
    let candidates: Vec<(&str, Source)> = STACKS
        .into_iter()
        .flat_map(|stack| Source::ALL.map(|source| (stack, source)))
        .collect();
    let rounds = Rounds::take(ROUNDS, &candidates, |&(stack, source)| {
        let whole = source.of(stack);
        match source {
            Source::Direct if stack == TCP => Err("-".to_owned()),
            Source::Memory => baselines.memory(&whole, BYTES).map(Run::of),
            Source::Cache | Source::Direct => {
                site.cool(1)?;
                site.run_one(Way::Between, &whole)
            }
        }
    });
    let of_stacks: Vec<&[Rounds]> = rounds.chunks(Source::ALL.len()).collect();
    let rows = STACKS.into_iter().zip(&of_stacks);
    let rows = rows.map(|(stack, of)| {
        let [cache, direct, memory] = [0, 1, 2].map(|source| of[source].moving_cell());
        let [cache_time, direct_time, memory_time] =
            [0, 1, 2].map(|source| of[source].machine_cell());
        [
            format!("`{stack}`"),
            cache,
            direct,
            memory,
            cache_time,
            direct_time,
            memory_time,
        ]
    });
    let heading = [
        "stack",
        "`direct=0`",
        "`direct=1`",
        "memory",
        "`direct=0`, s/GB",
        "`direct=1`, s/GB",
        "memory, s/GB",
    ];
    Ok(Section {
        title: format!("By the size of messages over {device}, through the page cache and past it"),
        description: format!(
            "`gridhaul copy --stack STACK` copies a file of {} MiB between servers at both ends of the cable, from and to ext4 on a RAM disk, which \
             copies with the processor of the guest. The file is not in the page cache before a run, and the copy is on the disk after it \
             (`sync-files = \"data\"`). `direct=1` moves files past the page cache, over io_uring. MB/s of the transfer itself, as the servers log it, \
             without start and login; *memory* is the rate from memory to memory through the same stack. s/GB are processor seconds of the whole guest \
             for 10^9 bytes, with the start of the program. Medians of up to {ROUNDS} alternating runs, and the quartiles; no round begins after 70 s.",
            BYTES >> 20
        ),
        table: table(heading, rows.collect()),
        targets: [USUAL, SOFT].map(|stack| target(stack, &of_stacks)).into(),
        pictures: Vec::new(),
    })
}

fn target(stack: &str, of_stacks: &[&[Rounds]]) -> Target {
    let of_stack = STACKS.iter().zip(of_stacks);
    let rates = of_stack
        .filter(|(name, _)| **name == stack)
        .flat_map(|(_, rounds)| rounds.iter().map(Rounds::moving))
        .collect::<Vec<_>>();
    judged(stack, &rates)
}

/// `rates` are those of each source.
fn judged(stack: &str, rates: &[Option<f64>]) -> Target {
    let share = match rates {
        [cache, direct, Some(memory)] => {
            let better = [cache, direct].into_iter().flatten().copied();
            better.reduce(f64::max).map(|better| better / memory)
        }
        _ => None,
    };
    Target {
        wanted: format!("`{stack}`: the better way at least {LEAST:.2} of memory to memory"),
        found: share.map_or_else(|| "no result".to_owned(), |share| format!("{share:.2}")),
        is_met: share.is_some_and(|share| share >= LEAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_way_counts() {
        let share = |rates: &[Option<f64>]| {
            let target = judged(USUAL, rates);
            (target.found, target.is_met)
        };
        let found = |text: &str, is_met| (text.to_owned(), is_met);
        let memory = Some(100.0);
        assert_eq!(
            share(&[Some(60.0), Some(91.0), memory]),
            found("0.91", true)
        );
        assert_eq!(share(&[Some(89.0), None, memory]), found("0.89", false));
        assert_eq!(share(&[None, None, memory]), found("no result", false));
        assert_eq!(
            share(&[Some(1.0), Some(1.0), None]),
            found("no result", false)
        );
    }

    #[test]
    fn stacks_have_the_option_that_chooses_the_way() {
        assert_eq!(Source::Direct.of(USUAL), format!("{USUAL};direct=1"));
        assert_eq!(Source::Cache.of("splice"), "splice:direct=0");
        assert_eq!(Source::Cache.of(TCP), "tcp");
        assert_eq!(Source::Memory.of("splice"), "splice");
    }
}
