//! The driver `rdma` on simulated paths: its engine over a simulated fabric.

mod defaults;
mod fairness;
mod policer;
mod rings;
mod units;

use std::io;
use std::path::Path;

use gridhaul_rdma::sim::ExperimentError;

use super::record::section::{self, Section};

/// The introduction of the page.
const INTRODUCTION: &str = "# The driver rdma on simulated paths

This page and its plots are written by `make bench-rdma`. The driver's engine, with its rings, credit and pacing, runs
over a simulated fabric in virtual time: two hosts, and a path with a rate, a delay and a policer. Reliable
connections go back to the first lost packet, as adapters do. A message crosses the path as one train of
packets, and a policer drops all of it. Rates are those of the payload. The simulation is deterministic: every run has
the same results on any machine.
";

/// Measures all sections, one after the other.
///
/// # Errors
///
/// When the process has too few descriptors.
pub fn measure(mut report: impl FnMut(&Section)) -> Result<Vec<Section>, ExperimentError> {
    let measurements = [
        defaults::measure,
        rings::measure,
        policer::measure,
        fairness::measure,
    ];
    let mut sections = Vec::new();
    for measurement in measurements {
        let section = measurement()?;
        report(&section);
        sections.push(section);
    }
    Ok(sections)
}

/// Writes `rdma.md` and its plots to a directory, which is made if it does not exist.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, sections: &[Section]) -> io::Result<()> {
    section::write(directory, "rdma.md", INTRODUCTION, sections, "")
}
