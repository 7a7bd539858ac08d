//! The rate of several nodes, each of which sends at a fixed rate.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::copy;
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::support::{Failure, NodeSite, chown_to_nobody, content};

/// The least share of N times the rate of one node.
const LEAST: f64 = 0.95;

/// The files that each node sends in the copy of many files.
const FILES: u64 = 8;

/// Clusters of nodes of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class {
    title: &'static str,
    description: &'static str,
    /// The numbers of nodes, from one on.
    counts: &'static [u8],
    /// The rate of a channel, as options of the client and in bytes per second.
    limit: [&'static str; 2],
    rate: f64,
    /// The bytes that each node sends. At the rate that takes so long that a login is short beside it.
    bytes: u64,
    /// The name of the plot.
    plot: &'static str,
}

/// Nodes of which eight are far from what the processors of the machine can do.
pub(super) const FAST: Class = Class {
    title: "Rate of several nodes",
    description: "Two clusters of the same number of nodes. globus-url-copy copies from one to the other. The files are in memory: a disk \
        that writes back makes receivers wait, and the paced senders do not make up for it. Each channel of the source sends at most 20 \
        MB/s (`tcp:rate=160m`), so that eight nodes together are far from what the processors can do: the numbers show how well the \
        server divides the work, not how fast the machine is. *Share* is the part of N times the rate of one node. For many files there \
        is one session for each node and eight files for each session. The limit is that of a channel, so a node with two sessions would \
        send twice as much: *balance* is the number of bytes of an even distribution over that of the node with the most.",
    counts: &[1, 2, 4, 8],
    limit: ["-dcstack", "tcp:rate=160m"],
    rate: 20e6,
    bytes: 320_000_000,
    plot: "nodes.svg",
};

/// As many nodes as a large site has, each slow enough for all of them to be on one machine.
pub(super) const MANY: Class = Class {
    title: "Rate of many nodes",
    description: "The same with up to 64 nodes in each cluster, whose channels send at most 2 MB/s each. Many files take 24 s and the \
        logins of all sessions at both clusters, about 35 ms of processor time each: with 64 sessions on two processors that is about a \
        tenth of the time.",
    counts: &[1, 16, 32, 64],
    limit: ["-dcstack", "tcp:rate=16m"],
    rate: 2e6,
    bytes: 48_000_000,
    plot: "many-nodes.svg",
};

/// The result of one number of nodes, in bytes per second.
#[derive(Debug, Clone, Copy)]
struct Scale {
    nodes: u8,
    striped: f64,
    files: f64,
    /// The share of an even distribution that the node with the most bytes leaves.
    balance: f64,
}

impl Class {
    /// Measures all numbers of nodes.
    ///
    /// # Errors
    ///
    /// When a program does not start, or a copy fails.
    pub(super) fn measure(&self) -> Result<Section, Failure> {
        let mut scales = Vec::new();
        for nodes in self.counts {
            let scale = self.scale(*nodes)?;
            eprintln!("{scale:?}");
            scales.push(scale);
        }
        Ok(self.section_of(&scales))
    }

    fn scale(&self, nodes: u8) -> Result<Scale, Failure> {
        let count = usize::from(nodes);
        let source = NodeSite::start_in_memory(count)?;
        let target = NodeSite::start_in_memory(count)?;
        let root = source.server.root();
        let total = self.bytes * u64::from(nodes);
        content::write(&root.join("large"), total)?;
        let many = root.join("many");
        fs::create_dir(&many)?;
        for number in 0..FILES * u64::from(nodes) {
            content::write(&many.join(number.to_string()), self.bytes / FILES)?;
        }
        fs::create_dir(target.server.root().join("many"))?;
        chown_to_nobody(&target.server.root().join("many"))?;
        let striped = copy(
            &source,
            &target,
            &[&self.limit[..], &["-stripe", "-p", "1"]].concat(),
            "large",
        )?;
        let [here, there] = [root, target.server.root()].map(|root| root.join("large"));
        content::same(&here, &there)?;
        // Otherwise the memory would have to hold two copies of both.
        fs::remove_file(here)?;
        fs::remove_file(there)?;
        let sessions = nodes.to_string();
        let before = sent(&source.server.log());
        let options = [&self.limit[..], &["-r", "-p", "1", "-cc", &sessions]].concat();
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
            balance: self.bytes as f64 / most.max(1) as f64,
        })
    }

    fn section_of(&self, scales: &[Scale]) -> Section {
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
            title: self.title.to_owned(),
            description: self.description.to_owned(),
            table,
            targets: targets.collect(),
            pictures: vec![self.picture(scales)],
        }
    }

    fn picture(&self, scales: &[Scale]) -> Picture {
        let line = |name: &str, rate: fn(&Scale) -> f64| PlotLine {
            name: name.to_owned(),
            is_model: false,
            points: scales
                .iter()
                .map(|scale| [f64::from(scale.nodes), rate(scale) / 1e6])
                .collect(),
        };
        Picture {
            name: self.plot.to_owned(),
            plot: Plot {
                title: format!("Nodes that send {} MB/s each", self.rate / 1e6),
                horizontal: Axis::numbers("nodes"),
                vertical: "MB/s".to_owned(),
                lines: vec![
                    line("one striped file", |scale| scale.striped),
                    line("many files", |scale| scale.files),
                    PlotLine {
                        name: format!("N times {} MB/s", self.rate / 1e6),
                        is_model: true,
                        points: scales
                            .iter()
                            .map(|scale| f64::from(scale.nodes))
                            .map(|nodes| [nodes, nodes * self.rate / 1e6])
                            .collect(),
                    },
                ],
            },
        }
    }
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
