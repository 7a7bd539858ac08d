//! Probes the kernel features that the driver uses, for checks before a server starts.

use std::os::fd::{AsFd, OwnedFd};

use gridhaul_stack::{Finding, Standing};
use gridhaul_tcp::enable_zerocopy;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
    socketpair,
};
use rustix::pipe::{SpliceFlags, splice};

use crate::pipes::{Pipe, WANTED_BYTES};

/// Tries each feature once, with a few bytes in memory.
pub(crate) fn support() -> Vec<Finding> {
    vec![
        probe(
            "sendfile",
            try_sendfile(),
            "files are sent without a copy",
            "files are read and sent",
        ),
        probe(
            "splice",
            try_splice(),
            "files are received without a copy in this process",
            "files are received and written",
        ),
        pipe_size(),
        probe(
            "MSG_ZEROCOPY",
            try_zerocopy(),
            "with direct=1 the network may take what was read without a copy",
            "what was read is copied",
        ),
    ]
}

fn probe(name: &str, outcome: Result<(), Errno>, words: &str, instead: &str) -> Finding {
    match outcome {
        Ok(()) => finding(name, true, words),
        Err(errno) => {
            let words = format!("{}; {instead}", std::io::Error::from(errno));
            finding(name, false, &words)
        }
    }
}

/// What was found out about a system call or flag.
fn finding(name: &str, is_good: bool, words: &str) -> Finding {
    Finding {
        about: "kernel",
        standing: Standing::of(is_good),
        text: format!("{name}: {words}"),
    }
}

fn try_sendfile() -> Result<(), Errno> {
    let file = file()?;
    rustix::io::pwrite(&file, CONTENT, 0)?;
    let (here, there) = sockets()?;
    let sent = sendfile(&here, &file, Some(&mut 0), CONTENT.len())?;
    let mut received = [0; CONTENT.len()];
    let (count, _) = recv(&there, &mut received, RecvFlags::empty())?;
    expect(sent == CONTENT.len() && &received[..count] == CONTENT)
}

fn try_splice() -> Result<(), Errno> {
    let file = file()?;
    let (here, there) = sockets()?;
    send(&here, CONTENT, SendFlags::empty())?;
    let mut pipe = Pipe::take()?;
    let count = pipe.fill(there.as_fd(), CONTENT.len())?;
    let written = splice(
        pipe.reader(),
        None,
        &file,
        Some(&mut 0),
        count,
        SpliceFlags::MOVE,
    )?;
    pipe.note_taken(written);
    let mut content = [0; CONTENT.len()];
    let count = rustix::io::pread(&file, &mut content, 0)?;
    expect(&content[..count] == CONTENT)
}

fn try_zerocopy() -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    enable_zerocopy(socket.as_fd())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOTSUP))
}

/// Smaller pipes work too, with more system calls.
fn pipe_size() -> Finding {
    let (is_available, words) = match Pipe::take().map(|pipe| pipe.capacity()) {
        Ok(bytes) if bytes >= WANTED_BYTES => (true, format!("pipes hold {bytes} bytes")),
        Ok(bytes) => (
            false,
            format!(
                "pipes hold {bytes} bytes and not {WANTED_BYTES}: raise fs.pipe-max-size or \
                 fs.pipe-user-pages-soft"
            ),
        ),
        Err(errno) => (
            false,
            format!(
                "{}; files are received and written",
                std::io::Error::from(errno)
            ),
        ),
    };
    finding("F_SETPIPE_SZ", is_available, &words)
}

const CONTENT: &[u8; 8] = b"gridhaul";

fn file() -> Result<OwnedFd, Errno> {
    memfd_create("gridhaul-check", MemfdFlags::CLOEXEC)
}

fn sockets() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Turns a failed comparison into an error.
fn expect(is_right: bool) -> Result<(), Errno> {
    if is_right { Ok(()) } else { Err(Errno::IO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_supports_the_calls() {
        let support = support();
        assert!(support[0].is_good(), "{support:?}");
        assert!(support[1].is_good(), "{support:?}");
        assert!(support[2].text.starts_with("F_SETPIPE_SZ: "), "{support:?}");
    }
}
