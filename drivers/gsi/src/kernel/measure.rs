//! Measures the CPU time of sealing and opening records, in the kernel and in this process.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use gridhaul_security::tls::{Direction, RecordCipher, RecordVersion};
use rustix::time::{ClockId, clock_gettime};

use super::loopback::{pair, protected_pair, sample};
use crate::record::FULL_RECORD;

/// The costs in each direction.
#[derive(Debug)]
pub(super) struct Costs {
    sending: Cost,
    receiving: Cost,
}

/// Seconds of CPU time per gigabyte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) kernel: f64,
    pub(super) process: f64,
}

impl Costs {
    pub(super) fn of(&self, direction: Direction) -> Cost {
        match direction {
            Direction::Sending => self.sending,
            Direction::Receiving => self.receiving,
        }
    }
}

/// The fastest round counts. All rounds together take some ten milliseconds on a server.
const ROUNDS: usize = 3;
const BATCHES: usize = 16;

/// The records that one call sends or receives.
const BATCH_RECORDS: usize = 8;
const BATCH_BYTES: usize = BATCH_RECORDS * FULL_RECORD;
const TAG: usize = 16;

/// Measures with connections on the loopback interface, and the cipher that data channels prefer.
pub(super) fn run() -> io::Result<Costs> {
    let keys = sample(RecordVersion::Tls13, RecordCipher::Aes128Gcm);
    let key = UnboundKey::new(&AES_128_GCM, keys.key)
        .map(LessSafeKey::new)
        .map_err(|_| io::Error::other("the key is of the wrong length"))?;
    let mut kernel = [f64::INFINITY; 2];
    let mut process = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        let round = move_batches(protected_pair(&keys)?, BATCH_BYTES, |_, _| {}, |_| Ok(()))?;
        keep_least(&mut kernel, round);
        let sealed = BATCH_RECORDS * (FULL_RECORD + TAG);
        let seal = |content: &[u8], records: &mut [u8]| seal(&key, content, records);
        let round = move_batches(pair()?, sealed, seal, |records| open(&key, records))?;
        keep_least(&mut process, round);
    }
    let cost = |direction: usize| Cost {
        kernel: kernel[direction],
        process: process[direction],
    };
    Ok(Costs {
        sending: cost(0),
        receiving: cost(1),
    })
}

fn keep_least(least: &mut [f64; 2], round: [f64; 2]) {
    for (least, cost) in least.iter_mut().zip(round) {
        *least = least.min(cost);
    }
}

/// Moves batches over a connection, each `bytes` long on the socket, and returns the cost of the sender and of the receiver.
fn move_batches(
    (mut sender, mut receiver): (TcpStream, TcpStream),
    bytes: usize,
    seal: impl Fn(&[u8], &mut [u8]),
    open: impl Fn(&mut [u8]) -> io::Result<()> + Send,
) -> io::Result<[f64; 2]> {
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let mut records = vec![0; bytes];
            timed(|| {
                receiver.read_exact(&mut records)?;
                open(&mut records)
            })
        });
        let content = vec![0x5a; BATCH_BYTES];
        let mut records = vec![0; bytes];
        let sent = timed(|| {
            if bytes == BATCH_BYTES {
                return sender.write_all(&content);
            }
            seal(&content, &mut records);
            sender.write_all(&records)
        });
        // Without this, a receiver would wait for bytes of a sender that failed.
        drop(sender);
        let received = receiving
            .join()
            .map_err(|_| io::Error::other("a thread has failed"))?;
        Ok([sent?, received?])
    })
}

/// The CPU time of this thread for moving all batches, in seconds per gigabyte.
fn timed(mut move_batch: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    // The first batch is not measured, because it allocates.
    move_batch()?;
    let start = cpu_time();
    for _ in 0..BATCHES {
        move_batch()?;
    }
    let busy = cpu_time().saturating_sub(start);
    #[expect(clippy::cast_precision_loss, reason = "it is a few megabytes")]
    let gigabytes = (BATCHES * BATCH_BYTES) as f64 / 1e9;
    Ok(busy.as_secs_f64() / gigabytes)
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn seal(key: &LessSafeKey, content: &[u8], records: &mut [u8]) {
    for (content, record) in content
        .chunks(FULL_RECORD)
        .zip(records.chunks_mut(FULL_RECORD + TAG))
    {
        let (ciphertext, tag) = record.split_at_mut(content.len());
        // The receiver detects errors.
        let _ = key.seal_out_of_place_scatter(nonce(), Aad::empty(), content, ciphertext, &[], tag);
    }
}

fn open(key: &LessSafeKey, records: &mut [u8]) -> io::Result<()> {
    for record in records.chunks_mut(FULL_RECORD + TAG) {
        key.open_in_place(nonce(), Aad::empty(), record)
            .map_err(|_| io::Error::other("a record was changed on its way"))?;
    }
    Ok(())
}

/// The content is always the same, so the nonce may be reused.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([7; 12])
}
