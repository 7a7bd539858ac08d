//! Copies from disk to disk, through the page cache and past it.

use std::net::{IpAddr, Ipv4Addr};

use super::Plan;
use super::rounds::Rounds;
use super::site::{Site, Way};
use crate::bench::record::section::{Section, Target};
use crate::bench::record::table;
use crate::bench::testbed::RunError;

const STACKS: [&str; 6] = [
    "tcp",
    "splice:direct=0",
    "splice:direct=1",
    "rdma:provider=soft;direct=0",
    "rdma:provider=soft;direct=1",
    "rdma:provider=soft",
];

/// The last stack chooses between the two before it.
const CHOICES: usize = 3;

/// Of the faster choice: one run of the machine differs from another by as much.
const TARGET: f64 = 0.85;

pub(super) fn measure(plan: Plan) -> Result<Section, RunError> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let site = Site::on_disk(&std::env::temp_dir(), [loopback; 2], plan.bytes)?;
    let rounds = Rounds::take(plan.repeat, &STACKS, |stack| {
        site.cool(1)?;
        site.run(Way::Between, stack, 1)
    });
    let rows = STACKS.into_iter().zip(&rounds);
    let rows = rows.map(|(stack, of)| {
        let (rate, processor) = (of.rate_cell(), of.processor_cell());
        [format!("`{stack}`"), rate, processor]
    });
    Ok(Section {
        title: "From disk to disk".to_owned(),
        description: "One client, between two servers, on the file system of temporary files. The file is not in the page cache before a run, and the \
            copy is on the disk after it (`sync-files = \"data\"`). MB/s, and processor seconds for 10^9 bytes as above. `direct=1` moves files past the \
            page cache, over io_uring where the kernel has it. `rdma:provider=soft` measures which way pays (`direct=auto`), in the first of its runs."
            .to_owned(),
        table: table(["stack", "rate", "processor"], rows.collect()),
        targets: vec![target(&rounds)],
        pictures: Vec::new(),
    })
}

fn target(rounds: &[Rounds]) -> Target {
    let rates: Option<Vec<f64>> = rounds
        .iter()
        .rev()
        .take(CHOICES)
        .map(Rounds::rate)
        .collect();
    let share = rates.map(|rates| rates[0] / rates[1].max(rates[2]));
    Target {
        wanted: format!(
            "`direct=auto` at least {TARGET:.2} of the faster of `direct=0` and `direct=1`"
        ),
        found: share.map_or_else(|| "no result".to_owned(), |share| format!("{share:.2}")),
        is_met: share.is_some_and(|share| share >= TARGET),
    }
}
