//! One session on a connection that inetd or xinetd has accepted (`globus-gridftp-server -i`): standard input is the socket.
//!
//! There is one process, as with [`crate::ssh`], and it has one account. It cannot act for the accounts of a grid-mapfile, so
//! it refuses to serve users with certificates as root; a server that listens itself does that.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use socket2::Socket;

use crate::config::{Config, ServeArguments};
use crate::one_session;
use crate::privileges;
use crate::sandbox::{self, LocalFiles};
use crate::serve::ServeError;
use crate::server::{PassedPlaces, PreparedServer};
use crate::start_logs::StartRights;
use crate::telemetry::Logging;
use crate::validate::Validated;

/// Serves until the client goes, or SIGTERM. From the call on nothing but replies reaches the client.
///
/// # Errors
///
/// When standard input is no connection, or the session cannot begin.
pub fn serve(arguments: &ServeArguments) -> Result<(), ServeError> {
    let connection = take_connection()?;
    let (config, _) = Validated::for_start(arguments, &PassedPlaces::default()).checked()?;
    if privileges::is_root() && config.security.gsi.is_some() {
        let reason = "inetd has started the server as root, and users with certificates have accounts that only a server that \
                      listens itself can use: start it without -i, or let inetd start it with another account";
        return Err(io::Error::other(reason).into());
    }
    let config = Config {
        listen: Vec::new(),
        metrics_listen: None,
        ..config
    };
    let _logging = Logging::start(&config.log, &StartRights { user: &config.user })?;
    let server = PreparedServer::new(config)?;
    let config = server.config();
    let process = sandbox::Process {
        config: arguments.config.clone(),
        local_files: LocalFiles::OwnAccount,
        socket: None,
    };
    let prepared = sandbox::Prepared::new(&config, server.grants(), &process);
    privileges::drop_root(&config.user)?;
    prepared.enforce()?;
    one_session::serve(server, |server| {
        connection.set_nonblocking(true)?;
        let connection = tokio::net::TcpStream::from_std(connection)?;
        Ok(server.welcome(connection))
    })
}

/// The connection at standard input. Standard input and output, and standard error if it is the connection too, lead nowhere
/// afterwards, so that no message becomes a reply.
fn take_connection() -> io::Result<TcpStream> {
    let socket = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    let peer = socket.peer_addr().ok();
    if peer.and_then(|peer| peer.as_socket()).is_none() {
        return Err(io::Error::other(
            "standard input is no TCP connection: -i is for inetd and xinetd",
        ));
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    if inode(io::stderr())? == inode(&socket)? {
        dup2_stderr(&null)?;
    }
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(socket.into())
}

fn inode(descriptor: impl AsFd) -> io::Result<(u64, u64)> {
    let file = File::from(descriptor.as_fd().try_clone_to_owned()?);
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
