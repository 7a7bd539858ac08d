//! `gridhaul-server node --enroll`: gets a certificate for a token.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridhaul_security::certificate::{Certificate, CertificateError};
use gridhaul_security::credential::{CredentialError, credential_pem};
use gridhaul_security::files::{FileError, read_credential_with};
use gridhaul_security::key::{KeyError, PrivateKey};
use gridhaul_security::node_authority::{
    IdentityError, NodeIdentity, Role, Token, TokenError, request,
};
use gridhaul_security::tls::{PinnedConnector, PinnedFault, PinnedVerifier, TlsError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::messages::{Answer, PROTOCOL, Request, answer, receive, send};
use super::places::{PlaceError, Private};
use crate::config::{EnrolArguments, NodeAddress};
use crate::harmful::is_harmful;
use crate::status::utc;

/// The time for each step with the control server.
const TIME: Duration = Duration::from_secs(10);

/// Why a node has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The token cannot be read.
    #[error("the token cannot be read from {from}: {error}")]
    Read {
        /// Standard input, or a file.
        from: String,
        /// The underlying OS error.
        error: io::Error,
    },
    /// Others can read the token.
    #[error("the token in {} is for its owner alone: chmod 0600 {}", .0.display(), .0.display())]
    Permissions(PathBuf),
    /// It is none.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The identity cannot be written there.
    #[error("node-identity: {0}")]
    Place(#[from] PlaceError),
    /// There is another file.
    #[error("node-identity: {0}; it was not replaced")]
    Other(FileError),
    /// The node is enrolled already.
    #[error(
        "node-identity: {} has the certificate {subject}, until {until}: add --again to replace it",
        path.display()
    )]
    Enrolled {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
        /// Its end.
        until: String,
    },
    /// There is no connection.
    #[error(
        "{control} cannot be reached ({reason}): does `gridhaul-server nodes invite` run there, and is the port open?"
    )]
    Unreachable {
        /// As it was named.
        control: String,
        /// The reason.
        reason: String,
    },
    /// The peer is not the control server.
    #[error("{control} {fault}; the token was not sent")]
    NotTrusted {
        /// As it was named.
        control: String,
        /// What is wrong with it.
        fault: PinnedFault,
    },
    /// The peer has a certificate of the authority, and is no control server.
    #[error("{control} is no control server: {error}; the token was not sent")]
    NoControlServer {
        /// As it was named.
        control: String,
        /// What is wrong with it.
        error: Box<IdentityError>,
    },
    /// The control server refuses.
    #[error("{control} refuses: {reason}")]
    Refused {
        /// As it was named.
        control: String,
        /// Its reason.
        reason: String,
    },
    /// The answer cannot be used.
    #[error(
        "{control} has sent no certificate that can be used ({reason}): invite this node again"
    )]
    Answer {
        /// As it was named.
        control: String,
        /// The reason.
        reason: String,
    },
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No TLS on this machine.
    #[error("no TLS: {0}")]
    Tls(#[from] TlsError),
    /// The runtime.
    #[error("cannot enrol: {0}")]
    Runtime(#[from] io::Error),
}

/// Gets a certificate of `control` for a key that is made here, and writes both to `file`.
///
/// # Errors
///
/// When the token is refused, or the file cannot be written. The file is as before then.
pub(crate) fn enrol(
    control: &NodeAddress,
    arguments: &EnrolArguments,
    file: &Path,
) -> Result<(), EnrolError> {
    let token = token(arguments.token_file.as_deref())?;
    let (place, name) = Private::of_file(file)?;
    if place.has(&name)? {
        refuse_to_replace(&place, Path::new(&name), arguments.again)?;
    }
    // Before the token is used.
    let writing = place.begin(&name)?;
    let key = PrivateKey::generate_ec()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let enrolled = runtime.block_on(async {
        let mut stream = meet(control, &token).await?;
        let chain = ask(&mut stream, control, &token, &key).await?;
        let text = credential_pem(&key, &chain)?;
        writing.finish(&text, arguments.again)?;
        // It waits for that, and has issued the certificate in any case.
        let _ = timeout(TIME, async {
            stream.write_u8(1).await?;
            stream.shutdown().await
        })
        .await;
        Ok::<_, EnrolError>(chain)
    })?;
    let end = enrolled[0].validity().not_after;
    eprintln!(
        "gridhaul-server: enrolled as {} at {control}, until {}; key and certificate are in {}",
        token.host,
        utc(end),
        place.path_of(&name).display()
    );
    Ok(())
}

/// The token from a file or standard input; never an argument, which other accounts see.
fn token(file: Option<&Path>) -> Result<Token, EnrolError> {
    let from = file.map_or_else(
        || "standard input".to_owned(),
        |file| file.display().to_string(),
    );
    let unreadable = |error| EnrolError::Read {
        from: from.clone(),
        error,
    };
    let text = match file {
        Some(path) => {
            let file = File::open(path).map_err(unreadable)?;
            let mode = file.metadata().map_err(unreadable)?.mode();
            if mode & 0o077 != 0 {
                return Err(EnrolError::Permissions(path.to_owned()));
            }
            line(file).map_err(unreadable)?
        }
        None if io::stdin().is_terminal() => {
            Zeroizing::new(rpassword::prompt_password("Token: ").map_err(unreadable)?)
        }
        None => line(io::stdin().lock()).map_err(unreadable)?,
    };
    Ok(text.parse()?)
}

/// The first line, in a buffer that does not grow.
fn line(input: impl Read) -> io::Result<Zeroizing<String>> {
    const LONGEST: u64 = 1024;

    let mut text = Zeroizing::new(String::with_capacity(2048));
    input.take(LONGEST).read_to_string(&mut text)?;
    let end = text.find('\n').unwrap_or(text.len());
    text.truncate(end);
    Ok(text)
}

/// Only the identity of a node is replaced, and only if that was said.
fn refuse_to_replace(place: &Private, name: &Path, again: bool) -> Result<(), EnrolError> {
    let path = place.path_of(name);
    let read = read_credential_with(&path, &path, |_| place.read(name));
    let credential = read.map_err(EnrolError::Other)?;
    let is_identity = NodeIdentity::new(Role::Node, credential.chain()).is_ok();
    if again && is_identity {
        return Ok(());
    }
    let leaf = credential.leaf();
    if is_identity {
        return Err(EnrolError::Enrolled {
            path,
            subject: leaf.subject().to_string(),
            until: utc(leaf.validity().not_after),
        });
    }
    let reason = format!(
        "it has {}, which is no identity of a data node",
        leaf.subject()
    );
    Err(EnrolError::Other(FileError::Io {
        path,
        error: io::Error::other(reason),
    }))
}

/// A connection to the control server whose authority the token names.
async fn meet(control: &NodeAddress, token: &Token) -> Result<TlsStream<TcpStream>, EnrolError> {
    let stream = connect(control).await?;
    let connector = PinnedConnector::new(token.authority, PROTOCOL)?;
    let name = connector.server_name();
    let PinnedConnector { config, verifier } = connector;
    let handshake = TlsConnector::from(config).connect(name, stream);
    let shaken = timeout(TIME, handshake).await;
    let shaken = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let stream = shaken.map_err(|error| EnrolError::NotTrusted {
        control: control.to_string(),
        fault: fault(&error, &verifier),
    })?;
    if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
        return Err(EnrolError::NotTrusted {
            control: control.to_string(),
            fault: PinnedFault::Protocol("it has another protocol".to_owned()),
        });
    }
    let chain = verifier.chain().unwrap_or_default();
    let identity = NodeIdentity::new(Role::ControlServer, chain);
    identity.map_err(|error| EnrolError::NoControlServer {
        control: control.to_string(),
        error: Box::new(error),
    })?;
    Ok(stream)
}

fn fault(error: &io::Error, verifier: &PinnedVerifier) -> PinnedFault {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(tls) => verifier.fault(tls),
        None => PinnedFault::Protocol(error.to_string()),
    }
}

/// A connection to the first address that accepts one.
async fn connect(control: &NodeAddress) -> Result<TcpStream, EnrolError> {
    let unreachable = |reason: String| EnrolError::Unreachable {
        control: control.to_string(),
        reason,
    };
    // Without a thread, which the start of the node must not find: the look-up blocks, and nothing else runs.
    let place = (control.host.to_string(), control.port);
    let addresses = place.to_socket_addrs();
    let addresses: Vec<SocketAddr> = addresses
        .map_err(|error| unreachable(error.to_string()))?
        .collect();
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match timeout(TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = format!("{address}: {error}"),
            Err(_) => last = format!("{address}: no answer within {} s", TIME.as_secs()),
        }
    }
    Err(unreachable(last))
}

/// Sends the token, and returns the certificate, after it was examined as if any host had sent it.
async fn ask(
    stream: &mut TlsStream<TcpStream>,
    control: &NodeAddress,
    token: &Token,
    key: &PrivateKey,
) -> Result<Vec<Certificate>, EnrolError> {
    let wrong = |reason: String| EnrolError::Answer {
        control: control.to_string(),
        reason,
    };
    let request = request(key, &token.host)?;
    let asked = async {
        let secret = token.secret();
        let request = &request;
        send(stream, &Request { secret, request }).await?;
        answer::<Answer>(&receive(stream).await?)
    };
    let answered = timeout(TIME, asked).await;
    let answered = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let chain = match answered.map_err(|error| wrong(error.to_string()))? {
        Answer::Issued(chain) => chain,
        Answer::Refused(reason) => {
            return Err(EnrolError::Refused {
                control: control.to_string(),
                reason: reason.replace(is_harmful, "?"),
            });
        }
    };
    let chain: Result<Vec<_>, CertificateError> =
        chain.iter().map(|der| Certificate::from_der(der)).collect();
    let chain = chain.map_err(|error| wrong(error.to_string()))?;
    examine(&chain, token, key).map_err(wrong)?;
    Ok(chain)
}

/// Whether a chain is the identity of this node.
fn examine(chain: &[Certificate], token: &Token, key: &PrivateKey) -> Result<(), String> {
    let identity = NodeIdentity::new(Role::Node, chain).map_err(|error| error.to_string())?;
    let now = SystemTime::now();
    identity.verify(now).map_err(|error| error.to_string())?;
    if identity.authority().fingerprint() != token.authority {
        return Err("it is of another authority".to_owned());
    }
    if identity.certificate().public_key_info() != key.public_key_info() {
        let subject = identity.certificate().subject().to_string();
        return Err(CredentialError::KeyMismatch(subject).to_string());
    }
    match token.host.is_certified_by(chain) {
        true => Ok(()),
        false => Err("it is for another host".to_owned()),
    }
}
