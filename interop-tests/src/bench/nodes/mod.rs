//! Servers with 1 to 64 data nodes: how the rate of all grows, and what the control server and one node on another machine cost.

mod cost;
mod remote;
mod scale;

use std::io;
use std::path::Path;
use std::time::Duration;

use super::machine;
use super::record::section::{self, Section};
use crate::support::{Failure, NodeSite};

/// The introduction of the page.
const INTRODUCTION: &str = "# Data nodes

This page and its plots are written by `make bench-nodes`. All programs are on one machine. Rates are bytes over the time of the whole command, with
its logins.
";

/// Measures all sections.
///
/// # Errors
///
/// When a program does not start, or a copy fails.
pub fn measure() -> Result<Vec<Section>, Failure> {
    Ok(vec![
        scale::FAST.measure()?,
        scale::MANY.measure()?,
        cost::measure()?,
        remote::measure()?,
    ])
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
