//! Whole transfers, as a well-behaved client does them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;

use super::block::{Incoming, descriptor, end_blocks, read_channel, write_block};
use super::control::Control;
use super::data::DataListener;
use super::reply::{Dialogue, Reply};

/// The payload of the blocks that are sent.
const BLOCK: usize = 256 * 1024;

/// What arrived in MODE E: the blocks of each channel, in the order of the connections.
#[derive(Debug)]
pub struct Received {
    /// The blocks of each channel, the end of data last.
    pub channels: Vec<Vec<Incoming>>,
    /// What the server said.
    pub dialogue: Dialogue,
}

impl Received {
    /// The ranges that arrived and their bytes, by offset.
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

/// `PASV` and `RETR`, to the end.
///
/// # Errors
///
/// When the server refuses, with its words.
pub fn get_stream(control: &mut Control, path: &str) -> io::Result<Vec<u8>> {
    listing(control, &format!("RETR {path}"))
}

/// `PASV` and a command whose answer comes over the data connection, to the end.
///
/// # Errors
///
/// When the server refuses, with its words.
pub fn listing(control: &mut Control, command: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream_transfer(control, command, |mut channel| {
        channel.read_to_end(&mut bytes)?;
        Ok(())
    })?;
    Ok(bytes)
}

/// `PASV` and `STOR`.
///
/// # Errors
///
/// When the server refuses, with its words.
pub fn put_stream(control: &mut Control, path: &str, bytes: &[u8]) -> io::Result<()> {
    stream_transfer(control, &format!("STOR {path}"), |mut channel| {
        channel.write_all(bytes)
    })
    .map(drop)
}

/// `PASV`, a command, and what to do with the data connection once the server has said 1xx. The
/// connection is closed when `talk` returns.
///
/// # Errors
///
/// When the server ends with anything but 2xx; otherwise what `talk` met.
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

/// `MODE E`, `OPTS RETR Parallelism`, `PORT` and `RETR`, to the end.
///
/// # Errors
///
/// When the server refuses, with its words.
pub fn get_blocks(control: &mut Control, path: &str, channels: usize) -> io::Result<Received> {
    control.must("MODE E", 200)?;
    control.must(
        &format!("OPTS RETR Parallelism={channels},{channels},{channels};"),
        200,
    )?;
    let listener = control.listen()?;
    receive_blocks(control, &listener, &format!("RETR {path}"), channels)
}

/// A command that makes the server send blocks over so many channels to `listener`.
///
/// # Errors
///
/// When the server refuses, with its words, or a channel ends too early.
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

/// `MODE E`, `PASV` and `STOR`, the blocks dealt out to so many channels.
///
/// # Errors
///
/// When the server refuses, with its words.
pub fn put_blocks(
    control: &mut Control,
    path: &str,
    bytes: &[u8],
    channels: usize,
) -> io::Result<Dialogue> {
    control.must("MODE E", 200)?;
    send_blocks(control, &format!("STOR {path}"), &[(0, bytes)], channels)
}

/// `PASV` and a command that makes the server receive these ranges over so many channels.
///
/// # Errors
///
/// When the server refuses, with its words.
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
        "{command}: the server said: {reply}"
    )))
}

/// Reads the replies to the end. The server's words count more than what the data connection met.
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
            "{command}: the server said: {dialogue}"
        )));
    }
    talked.map_err(|error| {
        let words = format!("{command}: {error}, but the server said: {dialogue}");
        io::Error::new(error.kind(), words)
    })?;
    Ok(dialogue)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a data thread panicked")))
}
