//! Servers with 1 to 64 data nodes: how the rate of all grows, and what the control server and one node on another machine cost.

mod cost;
mod remote;
mod scale;

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use super::machine;
use super::record::section::{self, Section};
use crate::support::{Failure, NodeSite};

/// The introduction of the page.
const INTRODUCTION: &str = "# Data nodes

This page and its plots are written by `make bench-nodes`. All programs are on one machine. Rates are bytes over the time of the whole command, with
its logins.
";

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The rate of 1 to 8 nodes
    Several,
    /// The rate of 1 to 64 nodes
    Many,
    /// What the control server pays for bytes
    Cost,
    /// A remote node beside the node in the process
    Remote,
}

impl Part {
    /// Measures this part.
    ///
    /// # Errors
    ///
    /// When a program does not start, or a copy fails.
    pub fn measure(self) -> Result<Section, Failure> {
        match self {
            Self::Several => scale::FAST.measure(),
            Self::Many => scale::MANY.measure(),
            Self::Cost => cost::measure(),
            Self::Remote => remote::measure(),
        }
    }
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
