//! Checksums of a file while it arrives.
//!
//! Workers compute Adler-32 and the CRCs of the runs of bytes that they receive; the results are combined
//! at the end. Hashes need the bytes in order: a thread follows the received data and reads it back from the
//! file ([`hash_stage`]). Only files that are received as a whole have checksums, because the bytes from before a
//! restart do not pass through here.

mod hash_stage;

use std::mem;
use std::sync::{Arc, Mutex};

use gridhaul_stack::Tap;
use gridhaul_storage::{ChecksumAlgorithm, ChecksumPieces, OpenedFile, PartialChecksum};

use crate::context::Context;
use crate::error::TransferError;
use crate::sync::lock;

use hash_stage::HashStage;

/// The checksums of one file while it arrives.
#[derive(Debug)]
pub(crate) struct Arrival {
    context: Context,
    sums: Mutex<Vec<Sum>>,
    /// The checksums of no bytes, with which each run starts.
    empty: Vec<PartialChecksum>,
    hashes: Option<Arc<HashStage>>,
}

#[derive(Debug)]
struct Sum {
    algorithm: ChecksumAlgorithm,
    pieces: ChecksumPieces,
}

impl Arrival {
    /// Whether some of `algorithms` need the bytes in order, and therefore a thread.
    pub(crate) fn needs_thread(algorithms: &[ChecksumAlgorithm]) -> bool {
        let mut algorithms = algorithms.iter();
        algorithms.any(|&algorithm| PartialChecksum::new(algorithm).is_none())
    }

    /// Prepares `algorithms`. `open` opens the arriving file for reading; if that fails,
    /// there are no hashes.
    pub(crate) fn new(
        context: &Context,
        algorithms: &[ChecksumAlgorithm],
        open: impl FnOnce() -> Option<OpenedFile>,
    ) -> Result<Self, TransferError> {
        let (mut sums, mut empty, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        for &algorithm in algorithms {
            match PartialChecksum::new(algorithm) {
                Some(sum) => {
                    let pieces = ChecksumPieces::new();
                    sums.push(Sum { algorithm, pieces });
                    empty.push(sum);
                }
                None => hashes.push(algorithm),
            }
        }
        let hashes = match hashes.is_empty() {
            true => None,
            false => open()
                .map(|file| HashStage::start(context, hashes, file))
                .transpose()?,
        };
        Ok(Self {
            context: context.clone(),
            sums: Mutex::new(sums),
            empty,
            hashes,
        })
    }

    /// A tap for the bytes that one worker receives.
    pub(crate) fn watch(&self) -> Watcher<'_> {
        Watcher {
            arrival: self,
            run: Mutex::new(Run::new(0, &self.empty)),
        }
    }

    /// The checksums of the file after all its `length` bytes have arrived. Waits for the hashes.
    pub(crate) fn finish(&self, length: u64) -> Vec<(ChecksumAlgorithm, String)> {
        let sums = mem::take(&mut *lock(&self.sums));
        let empty = self.empty.iter();
        let mut finished: Vec<_> = sums
            .into_iter()
            .zip(empty)
            .filter_map(|(sum, empty)| {
                let value = match length {
                    0 => Some(empty.finish()),
                    length => sum.pieces.whole(length),
                };
                Some((sum.algorithm, value?))
            })
            .collect();
        if let Some(hashes) = &self.hashes {
            // The wait may exceed the time limit for stalls.
            self.context.running.settle();
            finished.extend(hashes.finish(length));
        }
        finished
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(hashes) = &self.hashes {
            hashes.end();
        }
    }
}

/// Computes the checksums of the bytes that one worker receives.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    arrival: &'a Arrival,
    /// Used by one thread, so the lock is free.
    run: Mutex<Run>,
}

/// A contiguous run of bytes.
#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    sums: Vec<PartialChecksum>,
}

impl Run {
    fn new(start: u64, empty: &[PartialChecksum]) -> Self {
        Self {
            start,
            end: start,
            sums: empty.to_vec(),
        }
    }
}

impl Watcher<'_> {
    fn put_in_place(&self, run: Run) {
        if run.start == run.end {
            return;
        }
        let mut sums = lock(&self.arrival.sums);
        for (sum, piece) in sums.iter_mut().zip(run.sums) {
            sum.pieces.insert(run.start, piece);
        }
    }
}

impl Tap for Watcher<'_> {
    fn written(&self, offset: u64, bytes: &[u8]) {
        if !self.arrival.empty.is_empty() {
            let mut run = lock(&self.run);
            if offset != run.end {
                let next = Run::new(offset, &self.arrival.empty);
                self.put_in_place(mem::replace(&mut run, next));
            }
            for sum in &mut run.sums {
                sum.update(bytes);
            }
            run.end += bytes.len() as u64;
        }
        if let Some(hashes) = &self.arrival.hashes {
            hashes.arrived(offset..offset + bytes.len() as u64);
        }
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let run = mem::replace(&mut *lock(&self.run), Run::new(0, &[]));
        self.put_in_place(run);
    }
}
