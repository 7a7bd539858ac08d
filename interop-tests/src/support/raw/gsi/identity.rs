//! The identity of a client, and its handshakes on data connections.

use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::context::{Context, Step};
use gridhaul_security::files::{TrustDirectory, read_credential};
use gridhaul_security::tls::{TlsEngine, TlsSettings};

use super::encoding::read_record;
use crate::support::pki::{Pki, UserKind};

/// The credential of a raw client, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(super) settings: TlsSettings,
}

/// The end of a data connection; it decides which end starts the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The connecting end.
    Connector,
    /// The accepting end.
    Acceptor,
}

impl Identity {
    /// A user that servers accept.
    ///
    /// # Errors
    ///
    /// When the files cannot be read.
    pub fn user(pki: &Pki, user: UserKind) -> io::Result<Self> {
        Self::of(pki, &pki.user(user).credential)
    }

    /// The holder of this credential: certificates and key in one file.
    ///
    /// # Errors
    ///
    /// When the files cannot be read.
    pub fn of(pki: &Pki, credential: &Path) -> io::Result<Self> {
        let credential = read_credential(credential, credential).map_err(io::Error::other)?;
        let trust = TrustDirectory::open(&pki.trust()).map_err(io::Error::other)?;
        Ok(Self {
            settings: TlsSettings::new(Arc::new(credential), trust.current()),
        })
    }

    /// Authenticates on a data connection whose data then is clear text (`DCAU A`, `PROT C`).
    ///
    /// # Errors
    ///
    /// When the server's certificate is not accepted, or the server closes the connection.
    pub fn authenticate(&self, mut stream: TcpStream, end: End) -> io::Result<TcpStream> {
        let mut context = match end {
            End::Connector => Context::initiator(&self.settings, false),
            End::Acceptor => Context::data_acceptor(&self.settings),
        }
        .map_err(io::Error::other)?;
        let mut token = match end {
            End::Connector => Vec::new(),
            End::Acceptor => read_record(&mut stream)?,
        };
        loop {
            let mut alert = Vec::new();
            match context.step(&token, &mut alert) {
                Ok(Step::Continue(output)) => stream.write_all(&output)?,
                Ok(Step::Done(output)) => {
                    stream.write_all(&output)?;
                    return Ok(stream);
                }
                Err(error) => {
                    stream.write_all(&alert)?;
                    return Err(io::Error::other(error));
                }
            }
            token = read_record(&mut stream)?;
        }
    }

    /// Does the TLS handshake on a data connection that it has connected (`PROT P`). The engine encrypts
    /// further data.
    ///
    /// # Errors
    ///
    /// When the server's certificate is not accepted, or the server closes the connection.
    pub fn connect_privately(&self, stream: &mut TcpStream) -> io::Result<TlsEngine> {
        let mut engine = TlsEngine::connector(&self.settings).map_err(io::Error::other)?;
        let (mut record, mut output, mut plaintext) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            engine
                .advance(&record, &mut output, &mut plaintext)
                .map_err(io::Error::other)?;
            stream.write_all(&output)?;
            output.clear();
            if !engine.is_handshaking() {
                return Ok(engine);
            }
            record = read_record(stream)?;
        }
    }
}
