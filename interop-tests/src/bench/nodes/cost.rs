//! What the control server pays for the bytes that pass its nodes.

use std::time::Duration;

use super::copy;
use crate::bench::record::section::{Section, Target};
use crate::support::usage::ProcessTree;
use crate::support::{Failure, NodeSite, content};

/// The limit of the rate of small files.
const LIMIT: [&str; 2] = ["-dcstack", "tcp:rate=160m"];

/// The sizes of the files, and the copies of each. With the limit of the rate the small one takes about as long as the large one
/// without.
const SMALL: u64 = 60_000_000;
const LARGE: u64 = 2_000_000_000;
const COPIES: u32 = 20;

/// The processor time in seconds that the control server may need for each further GB.
const MOST_PER_GB: f64 = 0.01;

/// The processor time of the control server of the source, for copies that differ in bytes and take about the same time: markers and
/// reports of nodes depend on the time.
pub(super) fn measure() -> Result<Section, Failure> {
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
