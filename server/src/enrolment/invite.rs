//! `gridhaul-server nodes invite`: makes tokens, and issues certificates to the nodes that have them.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_sandbox::SandboxError;
use gridhaul_security::credential::Credential;
use gridhaul_security::files::{FileError, read_credential_with};
use gridhaul_security::node_authority::{
    AuthorityError, IdentityError, NodeAuthority, NodeIdentity, Role, Token,
};
use gridhaul_security::tls::{TlsError, pinned_server};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::AUTHORITY_FILE;
use super::invitations::Invitations;
use super::listener::{Listener, Outcome};
use super::messages::PROTOCOL;
use super::places::{PlaceError, Private};
use crate::config::{CONTROL_FILE, InviteArguments};
use crate::machine;
use crate::sandbox::confine_front;
use crate::server::{StartError, in_runtime, listen_and_tell};
use crate::status::utc;

/// Why nodes are not invited, or not all of them have enrolled.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// A node is named twice.
    #[error("{0} is named twice")]
    Twice(String),
    /// The time is zero or too long.
    #[error("--valid is at most a day, and not 0")]
    Valid,
    /// The authority cannot be kept there.
    #[error("the authority of nodes: {0}")]
    Place(#[from] PlaceError),
    /// A file of the authority cannot be used.
    #[error("the authority of nodes: {0}")]
    File(#[from] FileError),
    /// The authority issues nothing.
    #[error("the authority of nodes: {0}")]
    Authority(#[from] AuthorityError),
    /// The certificate of the control server cannot be used.
    #[error("{}: {error}; remove it, and invite again: another one is made", path.display())]
    Control {
        /// Its file.
        path: PathBuf,
        /// The reason.
        error: Box<IdentityError>,
    },
    /// The program cannot listen.
    #[error(transparent)]
    Listen(#[from] StartError),
    /// The certificate cannot be used for TLS.
    #[error("no TLS: {0}")]
    Tls(#[from] TlsError),
    /// The process cannot be confined.
    #[error("cannot confine this process: {0}")]
    Sandbox(#[from] SandboxError),
    /// The runtime, or standard output.
    #[error("cannot invite: {0}")]
    Io(#[from] io::Error),
    /// Not all tokens have enrolled their node.
    #[error("not enrolled: {}", .0.join(", "))]
    NotEnrolled(Vec<String>),
}

/// The authority, and what this machine shows to nodes.
struct Site {
    authority: NodeAuthority,
    control: Credential,
    is_new: bool,
}

/// Invites nodes, and waits until all have enrolled or the time is over.
///
/// # Errors
///
/// When a node has not enrolled, or nothing can be issued.
pub(crate) fn invite(arguments: &InviteArguments) -> Result<(), InviteError> {
    let valid = valid(arguments)?;
    for (place, node) in arguments.nodes.iter().enumerate() {
        if arguments.nodes[..place].contains(node) {
            return Err(InviteError::Twice(node.to_string()));
        }
    }
    let site = site(&arguments.node_authority, SystemTime::now())?;
    let fingerprint = site.authority.fingerprint();
    let tokens = arguments.nodes.iter();
    let tokens = tokens.map(|host| Token::new(host.clone(), fingerprint));
    let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
    let tls = pinned_server(
        site.control.chain(),
        site.control.key().signing_key(),
        PROTOCOL,
    )?;
    let listeners = arguments.addresses().into_iter().map(listen_and_tell);
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // It has the key of the authority, and any host may connect: it opens nothing any more, and makes no connection.
    confine_front()?;
    announce(arguments, &site, &tokens, &listeners)?;
    let invitations = Arc::new(Invitations::new(site.authority, tokens));
    runtime.block_on(run(listeners, &invitations, tls, valid))
}

fn valid(arguments: &InviteArguments) -> Result<Duration, InviteError> {
    const LONGEST: u64 = 24 * 3600;
    match arguments.valid.0 {
        seconds @ 1..=LONGEST => Ok(Duration::from_secs(seconds)),
        _ => Err(InviteError::Valid),
    }
}

/// Reads the authority and the certificate of the control server, or makes them.
fn site(directory: &Path, now: SystemTime) -> Result<Site, InviteError> {
    let place = Private::open(directory)?;
    let read = |name: &str| {
        let path = place.path_of(name);
        read_credential_with(&path, &path, |_| place.read(name))
    };
    let is_new = !place.has(AUTHORITY_FILE)?;
    let authority = match is_new {
        true => {
            let (authority, text) = NodeAuthority::create(now)?;
            place.begin(AUTHORITY_FILE)?.finish(&text, false)?;
            authority
        }
        false => NodeAuthority::from_credential(read(AUTHORITY_FILE)?)?,
    };
    if !place.has(CONTROL_FILE)? {
        let text = authority.control_server(now)?;
        place.begin(CONTROL_FILE)?.finish(&text, false)?;
    }
    let control = read(CONTROL_FILE)?;
    let wrong = |error| InviteError::Control {
        path: place.path_of(CONTROL_FILE),
        error: Box::new(error),
    };
    let identity = NodeIdentity::new(Role::ControlServer, control.chain()).map_err(wrong)?;
    identity.verify(now).map_err(wrong)?;
    if identity.authority() != authority.certificate() {
        return Err(wrong(IdentityError::NoAuthority));
    }
    Ok(Site {
        authority,
        control,
        is_new,
    })
}

/// Where it listens, what to do, and a line with a token for each node.
fn announce(
    arguments: &InviteArguments,
    site: &Site,
    tokens: &[Token],
    listeners: &[(TcpListener, SocketAddr)],
) -> io::Result<()> {
    let end = utc(SystemTime::now() + Duration::from_secs(arguments.valid.0));
    let directory = arguments.node_authority.display();
    let mut out = io::stdout().lock();
    for (_, address) in listeners {
        writeln!(out, "Inviting nodes at {address} until {end}")?;
    }
    if site.is_new {
        writeln!(out, "Made the authority of the nodes, in {directory}.")?;
    }
    writeln!(
        out,
        "The configuration of this server needs: node-authority = \"{directory}\"\n\
         On each node, as root, with its token on standard input:\n  \
         gridhaul-server node --config /etc/gridhaul/node.toml --enroll {}",
        machine::host_name()
    )?;
    for token in tokens {
        writeln!(out, "{} {}", token.host, *token.text())?;
    }
    out.flush()
}

async fn run(
    listeners: Vec<(TcpListener, SocketAddr)>,
    invitations: &Arc<Invitations>,
    tls: Arc<rustls::ServerConfig>,
    valid: Duration,
) -> Result<(), InviteError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (outcomes, mut told) = mpsc::unbounded_channel();
    let listener = Listener::new(Arc::clone(invitations), tls, outcomes);
    for (socket, _) in listeners {
        tokio::spawn(Arc::clone(&listener).accept(in_runtime(socket)?));
    }
    let mut over = std::pin::pin!(tokio::time::sleep(valid));
    let mut missing = Vec::new();
    let mut waiting = invitations.left().len();
    while waiting > 0 {
        tokio::select! {
            Some(outcome) = told.recv() => {
                waiting -= 1;
                missing.extend(tell(&outcome)?);
            }
            () = &mut over => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    missing.extend(invitations.left());
    match missing.is_empty() {
        true => Ok(()),
        false => Err(InviteError::NotEnrolled(missing)),
    }
}

/// Prints what has become of a token. Returns the node if it is not enrolled.
fn tell(outcome: &Outcome) -> io::Result<Option<String>> {
    let Outcome { host, peer, result } = outcome;
    let mut out = io::stdout().lock();
    match result {
        Ok(()) => writeln!(out, "{host} is enrolled, from {}", peer.ip())?,
        Err(reason) => writeln!(out, "{host} is not enrolled, from {}: {reason}", peer.ip())?,
    }
    out.flush()?;
    Ok(result.is_err().then(|| host.to_string()))
}
