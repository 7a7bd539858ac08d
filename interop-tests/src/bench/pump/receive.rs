//! The receiving half of the pump.

use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::connections::{each_connection, print_line};
use super::options::Options;

/// The size of a pipe: the limit for unprivileged users (pipe(7)).
const PIPE_BYTES: usize = 1 << 20;

/// Listens, prints the address, and receives.
pub(super) fn run(options: &Options) -> io::Result<Duration> {
    let listener = TcpListener::bind(options.address)?;
    print_line(&listener.local_addr()?.to_string())?;
    from(&listener, options)
}

/// Receives the range of every connection.
pub(super) fn from(listener: &TcpListener, options: &Options) -> io::Result<Duration> {
    let connections: io::Result<Vec<TcpStream>> = (0..options.connections.max(1))
        .map(|_| listener.accept().map(|(socket, _)| socket))
        .collect();
    let file = File::create(&options.file)?;
    each_connection(connections?, |mut socket| {
        let mut head = [0; 16];
        socket.read_exact(&mut head)?;
        let [start, length] = [&head[..8], &head[8..]].map(number);
        match options.variant.buffer_bytes() {
            None => by_splice(&socket, &file, start, length),
            Some(bytes) => through_memory(&mut socket, &file, start, length, bytes),
        }
    })
}

fn by_splice(socket: &TcpStream, file: &File, start: u64, length: u64) -> io::Result<()> {
    let (outlet, inlet) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setpipe_size(&inlet, PIPE_BYTES)?;
    let flags = SpliceFlags::MOVE | SpliceFlags::MORE;
    let (mut offset, end) = (start, start + length);
    while offset < end {
        let count = PIPE_BYTES.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let mut waiting = splice(socket, None, &inlet, None, count, flags)?;
        if waiting == 0 {
            return Err(ended());
        }
        while waiting > 0 {
            waiting -= splice(&outlet, None, file, Some(&mut offset), waiting, flags)?;
        }
    }
    Ok(())
}

fn through_memory(
    socket: &mut TcpStream,
    file: &File,
    start: u64,
    length: u64,
    bytes: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; bytes];
    let mut done = 0;
    while done < length {
        let count = buffer
            .len()
            .min(usize::try_from(length - done).unwrap_or(usize::MAX));
        let count = socket.read(&mut buffer[..count])?;
        if count == 0 {
            return Err(ended());
        }
        file.write_all_at(&buffer[..count], start + done)?;
        done += count as u64;
    }
    Ok(())
}

/// Decodes a big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the sender closed a connection too early",
    )
}
