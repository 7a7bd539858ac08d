//! The same copies over the devices of a guest, for the page of devices.

use std::io;

use super::baselines::Baselines;
use super::rounds::Rounds;
use super::site::{Run, Site, Way, ends_of_cable};
use super::two_lengths::TwoLengths;
use crate::bench::record::section::{Section, Target};
use crate::bench::record::table;

/// What moves from memory to memory, and the length of the long files, which are in the memory of the guest.
const BYTES: u64 = 512 << 20;

const LENGTHS: TwoLengths = TwoLengths {
    short: 64 << 20,
    long: BYTES,
};

const ROUNDS: usize = 3;

const VERBS: &str = "rdma:provider=verbs";
const SOFT: &str = "rdma:provider=soft";
const TCP: &str = "tcp";

const STACKS: [&str; 5] = [VERBS, "rdma:provider=verbs;message=1M", SOFT, TCP, "splice"];

/// The least part of the rate from memory to memory that copies between two servers have.
const LEAST: f64 = 0.9;

/// The most processor time of a copy over RDMA, as a multiple of that over TCP.
const MOST_PROCESSOR: f64 = 1.2;

/// Copies between the two ends of the cable, by `gridhaul`.
///
/// # Errors
///
/// When the servers or the files cannot be made.
pub fn measure(device: &str, baselines: &mut dyn Baselines) -> io::Result<Section> {
    let site = Site::new(&std::env::temp_dir(), ends_of_cable(), &[], BYTES);
    let site = site.map_err(io::Error::other)?;
    let candidates: Vec<(Way, &str)> = STACKS
        .into_iter()
        .flat_map(|stack| Way::ALL.map(|way| (way, stack)))
        .collect();
    let copies = Rounds::take(ROUNDS, &candidates, |(way, stack)| {
        LENGTHS.run(&site, *way, stack)
    });
    let memory = Rounds::take(ROUNDS, &STACKS, |stack| {
        baselines.memory(stack, BYTES).map(Run::of)
    });
    let devices = Rounds::take(ROUNDS, &[()], |()| baselines.devices(BYTES).map(Run::of));
    let results = Results {
        copies,
        memory,
        devices: devices.into_iter().next().unwrap_or_default(),
    };
    Ok(Section {
        title: format!("From file to file over {device}"),
        description: format!(
            "`gridhaul copy --stack STACK` copies files of {} and {} MiB in memory from and to a server at the other end of the cable, and between \
             servers at both ends. MB/s, and processor seconds, of the bytes that the long file has beyond the short one; *start* is what a command \
             between the servers takes beside that: programs, logins, opening and closing the channel, in ms. *memory* is the rate from memory to \
             memory through the same stack, without files, after the channel was opened. s/GB are processor seconds of the whole guest for 10^9 \
             bytes, with its kernel and the software devices in it, of copies between the servers and from memory to memory. Medians of up to \
             {ROUNDS} alternating runs, and the quartiles. The last row is what the devices take when no program touches the bytes: the rate of \
             `ib_write_bw`, and the processor time of `ib_send_bw --events`, because `ib_write_bw` polls.",
            LENGTHS.short >> 20,
            LENGTHS.long >> 20
        ),
        table: results.table(),
        targets: results.targets(),
        pictures: Vec::new(),
    })
}

struct Results {
    /// By stack, the three ways of each.
    copies: Vec<Rounds>,
    /// By stack.
    memory: Vec<Rounds>,
    devices: Rounds,
}

impl Results {
    fn table(&self) -> String {
        let [get, put, between] = Way::ALL.map(Way::name);
        let heading = [
            "stack",
            get,
            put,
            between,
            "start",
            "between, s/GB",
            "memory",
            "memory, s/GB",
        ];
        let ways = self.copies.chunks(Way::ALL.len());
        let rows = STACKS.into_iter().zip(ways).zip(&self.memory);
        let rows = rows.map(|((stack, of), memory)| {
            let [get, put, between] = [0, 1, 2].map(|way| of[way].moving_cell());
            [
                format!("`{stack}`"),
                get,
                put,
                between,
                of[2].cell_of(|run| LENGTHS.start(run)),
                of[2].machine_cell(),
                memory.rate_cell(),
                memory.machine_cell(),
            ]
        });
        let dash = || "-".to_owned();
        let devices = [
            "the devices".to_owned(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            self.devices.rate_cell(),
            self.devices.machine_cell(),
        ];
        table(heading, rows.chain([devices]).collect())
    }

    /// The processor time of a copy between two servers.
    fn processor(&self, stack: &str) -> Option<f64> {
        self.between(stack)?.machine()
    }

    /// Copies between two servers.
    fn between(&self, stack: &str) -> Option<&Rounds> {
        let at = STACKS.iter().position(|other| *other == stack)?;
        self.copies.get(at * Way::ALL.len() + 2)
    }

    /// The rate between two servers, divided by that from memory to memory.
    fn share_of_memory(&self, stack: &str) -> Option<f64> {
        let at = STACKS.iter().position(|other| *other == stack)?;
        Some(self.between(stack)?.moving()? / self.memory.get(at)?.rate()?)
    }

    fn targets(&self) -> Vec<Target> {
        let tcp = self.processor(TCP);
        let devices = self.devices.machine();
        vec![
            processor_target(SOFT, self.processor(SOFT), Some(0.0), tcp),
            processor_target(VERBS, self.processor(VERBS), devices, tcp),
            memory_target(VERBS, self.share_of_memory(VERBS)),
        ]
    }
}

/// The processor time of a copy, without that of the devices, beside a copy over TCP.
fn processor_target(
    stack: &str,
    all: Option<f64>,
    devices: Option<f64>,
    tcp: Option<f64>,
) -> Target {
    let wanted = format!(
        "between two servers, processor time of `{stack}` without that of the devices at most {MOST_PROCESSOR:.2} of `{TCP}`"
    );
    let found = all.zip(devices).zip(tcp);
    match found {
        None => Target {
            wanted,
            found: "no result".to_owned(),
            is_met: false,
        },
        Some(((all, devices), tcp)) => {
            let share = (all - devices) / tcp;
            Target {
                wanted,
                found: format!(
                    "{share:.2} ({all:.2} s/GB, of which the devices take {devices:.2}, beside {tcp:.2})"
                ),
                is_met: share <= MOST_PROCESSOR,
            }
        }
    }
}

/// The rate of a copy beside that from memory to memory, both without the start of a command.
fn memory_target(stack: &str, share: Option<f64>) -> Target {
    Target {
        wanted: format!(
            "between two servers, `{stack}` at least {LEAST:.2} of its rate from memory to memory"
        ),
        found: share.map_or_else(|| "no result".to_owned(), |share| format!("{share:.2}")),
        is_met: share.is_some_and(|share| share >= LEAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rdma_files::baselines::Cost;

    #[test]
    fn the_processor_time_of_the_devices_does_not_count() {
        let target = |all, devices| processor_target(VERBS, Some(all), devices, Some(0.5));
        let met = target(1.5, Some(1.0));
        assert!(met.is_met && met.found.starts_with("1.00 ("), "{met:?}");
        assert!(!target(1.7, Some(1.0)).is_met);
        assert!(!target(1.6, Some(0.0)).is_met);
        assert!(!target(0.1, None).is_met, "not measured");
    }

    #[test]
    fn further_bytes_are_compared_with_memory() {
        // The rate of the whole command, which is much less, does not count.
        let runs = |rate, moving| {
            let run = Run {
                moving,
                ..Run::of(Cost {
                    rate,
                    processor: 1.0,
                })
            };
            Rounds::take(1, &[()], |()| Ok(run))
                .pop()
                .unwrap_or_default()
        };
        let results = |moving| Results {
            copies: STACKS
                .iter()
                .flat_map(|_| Way::ALL.map(|_| runs(100.0, moving)))
                .collect(),
            memory: STACKS.iter().map(|_| runs(500.0, 500.0)).collect(),
            devices: Rounds::default(),
        };
        let target = |moving| memory_target(VERBS, results(moving).share_of_memory(VERBS));
        let met = target(460.0);
        assert!(met.is_met && met.found == "0.92", "{met:?}");
        assert!(!target(440.0).is_met);
        assert!(!memory_target(VERBS, None).is_met, "not measured");
    }
}
