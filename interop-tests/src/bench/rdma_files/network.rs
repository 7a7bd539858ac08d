//! The same copies over the devices of a guest, for the page of devices.

use std::io;

use super::rounds::Rounds;
use super::site::{Run, Site, Way};
use crate::bench::record::section::Section;
use crate::bench::record::table;
use crate::support::guest_network::{LEFT, RIGHT};

/// Small: the guest has one processor, and copies in memory.
const BYTES: u64 = 128 << 20;

const ROUNDS: usize = 3;

const STACKS: [&str; 5] = [
    "rdma:provider=verbs",
    "rdma:provider=verbs;message=1M",
    "rdma:provider=soft",
    "tcp",
    "splice",
];

/// Copies between the two ends of the cable, by `gridhaul`. `limit` is the rate, in 10^6 bytes per second, at which `ib_write_bw` moves so many
/// bytes.
///
/// # Errors
///
/// When the servers or the files cannot be made.
pub fn measure(device: &str, limit: impl FnMut(u64) -> Result<f64, String>) -> io::Result<Section> {
    let addresses = [LEFT, RIGHT].map(|address| address.parse().expect("an address of ours"));
    let site = Site::new(&std::env::temp_dir(), addresses, &[], BYTES).map_err(io::Error::other)?;
    let candidates: Vec<(Way, &str)> = STACKS
        .into_iter()
        .flat_map(|stack| Way::ALL.map(|way| (way, stack)))
        .collect();
    let rounds = Rounds::take(ROUNDS, &candidates, |(way, stack)| site.run(*way, stack, 1));
    let rows = STACKS.into_iter().zip(rounds.chunks(Way::ALL.len()));
    let rows = rows.map(|(stack, of)| {
        let [get, put, between] = [0, 1, 2].map(|way| of[way].rate_cell());
        [format!("`{stack}`"), get, put, between]
    });
    let rows = rows.chain([row_of_limit(limit)]);
    let [get, put, between] = Way::ALL.map(Way::name);
    Ok(Section {
        title: format!("From file to file over {device}"),
        description: format!(
            "`gridhaul copy --stack STACK` copies a file of {} MiB in memory from and to a server at the other end of the cable, and between servers at \
             both ends. MB/s of whole commands, with start and login: medians of {ROUNDS} alternating runs, and the quartiles. `ib_write_bw` moves as \
             many bytes from memory to memory, without files, start and login: what the devices and the cable can do.",
            BYTES >> 20
        ),
        table: table(["stack", get, put, between], rows.collect()),
        targets: Vec::new(),
        pictures: Vec::new(),
    })
}

/// The row of `ib_write_bw`: memory goes one way only.
fn row_of_limit(mut limit: impl FnMut(u64) -> Result<f64, String>) -> [String; 4] {
    let rounds = Rounds::take(ROUNDS, &[()], |()| {
        // Its processor time is not measured.
        let (clients, servers) = (0.0, 0.0);
        limit(BYTES).map(|rate| Run {
            rate,
            clients,
            servers,
        })
    });
    let [get, between] = ["-", "-"].map(str::to_owned);
    let name = "`ib_write_bw`".to_owned();
    [name, get, rounds[0].rate_cell(), between]
}
