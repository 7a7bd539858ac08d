//! Copies from disk to disk, through the page cache and past it.

use super::Plan;
use super::rounds::Rounds;
use super::site::{Site, Way};
use crate::bench::record::section::Section;
use crate::bench::record::table;
use crate::bench::testbed::RunError;

const STACKS: [&str; 5] = [
    "tcp",
    "splice:direct=0",
    "splice:direct=1",
    "rdma:provider=soft;direct=0",
    "rdma:provider=soft;direct=1",
];

pub(super) fn measure(plan: Plan) -> Result<Section, RunError> {
    let site = Site::on_disk(plan.bytes)?;
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
            page cache, over io_uring where the kernel has it."
            .to_owned(),
        table: table(["stack", "rate", "processor"], rows.collect()),
        targets: Vec::new(),
        pictures: Vec::new(),
    })
}
