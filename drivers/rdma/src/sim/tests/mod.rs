//! What the fabric promises, and what the engine makes of it.

mod conformance;
mod crawl;
mod fabric;
mod pacing;
mod streams;

/// The seed that failed, if somebody wants to see it again; else many.
pub(super) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("GRIDHAUL_SEED") {
        Ok(seed) => vec![seed.parse().expect("GRIDHAUL_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Says how to see a failure again.
pub(super) struct Replay(pub(super) u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("GRIDHAUL_SEED={} replays this", self.0);
        }
    }
}
