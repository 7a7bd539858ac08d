//! The memory of an idle session and of an idle data channel.
//!
//! The server is a fresh one, which cannot reuse memory of earlier sessions. Socket buffers of the kernel
//! do not count: they are the same for every server.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Sample, Unit};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed};
use crate::support::raw::{Block, Control, write_block};
use crate::support::usage::{ProcessTree, raise_descriptor_limit};

/// Data channels of one session: the limit of our server.
const CHANNELS: usize = 64;

/// Bytes of each block. Each channel gets one complete block, and one byte of a second.
const BLOCK: usize = 64 << 10;

/// The time limit for writing the first blocks.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sessions that have logged in and are idle.
#[derive(Debug)]
struct IdleSessions;

/// Channels of a transfer to the server that wait in the middle of a block.
#[derive(Debug)]
struct IdleChannels;

pub(super) fn rows() -> Vec<Row> {
    let description = "resident memory of an idle session";
    let sessions = Row::new(
        Group::Memory,
        "memory-session",
        description,
        Unit::Kibibytes,
        IdleSessions,
    );
    let description = "resident memory of a channel that waits for data";
    let channels = Row::new(
        Group::Memory,
        "memory-channel",
        description,
        Unit::Kibibytes,
        IdleChannels,
    );
    vec![sessions.target(Target::of_theirs(1.0)), channels]
}

impl Work for IdleSessions {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no sessions".to_owned()));
        };
        let server = testbed.fresh_server(kind)?;
        let tree = ProcessTree::of(server.pid());
        // After the start, so that the server keeps the default limit.
        raise_descriptor_limit();
        let empty = tree.usage().memory;
        let sessions: Vec<Control> = (0..testbed.sizes.sessions)
            .map(|_| Control::anonymous(server.address()))
            .collect::<Result<_, _>>()?;
        Ok(each(empty, tree, sessions.len()))
    }
}

impl Work for IdleChannels {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no sessions".to_owned()));
        };
        let server = testbed.fresh_server(kind)?;
        let tree = ProcessTree::of(server.pid());
        let mut control = Control::anonymous(server.address())?;
        control.must("MODE E", 200)?;
        let address = control.passive()?;
        let empty = tree.usage().memory;
        let mut channels = Vec::new();
        for _ in 0..CHANNELS {
            channels.push(control.connect_data(address)?);
        }
        control.send_line(&format!("STOR {}", server.path("up/idle")))?;
        let payload = [0; BLOCK];
        let length = payload.len() as u64;
        let mut end = 0;
        for channel in &mut channels {
            write_block(channel, end, &payload)?;
            channel.write_all(&Block::data(length, end + length).bytes())?;
            channel.write_all(&payload[..1])?;
            end += 2 * length;
        }
        wait_for_length(testbed, end - length)?;
        let sample = each(empty, tree, channels.len());
        drop((channels, control, server));
        testbed.clear()?;
        Ok(sample)
    }
}

/// Waits until the last channel's block has reached the file.
fn wait_for_length(testbed: &Testbed, bytes: u64) -> Result<(), RunError> {
    let file = testbed.tree(Place::Memory).root().join("up/idle");
    let deadline = Instant::now() + TIMEOUT;
    while fs::metadata(&file).map_or(0, |file| file.len()) < bytes {
        if Instant::now() > deadline {
            let words = "the server did not write the first block of every channel";
            return Err(RunError::Failed(words.to_owned()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn each(empty: u64, tree: ProcessTree, count: usize) -> Sample {
    let used = tree.usage().memory.saturating_sub(empty);
    Sample::new(used as f64 / 1024.0 / count as f64)
}
