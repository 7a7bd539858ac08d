//! Processor time over one link.

use super::runs::{MIB, Runs, load};
use crate::bench::record::section::Section;
use crate::bench::record::table;
use crate::bench::sample::median;
use crate::support::guest_network::RIGHT;

const DESCRIPTION: &str = "The WAN paper, figure 10; RFTP, table 3. The processor time of the whole guest, including the software devices of its kernel, \
for both ends together. It does not predict that of adapters. Each number is the median of 3 alternating runs.";

const ROUNDS: usize = 3;

const STACKS: [&str; 4] = [
    "rdma:provider=verbs;message=1M",
    "rdma:provider=soft",
    "tcp",
    "splice",
];

pub(super) fn measure() -> Section {
    let mut seconds = STACKS.map(|_| Vec::new());
    let indices: Vec<usize> = (0..STACKS.len()).collect();
    let runs = Runs::take(ROUNDS, &indices, |&at| {
        let moved = load(STACKS[at], RIGHT, 1, 512 * MIB)?;
        seconds[at].push(moved.processor_seconds());
        Ok(moved.megabytes_per_second())
    });
    let rows = indices.into_iter().map(|at| {
        [
            format!("`{}`", STACKS[at]),
            runs[at].cell(),
            format!("{:.2}", median(&seconds[at])),
        ]
    });
    let heading = ["stack", "MB/s", "processor seconds for 10^9 bytes"];
    Section {
        title: "Processor time over one link".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(heading, rows.collect()),
        targets: Vec::new(),
        pictures: Vec::new(),
    }
}
