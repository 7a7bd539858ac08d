//! Servers with 1 to 8 data nodes, each of which sends at a fixed rate: how the rate of all grows, and what the control server pays.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::machine;
use super::record::plot::{Axis, Plot, PlotLine};
use super::record::section::{self, Picture, Section, Target};
use crate::support::usage::ProcessTree;
use crate::support::{Failure, NodeSite, chown_to_nobody, content};

/// The introduction of the page.
const INTRODUCTION: &str = "# Data nodes

This page and its plot are written by `make bench-nodes`. Two clusters of the same number of nodes are on one machine. globus-url-copy copies
from one to the other. Each channel of the source sends at most 20 MB/s (`tcp:rate=160m`), so that eight nodes together are far from what the
processors can do: the numbers show how well the server divides the work, not how fast the machine is. Rates are bytes over the time of the
whole command, with its logins.
";

/// The rate of a channel, as options of the client and in bytes per second.
const LIMIT: [&str; 2] = ["-dcstack", "tcp:rate=160m"];
const RATE: f64 = 20e6;

/// The bytes that each node sends, and in how many files. At the rate that takes 16 seconds, beside which a login is short.
const BYTES: u64 = 320_000_000;
const FILES: u64 = 8;

/// The numbers of nodes.
const COUNTS: [u8; 4] = [1, 2, 4, 8];

/// The least share of N times the rate of one node.
const LEAST: f64 = 0.95;

/// The sizes of the files of which the cost for the control server is measured, and the copies of each. With the limit of the rate the
/// small one takes about as long as the large one without.
const SMALL: u64 = 60_000_000;
const LARGE: u64 = 2_000_000_000;
const COPIES: u32 = 20;

/// The processor time in seconds that the control server may need for each further GB.
const MOST_PER_GB: f64 = 0.01;

/// The result of one number of nodes, in bytes per second.
#[derive(Debug, Clone, Copy)]
struct Scale {
    nodes: u8,
    striped: f64,
    files: f64,
    /// The share of an even distribution that the node with the most bytes leaves.
    balance: f64,
}

/// Measures all sections.
///
/// # Errors
///
/// When a program does not start, or a copy fails.
pub fn measure() -> Result<Vec<Section>, Failure> {
    let mut scales = Vec::new();
    for nodes in COUNTS {
        let scale = scale(nodes)?;
        eprintln!("{scale:?}");
        scales.push(scale);
    }
    Ok(vec![section_of(&scales), cost()?])
}

/// Writes `nodes.md` and its plot to a directory.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, sections: &[Section]) -> io::Result<()> {
    let facts = machine::facts();
    let facts = facts
        .iter()
        .map(|(name, words)| format!("- {name}: {words}\n"));
    let notes = format!("\n## The machine\n\n{}", facts.collect::<String>());
    section::write(directory, "nodes.md", INTRODUCTION, sections, &notes)
}

fn scale(nodes: u8) -> Result<Scale, Failure> {
    let count = usize::from(nodes);
    let source = NodeSite::start(count)?;
    let target = NodeSite::start(count)?;
    let root = source.server.root();
    let total = BYTES * u64::from(nodes);
    content::write(&root.join("large"), total)?;
    let many = root.join("many");
    fs::create_dir(&many)?;
    for number in 0..FILES * u64::from(nodes) {
        content::write(&many.join(number.to_string()), BYTES / FILES)?;
    }
    fs::create_dir(target.server.root().join("many"))?;
    chown_to_nobody(&target.server.root().join("many"))?;
    let striped = copy(
        &source,
        &target,
        &[&LIMIT[..], &["-stripe", "-p", "1"]].concat(),
        "large",
    )?;
    content::same(&root.join("large"), &target.server.root().join("large"))?;
    let sessions = nodes.to_string();
    let before = sent(&source.server.log());
    let options = [&LIMIT[..], &["-r", "-p", "1", "-cc", &sessions]].concat();
    let files = copy(&source, &target, &options, "many/")?;
    content::same_tree(&many, &target.server.root().join("many"))?;
    let mut by_node = sent(&source.server.log());
    for (node, bytes) in before {
        *by_node.entry(node).or_default() -= bytes;
    }
    let most = by_node.values().copied().max().unwrap_or(0);
    let rate = |time: Duration| total as f64 / time.as_secs_f64();
    Ok(Scale {
        nodes,
        striped: rate(striped),
        files: rate(files),
        balance: BYTES as f64 / most.max(1) as f64,
    })
}

/// The time of a copy from server to server.
fn copy(
    source: &NodeSite,
    target: &NodeSite,
    options: &[&str],
    name: &str,
) -> Result<Duration, Failure> {
    let [from, to] = [source, target].map(|site| site.server.url(name));
    let finished = source.copy(options, &from, &to)?.succeeded()?;
    Ok(finished.elapsed)
}

/// The bytes of files that each node has sent alone.
fn sent(log: &str) -> BTreeMap<String, u64> {
    let mut bytes_of = BTreeMap::new();
    let lines = log
        .lines()
        .filter(|line| line.contains("transfer finished"));
    for line in lines.filter(|line| line.contains("verb=\"RETR\"")) {
        let value = |name: &str, end: char| Some(line.split_once(name)?.1.split_once(end)?.0);
        let bytes = value(" bytes=", ' ').and_then(|bytes| bytes.parse::<u64>().ok());
        if let (Some(node), Some(bytes)) = (value(" nodes=[", ']'), bytes)
            && !node.contains(',')
        {
            *bytes_of.entry(node.to_owned()).or_default() += bytes;
        }
    }
    bytes_of
}

fn section_of(scales: &[Scale]) -> Section {
    let mut table = "| nodes | one striped file | share | many files | share | balance |\n|---:|---:|---:|---:|---:|---:|\n".to_owned();
    let one = scales[0];
    let share =
        |of: fn(&Scale) -> f64, scale: &Scale| of(scale) / of(&one) / f64::from(scale.nodes);
    let mut least = [f64::INFINITY; 3];
    for scale in scales {
        let shares = [
            share(|scale| scale.striped, scale),
            share(|scale| scale.files, scale),
            scale.balance,
        ];
        for (least, share) in least.iter_mut().zip(shares) {
            *least = least.min(share);
        }
        table += &format!(
            "| {} | {:.1} MB/s | {:.3} | {:.1} MB/s | {:.3} | {:.3} |\n",
            scale.nodes,
            scale.striped / 1e6,
            shares[0],
            scale.files / 1e6,
            shares[1],
            shares[2],
        );
    }
    let names = [
        "one striped file: at least 95 % of N times one node",
        "many files: at least 95 % of N times one node",
        "many files: at least 95 % of the bytes of an even distribution",
    ];
    let targets = names.iter().zip(least).map(|(name, least)| Target {
        wanted: (*name).to_owned(),
        found: format!("{:.1} %", least * 100.0),
        is_met: least >= LEAST,
    });
    Section {
        title: "Rate of several nodes".to_owned(),
        description: "*Share* is the part of N times the rate of one node. For many files there is one session for each node and four files for \
            each session. The limit is that of a channel, so a node with two sessions would send twice as much: *balance* is the number of \
            bytes of an even distribution over that of the node with the most."
            .to_owned(),
        table,
        targets: targets.collect(),
        pictures: vec![picture(scales)],
    }
}

fn picture(scales: &[Scale]) -> Picture {
    let line = |name: &str, is_model, rate: fn(&Scale) -> f64| PlotLine {
        name: name.to_owned(),
        is_model,
        points: scales
            .iter()
            .map(|scale| [f64::from(scale.nodes), rate(scale) / 1e6])
            .collect(),
    };
    Picture {
        name: "nodes.svg".to_owned(),
        plot: Plot {
            title: "Nodes that send 20 MB/s each".to_owned(),
            horizontal: Axis::numbers("nodes"),
            vertical: "MB/s".to_owned(),
            lines: vec![
                line("one striped file", false, |scale| scale.striped),
                line("many files", false, |scale| scale.files),
                line("N times 20 MB/s", true, |scale| {
                    f64::from(scale.nodes) * RATE
                }),
            ],
        },
    }
}

/// The processor time of the control server of the source, for copies that differ in bytes and take about the same time: markers and
/// reports of nodes depend on the time.
fn cost() -> Result<Section, Failure> {
    let (source, target) = (NodeSite::start(2)?, NodeSite::start(2)?);
    let control = ProcessTree::of(source.server.pid());
    let root = source.server.root();
    let rows = [("small", SMALL, &LIMIT[..]), ("large", LARGE, &[][..])];
    let (mut processor, mut durations) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
    for (name, size, _) in rows {
        content::write(&root.join(name), size)?;
    }
    // The first round is not counted. Rows take turns, so that what else the machine does affects both.
    for round in 0..=COPIES {
        for (row, (name, _, limit)) in rows.iter().enumerate() {
            let options = [*limit, &["-stripe", "-p", "1"]].concat();
            let before = control.processor_time();
            let duration = copy(&source, &target, &options, name)?;
            if round > 0 {
                // The kernel counts in steps of 10 ms, which a sum evens out.
                processor[row] += control.processor_time().saturating_sub(before);
                durations[row] += duration;
            }
        }
    }
    let mean = |sum: Duration| sum.as_secs_f64() / f64::from(COPIES);
    let mut table = "| file | copies | duration | processor time of the control server, each |\n|---:|---:|---:|---:|\n".to_owned();
    for (row, (_, size, _)) in rows.iter().enumerate() {
        table += &format!(
            "| {} MB | {COPIES} | {:.1} s | {:.0} ms |\n",
            size / 1_000_000,
            mean(durations[row]),
            mean(processor[row]) * 1e3
        );
    }
    let further = (LARGE - SMALL) as f64 / 1e9;
    let per_gb = (mean(processor[1]) - mean(processor[0])) / further;
    Ok(Section {
        title: "Cost of the control server".to_owned(),
        description: "Striped copies between two clusters of two nodes: a small file with the limit of the rate and a large one without, which take \
            about the same time. Markers and reports of nodes depend on the time. The means include the login."
            .to_owned(),
        table,
        targets: vec![Target {
            wanted: format!("at most {:.0} ms for each further GB", MOST_PER_GB * 1e3),
            found: format!("{:.1} ms", per_gb * 1e3),
            is_met: per_gb <= MOST_PER_GB,
        }],
        pictures: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_for_the_node_that_sent_them_alone() {
        let line = |verb: &str, bytes: u64, nodes: &str| {
            format!(
                "INFO audit: transfer finished verb=\"{verb}\" bytes={bytes} nodes=[{nodes}] refused=0\n"
            )
        };
        let log = line("RETR", 5, "a:1")
            + &line("RETR", 7, "a:1")
            + &line("RETR", 9, "a:1, b:1")
            + &line("STOR", 11, "b:1");
        assert_eq!(sent(&log), BTreeMap::from([("a:1".to_owned(), 12)]));
    }
}
