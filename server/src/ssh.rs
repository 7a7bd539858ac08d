//! `gridhaul-server ssh`: one session on standard input and output, for a user of this machine.
//!
//! An `sshftp://` client starts this on the server's machine. sshd has authenticated the user and become that account, so
//! any name and password are accepted, and the kernel checks access to files. Data channels are not authenticated, as with
//! globus-gridftp-server `-ssh`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use gridhaul_protocol::path::RemotePath;
use nix::unistd::{Uid, User};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, ServeArguments};
use crate::sandbox::{self, LocalFiles};
use crate::serve::ServeError;
use crate::server::PreparedServer;
use crate::session::{LocalUser, Stream, home_directory};
use crate::telemetry::{Logging, OwnRights};

/// The addresses and ports of the client and of the server, from sshd.
const CONNECTION_VARIABLE: &str = "SSH_CONNECTION";

/// Serves until the client goes, or SIGTERM.
///
/// # Errors
///
/// When the session cannot begin.
pub fn serve(arguments: &ServeArguments) -> Result<(), ServeError> {
    let config = Config::load_for_ssh(arguments)?;
    let _logging = Logging::start(&config.log, &OwnRights)?;
    let user = local_user(&config);
    let (peer, local) = std::env::var(CONNECTION_VARIABLE)
        .ok()
        .and_then(|text| addresses(&text))
        .unwrap_or_else(|| (nowhere(), nowhere()));
    let server = PreparedServer::new(config)?;
    let process = sandbox::Process {
        config: arguments.config.clone(),
        local_files: LocalFiles::User,
        socket: None,
    };
    sandbox::Prepared::new(&server.config(), server.grants(), &process).enforce()?;
    run(server, user, (peer, local))
}

/// Serves one session at `peer` until it ends, or SIGTERM.
fn run(
    server: PreparedServer,
    user: LocalUser,
    (peer, local): (SocketAddr, SocketAddr),
) -> Result<(), ServeError> {
    /// The program does not wait longer for a thread that reads standard input or is stuck in a file system.
    const LAST_THREADS: Duration = Duration::from_millis(100);

    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let server = server.start()?;
        let stream = Stream::Pipes {
            input: Box::new(tokio::io::stdin()),
            output: Box::new(tokio::io::stdout()),
        };
        let session = server.session(user, peer, local).run(stream);
        let mut session = tokio::spawn(session);
        tokio::select! {
            _ = &mut session => {}
            _ = terminate.recv() => {
                server.shut_down(std::future::pending()).await;
            }
        }
        Ok(())
    });
    runtime.shutdown_timeout(LAST_THREADS);
    served
}

/// The account of this process. The session begins in its home directory, if that is below the root.
fn local_user(config: &Config) -> LocalUser {
    let uid = Uid::effective();
    let user = User::from_uid(uid).ok().flatten();
    let home = user
        .as_ref()
        .and_then(|user| user.dir.strip_prefix(&config.root).ok());
    LocalUser {
        home: home.map_or_else(RemotePath::root, home_directory),
        name: user.map_or_else(|| uid.to_string(), |user| user.name),
    }
}

/// Parses `SSH_CONNECTION`: two addresses with their ports.
fn addresses(text: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = text.split(' ');
    let mut address = || {
        // The interface follows a link-local address after a percent sign.
        let host = words.next()?.split('%').next()?;
        let host: IpAddr = host.parse().ok()?;
        Some(SocketAddr::new(host, words.next()?.parse().ok()?))
    };
    Some((address()?, address()?))
}

/// The address of a session that was started by hand: it has no network, and its data connections stay on this machine.
fn nowhere() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_those_that_sshd_says() {
        let (peer, local) = addresses("192.0.2.1 50000 198.51.100.7 22").expect("addresses");
        assert_eq!(peer, "192.0.2.1:50000".parse().expect("an address"));
        assert_eq!(local, "198.51.100.7:22".parse().expect("an address"));
        let (peer, _) = addresses("fe80::1%eth0 50000 fe80::2%eth0 22").expect("addresses");
        assert_eq!(peer, "[fe80::1]:50000".parse().expect("an address"));
        for text in ["", "UNKNOWN 65535 UNKNOWN 65535", "192.0.2.1 50000"] {
            assert_eq!(addresses(text), None, "{text}");
        }
    }
}
