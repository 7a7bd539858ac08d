//! Rates and processor time by the number of clients that copy at a time.

use super::Plan;
use super::rounds::Rounds;
use super::site::{Site, Way};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section};
use crate::bench::record::table;

const STACKS: [&str; 3] = ["tcp", "splice", "rdma:provider=soft"];

const CLIENTS: [usize; 5] = [1, 2, 4, 8, 16];

pub(super) fn measure(site: &Site, plan: Plan) -> Vec<Section> {
    Way::ALL.map(|way| of_way(site, plan, way)).into()
}

fn of_way(site: &Site, plan: Plan, way: Way) -> Section {
    let candidates: Vec<(usize, &str)> = CLIENTS
        .into_iter()
        .flat_map(|clients| STACKS.map(|stack| (clients, stack)))
        .collect();
    let rounds = Rounds::take(plan.repeat, &candidates, |(clients, stack)| {
        site.run(way, stack, *clients)
    });
    let rows = CLIENTS.into_iter().zip(rounds.chunks(STACKS.len()));
    let rows = rows.map(|(clients, of)| {
        let rate = |stack: usize| of[stack].rate_cell();
        let time = |stack: usize| of[stack].processor_cell();
        [
            clients.to_string(),
            rate(0),
            rate(1),
            rate(2),
            time(0),
            time(1),
            time(2),
        ]
    });
    let heading = [
        "clients",
        "tcp, MB/s",
        "splice, MB/s",
        "soft, MB/s",
        "tcp, s/GB",
        "splice, s/GB",
        "soft, s/GB",
    ];
    let (word, figure) = match way {
        Way::Get => ("get", "RFTP, figures 10 to 12. "),
        Way::Put => ("put", "RFTP, figures 10 to 12. "),
        Way::Between => ("between", ""),
    };
    Section {
        title: format!("By the number of clients, {}", way.name()),
        description: format!(
            "{figure}So many programs at a time, each with a file of its own; the bytes of all files together are always the same, so that files are \
             smaller where there are more of them. MB/s of all together, and processor seconds for 10^9 bytes as above."
        ),
        table: table(heading, rows.collect()),
        targets: Vec::new(),
        pictures: vec![Picture {
            name: format!("rdma-files-clients-{word}.svg"),
            plot: plot(way, &rounds),
        }],
    }
}

fn plot(way: Way, rounds: &[Rounds]) -> Plot {
    let lines = STACKS.into_iter().enumerate().map(|(stack, name)| {
        let of_stack = rounds.iter().skip(stack).step_by(STACKS.len()).enumerate();
        let points = of_stack.filter_map(|(number, of)| Some([number as f64, of.rate()?]));
        PlotLine {
            name: name.replace("rdma:provider=", ""),
            is_model: false,
            points: points.collect(),
        }
    });
    Plot {
        title: format!("Rate by the number of clients, {}", way.name()),
        horizontal: Axis::steps("clients", CLIENTS.map(|count| count.to_string())),
        vertical: "MB/s".to_owned(),
        lines: lines.collect(),
    }
}
