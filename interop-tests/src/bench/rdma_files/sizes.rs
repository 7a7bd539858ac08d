//! Rates and processor time by the size of messages.

use super::Plan;
use super::rounds::Rounds;
use super::site::{Site, Way};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::table;

/// The blocks of RFTP, and one that is smaller.
const SIZES: [&str; 6] = ["64K", "128K", "256K", "512K", "1M", "2M"];

/// Stacks without such a size.
const OTHERS: [&str; 2] = ["tcp", "splice"];

/// The least share of the rate of `tcp` that `soft` may have with messages of this size, the default.
const TARGET: f64 = 0.85;
const USUAL: &str = "256K";

pub(super) fn measure(site: &Site, plan: Plan) -> Vec<Section> {
    let sized = SIZES.map(|size| format!("rdma:provider=soft;message={size}"));
    let stacks = OTHERS.map(str::to_owned).into_iter().chain(sized);
    let stacks: Vec<String> = stacks.collect();
    let candidates: Vec<(Way, &str)> = Way::ALL
        .into_iter()
        .flat_map(|way| stacks.iter().map(move |stack| (way, stack.as_str())))
        .collect();
    let rounds = Rounds::take(plan.repeat, &candidates, |(way, stack)| {
        site.run(*way, stack, 1)
    });
    let results = Results {
        stacks: &stacks,
        rounds: &rounds,
    };
    vec![results.rates(), results.processor()]
}

/// The rounds of each stack, one way after the other.
struct Results<'a> {
    stacks: &'a [String],
    rounds: &'a [Rounds],
}

impl Results<'_> {
    fn of(&self, way: usize, stack: usize) -> &Rounds {
        &self.rounds[way * self.stacks.len() + stack]
    }

    fn table(&self, cell: impl Fn(&Rounds) -> String) -> String {
        let rows = self.stacks.iter().enumerate().map(|(number, stack)| {
            let [get, put, between] = [0, 1, 2].map(|way| cell(self.of(way, number)));
            [format!("`{stack}`"), get, put, between]
        });
        let [get, put, between] = Way::ALL.map(Way::name);
        table(["stack", get, put, between], rows.collect())
    }

    /// Lines of `soft` by size, and of `tcp` beside them.
    fn plot(&self, title: &str, unit: &str, value: impl Fn(&Rounds) -> Option<f64>) -> Plot {
        let mut lines = Vec::new();
        for (way, kind) in Way::ALL.into_iter().enumerate() {
            let points = |stack: &dyn Fn(usize) -> usize| {
                let found = (0..SIZES.len()).filter_map(|size| {
                    let value = value(self.of(way, stack(size)))?;
                    Some([size as f64, value])
                });
                found.collect()
            };
            let name = match kind {
                Way::Between => "between",
                other => other.name(),
            };
            lines.push(PlotLine {
                name: format!("soft, {name}"),
                is_model: false,
                points: points(&|size| OTHERS.len() + size),
            });
            lines.push(PlotLine {
                name: format!("tcp, {name}"),
                is_model: true,
                points: points(&|_| 0),
            });
        }
        Plot {
            title: title.to_owned(),
            horizontal: Axis::steps("message", SIZES),
            vertical: unit.to_owned(),
            lines,
        }
    }

    fn rates(&self) -> Section {
        let usual = SIZES.iter().position(|size| *size == USUAL);
        let usual = OTHERS.len() + usual.unwrap_or_default();
        let targets = Way::ALL.into_iter().enumerate().map(|(number, way)| {
            let rate = |stack| self.of(number, stack).rate();
            let share = rate(usual).zip(rate(0)).map(|(soft, tcp)| soft / tcp);
            Target {
                wanted: format!("{}: `soft` at least {TARGET:.2} of `tcp`", way.name()),
                found: share.map_or_else(|| "no result".to_owned(), |share| format!("{share:.2}")),
                is_met: share.is_some_and(|share| share >= TARGET),
            }
        });
        Section {
            title: "Rate by the size of messages".to_owned(),
            description: "RFTP, figures 13, 14 and 16: one client. MB/s.".to_owned(),
            table: self.table(Rounds::rate_cell),
            targets: targets.collect(),
            pictures: vec![Picture {
                name: "rdma-files-rate.svg".to_owned(),
                plot: self.plot("Rate by the size of messages", "MB/s", Rounds::rate),
            }],
        }
    }

    fn processor(&self) -> Section {
        let title = "Processor time by the size of messages";
        Section {
            title: title.to_owned(),
            description: "RFTP, figures 13 and 16: the same runs. Processor seconds for 10^9 bytes, of the client and of the servers, then those of the \
                client alone. The kernel counts in steps of 10 ms."
                .to_owned(),
            table: self.table(Rounds::processor_cell),
            targets: Vec::new(),
            pictures: vec![Picture {
                name: "rdma-files-processor.svg".to_owned(),
                plot: self.plot(title, "s/GB", Rounds::processor),
            }],
        }
    }
}
