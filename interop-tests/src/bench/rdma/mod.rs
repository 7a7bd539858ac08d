//! The driver `rdma` on paths that nobody here has: its engine over a simulated fabric.

mod fairness;
mod policer;
mod rings;

use std::fs;
use std::io;
use std::path::Path;

use gridhaul_rdma::sim::ExperimentError;

use super::record::plot::Plot;

/// What a page begins with.
const INTRODUCTION: &str = "# The driver rdma on simulated paths

This page and its plots are written by `make bench-rdma`. The driver's engine, with its rings, credit and pacing, runs
over a simulated fabric in a time of its own: two hosts, and a path with a rate, a delay and a policer, on which
reliable connections repeat from the first packet that is missing, as adapters do. A message crosses it as one train of
packets, and a policer drops it whole. Rates are those of the payload. Everything follows from a seed, so another run
gives the same numbers on any machine.
";

/// A bit per second, in bytes per second.
const GIGABIT: u64 = 125_000_000;

/// A question and its answer.
#[derive(Debug)]
pub struct Section {
    /// What it is about.
    title: &'static str,
    /// What was done, which figure of which paper it answers, and what is wanted.
    words: &'static str,
    /// In Markdown.
    table: String,
    /// By the names of their files.
    plots: Vec<(&'static str, Plot)>,
    /// What the project wants, what there is, and whether that is enough.
    targets: Vec<Target>,
}

/// What the project wants.
#[derive(Debug)]
struct Target {
    wanted: &'static str,
    found: String,
    is_met: bool,
}

impl Section {
    /// Whether everything is as the project wants it.
    pub fn is_met(&self) -> bool {
        self.targets.iter().all(|target| target.is_met)
    }

    /// In Markdown.
    pub fn text(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.words);
        for (name, plot) in &self.plots {
            text += &format!("![{}]({name})\n\n", plot.title);
        }
        text += &self.table;
        text.push('\n');
        for target in &self.targets {
            let verdict = if target.is_met { "met" } else { "**MISSED**" };
            text += &format!("- {}: {}, {verdict}\n", target.wanted, target.found);
        }
        text
    }
}

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
    fs::create_dir_all(directory)?;
    let mut page = INTRODUCTION.to_owned();
    for section in sections {
        for (name, plot) in &section.plots {
            fs::write(directory.join(name), plot.svg())?;
        }
        page += &format!("\n{}", section.text());
    }
    fs::write(directory.join("rdma.md"), page)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
