//! A server that inetd or xinetd has started (`globus-gridftp-server -i`): standard input is the socket.
//!
//! It is a connection that inetd has accepted (`nowait`, and xinetd's `wait = no`): the server serves it with the same processes as
//! any other, and ends after it. Or it listens (`wait`): then the server is a daemon that accepts the connections itself, and
//! inetd waits until it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use socket2::SockRef;

use crate::config::ServeArguments;
use crate::serve::{ServeError, serve_in};
use crate::server::Mode;
use crate::service::{Environment, INETD, Passed};

/// Serves the socket at standard input until its client goes, or SIGTERM.
///
/// # Errors
///
/// When standard input is no TCP socket, or the server does not start.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<(), ServeError> {
    // Before this process opens anything.
    let mut environment = Environment::take()?;
    let (mode, socket) = take_socket()?;
    environment.passed.push(Passed {
        name: INETD.to_owned(),
        socket,
    });
    serve_in(environment, mode, arguments)
}

/// Leads standard output and error nowhere, as far as they are the TCP socket at standard input, so that no message of this
/// program becomes a reply.
///
/// # Errors
///
/// When the OS refuses it.
pub(crate) fn keep_messages_from_client() -> io::Result<()> {
    let input = io::stdin();
    if !is_tcp(&input) {
        return Ok(());
    }
    let socket = inode(&input)?;
    let null = File::options().write(true).open("/dev/null")?;
    if inode(io::stdout())? == socket {
        dup2_stdout(&null)?;
    }
    if inode(io::stderr())? == socket {
        dup2_stderr(&null)?;
    }
    Ok(())
}

/// Whether standard input is a socket that listens.
pub(crate) fn listens() -> bool {
    let input = io::stdin();
    is_tcp(&input) && SockRef::from(&input).is_listener().unwrap_or(false)
}

/// The socket at standard input, which leads nowhere afterwards.
fn take_socket() -> io::Result<(Mode, OwnedFd)> {
    let input = io::stdin();
    let mode = match listens() {
        true => Mode::Daemon,
        false => Mode::Accepted,
    };
    let is_connection = || SockRef::from(&input).peer_addr().is_ok();
    if !is_tcp(&input) || (mode == Mode::Accepted && !is_connection()) {
        return Err(io::Error::other(
            "standard input is no TCP connection and no TCP socket that listens: -i is for inetd and xinetd",
        ));
    }
    let socket = input.as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok((mode, socket))
}

fn is_tcp(descriptor: &impl AsFd) -> bool {
    let socket = SockRef::from(descriptor);
    let is_stream = || matches!(socket.r#type(), Ok(socket2::Type::STREAM));
    let local = socket.local_addr().ok();
    local.is_some_and(|local| local.as_socket().is_some()) && is_stream()
}

fn inode(descriptor: impl AsFd) -> io::Result<(u64, u64)> {
    let file = File::from(descriptor.as_fd().try_clone_to_owned()?);
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
