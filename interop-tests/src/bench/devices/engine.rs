//! The processor time of the engine of `rdma` for a message.

use std::io;
use std::time::Duration;

use gridhaul_rdma::sim::message_cost;

use crate::bench::record::section::Section;
use crate::bench::record::table;
use crate::bench::sample::median;

const DESCRIPTION: &str = "The engine without a device, on the host: requests complete as soon as they are posted, and memory has no content. So \
copies, system calls, the driver of a device and its doorbells are not included. Nanoseconds for each message, with the announcement, the \
completion and the credit. Each number is the median of 7 runs.";

const ROUNDS: usize = 7;
const MESSAGES: u64 = 200_000;

pub(super) fn measure() -> io::Result<Section> {
    let mut rows = Vec::new();
    for kibibytes in [64, 256, 1024, 4096] {
        for queue_pairs in [1, 4] {
            let (mut sender, mut receiver) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let cost = message_cost(kibibytes << 10, queue_pairs, MESSAGES);
                let cost = cost.map_err(io::Error::other)?;
                sender.push(nanoseconds(cost.sender));
                receiver.push(nanoseconds(cost.receiver));
            }
            let [sender, receiver] = [sender, receiver].map(|costs| median(&costs));
            // At 400 Gb/s.
            let messages = 50e9 / (kibibytes << 10) as f64;
            rows.push([
                format!("{kibibytes} KiB"),
                queue_pairs.to_string(),
                format!("{sender:.0}"),
                format!("{receiver:.0}"),
                format!("{messages:.0}"),
                format!("{:.1} %", messages * sender.max(receiver) / 1e7),
            ]);
        }
    }
    let heading = [
        "message",
        "queue pairs",
        "sender, ns",
        "receiver, ns",
        "messages/s at 400 Gb/s",
        "of a processor at 400 Gb/s",
    ];
    Ok(Section {
        title: "The engine".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(heading, rows),
        targets: Vec::new(),
        pictures: Vec::new(),
    })
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
