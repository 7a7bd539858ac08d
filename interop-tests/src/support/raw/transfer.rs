//! Whole transfers, as a well-behaved client does them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;

use super::block::{Incoming, descriptor, end_blocks, read_channel, write_block};
use super::control::Control;
use super::data::DataListener;
use super::reply::{Dialogue, Reply};

/// The payload of sent blocks, in bytes.
const BLOCK: usize = 256 * 1024;

/// The result of a transfer in MODE E.
#[derive(Debug)]
pub struct Received {
    /// The blocks of each channel, in the order of the connections, each with its end of data last.
    pub channels: Vec<Vec<Incoming>>,
    /// The replies of the server.
    pub dialogue: Dialogue,
}

impl Received {
    /// The received ranges, sorted by offset.
    pub fn ranges(&self) -> Vec<(u64, Vec<u8>)> {
        let blocks = self.channels.iter().flatten();
        let data = blocks.filter(|incoming| incoming.block.descriptor & descriptor::EOF == 0);
        let mut ranges: Vec<(u64, Vec<u8>)> = data
            .filter(|incoming| !incoming.payload.is_empty())
            .map(|incoming| (incoming.block.offset, incoming.payload.clone()))
            .collect();
        ranges.sort();
        ranges
    }

    /// The file, when the ranges cover it from 0 without a gap.
    ///
    /// # Errors
    ///
    /// When there is a gap or an overlap.
    pub fn file(&self) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        for (offset, payload) in self.ranges() {
            if offset != file.len() as u64 {
                let length = file.len();
                return Err(io::Error::other(format!(
                    "a block at {offset} follows {length} bytes"
                )));
            }
            file.extend(payload);
        }
        Ok(file)
    }
}

/// Fetches a file with `PASV` and `RETR`.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn get_stream(control: &mut Control, path: &str) -> io::Result<Vec<u8>> {
    listing(control, &format!("RETR {path}"))
}

/// Sends `PASV` and a command, and reads the data connection to its end.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn listing(control: &mut Control, command: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream_transfer(control, command, |mut channel| {
        channel.read_to_end(&mut bytes)?;
        Ok(())
    })?;
    Ok(bytes)
}

/// Stores a file with `PASV` and `STOR`.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn put_stream(control: &mut Control, path: &str, bytes: &[u8]) -> io::Result<()> {
    stream_transfer(control, &format!("STOR {path}"), |mut channel| {
        channel.write_all(bytes)
    })
    .map(drop)
}

/// Sends `PASV` and a command, and calls `talk` with the data connection after the first 1xx reply. The
/// connection is closed when `talk` returns.
///
/// # Errors
///
/// When the final reply is not a 2xx; else the error of `talk`.
pub fn stream_transfer(
    control: &mut Control,
    command: &str,
    talk: impl FnOnce(TcpStream) -> io::Result<()>,
) -> io::Result<Dialogue> {
    let address = control.passive()?;
    let channel = control.connect_data(address)?;
    let first = started(control, command)?;
    let talked = talk(channel);
    finished(control, command, first, talked)
}

/// Fetches a file with `MODE E`, `OPTS RETR Parallelism`, `PORT` and `RETR`.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn get_blocks(control: &mut Control, path: &str, channels: usize) -> io::Result<Received> {
    control.must("MODE E", 200)?;
    control.must(
        &format!("OPTS RETR Parallelism={channels},{channels},{channels};"),
        200,
    )?;
    let listener = control.listen()?;
    receive_blocks(control, &listener, &format!("RETR {path}"), channels)
}

/// Sends a command after which the server sends blocks over this number of channels to `listener`.
///
/// # Errors
///
/// When the server refuses, with its reply, or a channel ends too early.
pub fn receive_blocks(
    control: &mut Control,
    listener: &DataListener,
    command: &str,
    channels: usize,
) -> io::Result<Received> {
    let first = started(control, command)?;
    let mut streams = Vec::new();
    for _ in 0..channels {
        streams.push(listener.accept()?);
    }
    let read = thread::scope(|scope| {
        let readers: Vec<_> = streams
            .iter_mut()
            .map(|stream| scope.spawn(move || read_channel(stream)))
            .collect();
        readers
            .into_iter()
            .map(joined)
            .collect::<io::Result<Vec<_>>>()
    });
    let (read, talked) = match read {
        Ok(read) => (read, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    let dialogue = finished(control, command, first, talked)?;
    Ok(Received {
        channels: read,
        dialogue,
    })
}

/// Stores a file with `MODE E`, `PASV` and `STOR`; the channels get the blocks in turn.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn put_blocks(
    control: &mut Control,
    path: &str,
    bytes: &[u8],
    channels: usize,
) -> io::Result<Dialogue> {
    control.must("MODE E", 200)?;
    send_blocks(control, &format!("STOR {path}"), &[(0, bytes)], channels)
}

/// Sends `PASV` and a command after which the server receives these ranges over this number of channels.
///
/// # Errors
///
/// When the server refuses, with its reply.
pub fn send_blocks(
    control: &mut Control,
    command: &str,
    ranges: &[(u64, &[u8])],
    channels: usize,
) -> io::Result<Dialogue> {
    let address = control.passive()?;
    let mut streams = Vec::new();
    for _ in 0..channels {
        streams.push(control.connect_data(address)?);
    }
    let first = started(control, command)?;
    let blocks: Vec<(u64, &[u8])> = ranges
        .iter()
        .flat_map(|&(start, bytes)| {
            let offsets = (start..).step_by(BLOCK);
            offsets.zip(bytes.chunks(BLOCK))
        })
        .collect();
    let talked = thread::scope(|scope| {
        let senders: Vec<_> = streams
            .iter_mut()
            .zip(end_blocks(channels))
            .enumerate()
            .map(|(index, (stream, end))| {
                let mine = blocks.iter().skip(index).step_by(channels);
                scope.spawn(move || {
                    for &(offset, payload) in mine {
                        write_block(stream, offset, payload)?;
                    }
                    stream.write_all(&end.bytes())
                })
            })
            .collect();
        senders.into_iter().try_for_each(joined)
    });
    finished(control, command, first, talked)
}

/// Sends the command and reads the first 1xx.
fn started(control: &mut Control, command: &str) -> io::Result<Reply> {
    let reply = control.command(command)?;
    if reply.is_preliminary() {
        return Ok(reply);
    }
    Err(io::Error::other(format!(
        "{command}: the reply was: {reply}"
    )))
}

/// Reads the remaining replies. An error reply takes precedence over an error of the data connection.
fn finished(
    control: &mut Control,
    command: &str,
    first: Reply,
    talked: io::Result<()>,
) -> io::Result<Dialogue> {
    let mut dialogue = match control.dialogue() {
        Ok(dialogue) => dialogue,
        Err(silence) => return Err(talked.err().unwrap_or(silence)),
    };
    dialogue.preliminary.insert(0, first);
    if !dialogue.last.is_success() {
        return Err(io::Error::other(format!(
            "{command}: the replies were: {dialogue}"
        )));
    }
    talked.map_err(|error| {
        let words = format!("{command}: {error}, but the replies were: {dialogue}");
        io::Error::new(error.kind(), words)
    })?;
    Ok(dialogue)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a data thread panicked")))
}
