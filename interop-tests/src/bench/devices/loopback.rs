//! iWARP in user space compared with TCP.

use super::runs::{MIB, Runs, load, share};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::table;

const DESCRIPTION: &str = "Over the loopback of the host, by slab size; a ring has four slabs. Each number is the median of 7 alternating runs.";

const ROUNDS: usize = 7;

/// The reference.
const TCP: &str = "tcp";

/// The driver with its default options.
const DEFAULT: &str = "rdma:provider=soft";

const SLABS: [&str; 5] = ["256K", "1M", "4M", "16M", "64M"];

pub(super) fn measure() -> Section {
    let mut stacks = vec![TCP.to_owned(), DEFAULT.to_owned()];
    stacks.extend(SLABS.map(|slab| format!("{DEFAULT};slab={slab};slabs=4")));
    let runs = Runs::take(ROUNDS, &stacks, |stack| {
        Ok(load(stack, "127.0.0.1", 1, 2048 * MIB)?.megabytes_per_second())
    });
    let [tcp, default, by_slab @ ..] = runs.as_slice() else {
        unreachable!("there are two and those of the slabs");
    };
    let rows = stacks.iter().zip(&runs);
    let rows = rows.map(|(stack, runs)| [format!("`{stack}`"), runs.cell(), share(runs.of(tcp))]);
    let ratio = default.of(tcp);
    Section {
        title: "iWARP in user space compared with TCP".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(["stack", "MB/s", "of tcp"], rows.collect()),
        targets: vec![Target {
            wanted: format!("`{DEFAULT}` at least 0.85 of `{TCP}`"),
            found: share(ratio),
            is_met: ratio.is_some_and(|ratio| ratio >= 0.85),
        }],
        pictures: vec![Picture {
            name: "rdma-loopback.svg".to_owned(),
            plot: plot(tcp, by_slab),
        }],
    }
}

fn plot(tcp: &Runs, by_slab: &[Runs]) -> Plot {
    let line = |name: &str, is_model: bool, of: &dyn Fn(usize) -> Option<f64>| PlotLine {
        name: name.to_owned(),
        is_model,
        points: (0..SLABS.len())
            .filter_map(|at| Some([at as f64, of(at)?]))
            .collect(),
    };
    Plot {
        title: "iWARP in user space, by slab size".to_owned(),
        horizontal: Axis::steps("slab", SLABS),
        vertical: "MB/s".to_owned(),
        lines: vec![
            line("soft", false, &|at| by_slab[at].median()),
            line("tcp", true, &|_| tcp.median()),
        ],
    }
}
