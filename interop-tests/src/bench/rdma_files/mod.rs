//! Copies from file to file over the driver `rdma`, beside TCP: the program `gridhaul` with our server, and with two of them.
//!
//! ```text
//!   sizes      by the size of messages
//!   clients    by the number of clients at a time
//!   disk       from disk to disk
//!   network    over the devices of guests
//!   blocks     over them, by the size of messages, through the page cache and past it
//!     both use: baselines (what bytes cost without files); network: two_lengths (start and rate of commands)
//!     all use: site (servers and files, one run), logged (times of transfers), rounds (alternating runs, medians and quartiles)
//! ```

pub mod baselines;
pub mod blocks;
mod clients;
mod disk;
mod logged;
pub mod network;
mod rounds;
mod site;
mod sizes;
mod two_lengths;

use std::io;
use std::path::Path;

use self::site::Site;
use super::machine;
use super::record::section::{self, Section};
use super::testbed::RunError;

/// The introduction of the page.
const INTRODUCTION: &str = "# Copies from file to file over RDMA

This page and its plots are written by `make bench-rdma-files`. The program `gridhaul` copies files in memory to and from a server, and between
two servers (`gridhaul copy --stack STACK`), all on one machine over loopback, with anonymous logins. So processors are what limits
the rate, and clients, servers and kernel share them. `rdma:provider=soft` is iWARP by the programs themselves over TCP. It shows what a copy costs
beside the driver; it does not predict adapters. Over [devices in software](rdma-devices-files.md) the same copies run in a guest.

Stacks run alternately. A run has one file for each client, all files together have the same number of bytes, and the number and the bytes of the
copies are checked. Rates are those of whole commands, with the start of the program and the login. Numbers are medians, with the
quartiles in parentheses; a section begins no further round of runs after 70 s.
";

/// What is copied, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The bytes of all files of a run.
    pub bytes: u64,
    /// Runs of each row.
    pub repeat: usize,
}

impl Plan {
    /// What the record has: some four minutes.
    pub const FULL: Self = Self {
        bytes: 1 << 30,
        repeat: 5,
    };

    /// A functional test.
    pub const QUICK: Self = Self {
        bytes: 16 << 20,
        repeat: 1,
    };
}

/// Measures all sections, and tells each as soon as it is there.
///
/// # Errors
///
/// When the servers or the files cannot be made.
pub fn measure(plan: Plan, mut report: impl FnMut(&Section)) -> Result<Vec<Section>, RunError> {
    let site = Site::on_loopback(plan.bytes)?;
    let mut all = Vec::new();
    for measurement in [sizes::measure, clients::measure] {
        let sections = measurement(&site, plan);
        sections.iter().for_each(&mut report);
        all.extend(sections);
    }
    let section = disk::measure(plan)?;
    report(&section);
    all.push(section);
    Ok(all)
}

/// Writes `rdma-files.md` and its plots to a directory.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, plan: Plan, sections: &[Section]) -> io::Result<()> {
    let mut facts = machine::facts();
    let files = format!("{} bytes in all, {} runs", plan.bytes, plan.repeat);
    facts.push(("files", files));
    let facts = facts
        .iter()
        .map(|(name, words)| format!("- {name}: {words}\n"));
    let notes = format!("\n## The machine\n\n{}", facts.collect::<String>());
    section::write(directory, "rdma-files.md", INTRODUCTION, sections, &notes)
}
