//! The sending half of the pump.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::sendfile;

use super::connections::{each_connection, print_line};
use super::options::{Options, Range, ranges};

/// The limit of one call of sendfile(2).
const LARGEST: u64 = 0x7fff_f000;

/// Connects, waits for the start signal, and sends.
pub(super) fn run(options: &Options) -> io::Result<Duration> {
    let connections = connect(options)?;
    print_line("ready")?;
    io::stdin().read_line(&mut String::new())?;
    all(options, connections)
}

/// Opens a connection for each range.
pub(super) fn connect(options: &Options) -> io::Result<Vec<(Range, TcpStream)>> {
    let ranges = ranges(options).into_iter();
    ranges
        .map(|range| Ok((range, TcpStream::connect(options.address)?)))
        .collect()
}

/// Sends each range over its connection.
pub(super) fn all(options: &Options, connections: Vec<(Range, TcpStream)>) -> io::Result<Duration> {
    let file = File::open(&options.file)?;
    each_connection(connections, |((start, length), mut socket)| {
        socket.write_all(&[start.to_be_bytes(), length.to_be_bytes()].concat())?;
        match options.variant.buffer_bytes() {
            None => by_sendfile(&file, start, length, &socket),
            Some(bytes) => through_memory(&file, start, length, &mut socket, bytes),
        }
    })
}

fn by_sendfile(file: &File, start: u64, length: u64, socket: &TcpStream) -> io::Result<()> {
    let mut offset = start;
    let end = start + length;
    while offset < end {
        let count = usize::try_from((end - offset).min(LARGEST)).unwrap_or(usize::MAX);
        if sendfile(socket, file, Some(&mut offset), count)? == 0 {
            return Err(shorter());
        }
    }
    Ok(())
}

fn through_memory(
    file: &File,
    start: u64,
    length: u64,
    socket: &mut TcpStream,
    bytes: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; bytes];
    let mut done = 0;
    while done < length {
        let count = buffer
            .len()
            .min(usize::try_from(length - done).unwrap_or(usize::MAX));
        let count = file.read_at(&mut buffer[..count], start + done)?;
        if count == 0 {
            return Err(shorter());
        }
        socket.write_all(&buffer[..count])?;
        done += count as u64;
    }
    Ok(())
}

fn shorter() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file is shorter than `--bytes`",
    )
}
