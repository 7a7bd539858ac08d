//! The driver `rdma` on paths that are not available here: its engine over a simulated fabric.

mod fairness;
mod policer;
mod rings;
mod units;

use std::io;
use std::path::Path;

use gridhaul_rdma::sim::ExperimentError;

use super::record::section::{self, Section};

/// What a page begins with.
const INTRODUCTION: &str = "# The driver rdma on simulated paths

This page and its plots are written by `make bench-rdma`. The driver's engine, with its rings, credit and pacing, runs
over a simulated fabric in a time of its own: two hosts, and a path with a rate, a delay and a policer, on which
reliable connections repeat from the first packet that is missing, as adapters do. A message crosses it as one train of
packets, and a policer drops it whole. Rates are those of the payload. Everything follows from a seed, so another run
gives the same numbers on any machine.
";

/// Answers all questions, one after the other.
///
/// # Errors
///
/// When the process has too few descriptors.
pub fn measure(mut tell: impl FnMut(&Section)) -> Result<Vec<Section>, ExperimentError> {
    let questions = [rings::measure, policer::measure, fairness::measure];
    let mut sections = Vec::new();
    for question in questions {
        let section = question()?;
        tell(&section);
        sections.push(section);
    }
    Ok(sections)
}

/// Writes `rdma.md` and its plots to a directory, which is made if need be.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, sections: &[Section]) -> io::Result<()> {
    section::write(directory, "rdma.md", INTRODUCTION, sections, "")
}
