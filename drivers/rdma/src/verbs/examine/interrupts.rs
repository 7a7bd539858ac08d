//! The NUMA node of an adapter, and the processors that handle its interrupts.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::sysfs::{self, list};
use super::{Adapter, Line};
/// The table of interrupts has a column for each processor.
const MOST_TABLE_BYTES: u64 = 16 << 20;

type Processors = BTreeSet<usize>;

impl Adapter<'_> {
    /// The processors near the adapter. Rings and threads go there by themselves.
    pub(super) fn node(&self) -> Line {
        const TOPIC: &str = "node";

        let text = match (self.several_nodes(), self.own_node()) {
            (false, _) => "the machine has one NUMA node".to_owned(),
            (true, None) => {
                let text = "the firmware does not tell on which NUMA node it is, so rings and threads are anywhere: update the firmware, \
                            or lstopo on the host";
                return Line::unknown(TOPIC, text);
            }
            (true, Some(node)) => match self.near() {
                Some(near) if !near.is_empty() => format!(
                    "NUMA node {node} with processors {}; rings and threads of channels go there",
                    ranges(&near)
                ),
                _ => format!("NUMA node {node}, which has no processors"),
            },
        };
        Line::good(TOPIC, text)
    }

    /// Compares the processors of interrupts with those near the adapter.
    pub(super) fn interrupts(&self) -> Line {
        const TOPIC: &str = "interrupts";

        let allocated = sysfs::names(&self.hardware().join("msi_irqs"));
        let registered = registered(&self.machine.proc.join("interrupts"));
        let mine = allocated
            .iter()
            .filter_map(|number| number.parse::<u32>().ok());
        let mine: Vec<_> = mine
            .filter(|number| {
                let all = registered.as_ref();
                all.is_none_or(|all| all.contains(number))
            })
            .collect();
        let handled = mine.iter().filter_map(|number| self.affinity(*number));
        let handled: Vec<Processors> = handled.collect();
        if handled.is_empty() {
            let text = "the kernel does not tell which are its own, or which processors handle them: /proc/interrupts";
            return Line::unknown(TOPIC, text);
        }
        let used: Processors = handled.iter().flatten().copied().collect();
        let text = format!("{} of them, on processors {}", handled.len(), ranges(&used));
        if used.len() == 1 && handled.len() > 1 && self.processors() > 1 {
            return Line::bad(
                TOPIC,
                format!(
                    "{text}: one processor handles all: start irqbalance, or spread them (set_irq_affinity.sh, or write \
                     /proc/irq/N/smp_affinity_list)"
                ),
            );
        }
        let near = self.near().filter(|near| !near.is_empty());
        let near = near.filter(|_| self.several_nodes() && self.own_node().is_some());
        let Some(near) = near else {
            return Line::good(TOPIC, text);
        };
        let away = handled.iter().filter(|one| one.is_disjoint(&near)).count();
        if away == 0 {
            return Line::good(TOPIC, format!("{text}, near the adapter"));
        }
        Line::bad(
            TOPIC,
            format!(
                "{text}: {away} of them only on other NUMA nodes: bind them to {} (set_irq_affinity_cpulist.sh, or write \
                 /proc/irq/N/smp_affinity_list; irqbalance may undo it)",
                ranges(&near)
            ),
        )
    }

    /// The processors that may handle an interrupt.
    fn affinity(&self, number: u32) -> Option<Processors> {
        let irq = self.machine.proc.join("irq").join(number.to_string());
        list(&irq.join("smp_affinity_list"))
    }

    fn near(&self) -> Option<Processors> {
        list(&self.hardware().join("local_cpulist"))
    }

    /// -1 means that the firmware names none.
    fn own_node(&self) -> Option<u64> {
        sysfs::number(&self.hardware().join("numa_node"))
    }

    fn several_nodes(&self) -> bool {
        let online = self.machine.sys.join("devices/system/node/online");
        list(&online).is_some_and(|nodes| nodes.len() > 1)
    }

    /// How many the machine has; 1 if it does not tell.
    fn processors(&self) -> usize {
        let online = self.machine.sys.join("devices/system/cpu/online");
        list(&online).map_or(1, |processors| processors.len())
    }
}

/// The numbers of the interrupts that have a handler: a line for each begins with its number and a colon. `None` if the table cannot be
/// read.
fn registered(table: &Path) -> Option<BTreeSet<u32>> {
    let table = sysfs::bytes(table, MOST_TABLE_BYTES)?;
    let table = String::from_utf8_lossy(&table);
    let numbers = table
        .lines()
        .filter_map(|line| line.split_once(':')?.0.trim().parse().ok());
    Some(numbers.collect())
}

/// `0-3, 8`
fn ranges(processors: &Processors) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &processor in processors {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == processor => *last = processor,
            _ => ranges.push((processor, processor)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::numa::numbers;

    proptest! {
        #[test]
        fn ranges_are_read_back(processors in proptest::collection::btree_set(0..200_usize, 1..50)) {
            let written = ranges(&processors).replace(", ", ",");
            let read: Processors = numbers(&written, 200).unwrap().into_iter().collect();
            prop_assert_eq!(read, processors);
        }
    }
}
