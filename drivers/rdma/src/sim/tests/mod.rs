//! The guarantees of the fabric, and the engine over it.

mod conformance;
mod congestion;
mod crawl;
mod fabric;
mod growth;
mod kinds_of_paths;
mod late_wake_ups;
mod pacing;
mod probes;
mod queue_pairs;
mod rails;
mod rings;
mod selective;
mod streams;

/// The seed of a failure, if one is given; otherwise many.
pub(super) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("GRIDHAUL_SEED") {
        Ok(seed) => vec![seed.parse().expect("GRIDHAUL_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Prints how to repeat a failure.
pub(super) struct Replay(pub(super) u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("GRIDHAUL_SEED={} replays this", self.0);
        }
    }
}
