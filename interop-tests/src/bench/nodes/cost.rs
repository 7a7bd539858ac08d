//! What the control server pays for the bytes that pass its nodes.

use std::time::Duration;

use super::copy;
use crate::bench::record::section::{Section, Target};
use crate::support::usage::ProcessTree;
use crate::support::{Failure, NodeSite, content};

/// A file, and the limit of the rate of each of the two channels that it takes.
struct File {
    name: &'static str,
    bytes: u64,
    limit: [&'static str; 2],
}

/// Two files that differ in bytes and take the same time, 4 s: markers and reports of nodes depend on the time. The limits are far below
/// what the machine can do, so that other load does not make one of the copies longer.
const FILES: [File; 2] = [
    File {
        name: "small",
        bytes: 60_000_000,
        limit: ["-dcstack", "tcp:rate=60m"],
    },
    File {
        name: "large",
        bytes: 2_000_000_000,
        limit: ["-dcstack", "tcp:rate=2000m"],
    },
];

/// The copies of each file.
const COPIES: u32 = 12;

/// The processor time in seconds that the control server may need for each further GB.
const MOST_PER_GB: f64 = 0.01;

/// The processor time of the control server of the source, by the bytes of the file.
pub(super) fn measure() -> Result<Section, Failure> {
    let (source, target) = (NodeSite::start(2)?, NodeSite::start(2)?);
    let control = ProcessTree::of(source.server.pid());
    let root = source.server.root();
    let (mut processor, mut durations) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
    for file in &FILES {
        content::write(&root.join(file.name), file.bytes)?;
    }
    // The first round is not counted. Rows take turns, so that what else the machine does affects both.
    for round in 0..=COPIES {
        for (row, file) in FILES.iter().enumerate() {
            let options = [&file.limit[..], &["-stripe", "-p", "1"]].concat();
            let before = control.processor_time();
            let duration = copy(&source, &target, &options, file.name)?;
            if round > 0 {
                // The kernel counts in steps of 10 ms, which a sum evens out.
                processor[row] += control.processor_time().saturating_sub(before);
                durations[row] += duration;
            }
        }
    }
    let mean = |sum: Duration| sum.as_secs_f64() / f64::from(COPIES);
    let mut table = "| file | copies | duration | processor time of the control server, each |\n|---:|---:|---:|---:|\n".to_owned();
    for (row, file) in FILES.iter().enumerate() {
        table += &format!(
            "| {} MB | {COPIES} | {:.1} s | {:.0} ms |\n",
            file.bytes / 1_000_000,
            mean(durations[row]),
            mean(processor[row]) * 1e3
        );
    }
    let further = (FILES[1].bytes - FILES[0].bytes) as f64 / 1e9;
    let per_gb = (mean(processor[1]) - mean(processor[0])) / further;
    Ok(Section {
        title: "Cost of the control server".to_owned(),
        description: "Striped copies between two clusters of two nodes, of a small and of a large file. The limits of their rates make both \
            take 4 s: markers and reports of nodes depend on the time. The means include the login."
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
