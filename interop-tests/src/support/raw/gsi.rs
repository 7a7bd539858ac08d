//! A GSI client that sends tokens one by one, unchanged or modified by a test.
//!
//! `gridhaul-security` makes the tokens. The clients of the table show that it implements the protocol
//! correctly; tests with this client check how a server handles tokens that are late, truncated,
//! repeated, or never sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridhaul_security::context::{Context, Step};
use gridhaul_security::files::{TrustDirectory, read_credential};
use gridhaul_security::tls::{RECORD_HEADER, TlsEngine, TlsSettings, record_length};

use super::control::{Control, comma_form, expect, passive_address};
use super::data::{DataListener, connect_data};
use super::reply::{Dialogue, Reply, malformed};
use crate::support::pki::{Pki, UserKind};

/// The credential of a raw client, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct Identity {
    settings: TlsSettings,
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

/// `AUTH GSSAPI` and the `ADAT` tokens that follow, one at a time.
pub struct Exchange {
    control: Control,
    context: Context,
    token: Vec<u8>,
    identity: Identity,
}

impl Exchange {
    /// Sends `AUTH GSSAPI` on a control channel after the greeting, and makes the first token. The client
    /// will delegate.
    ///
    /// # Errors
    ///
    /// When the server refuses the mechanism.
    pub fn begin(control: Control, identity: &Identity) -> io::Result<Self> {
        Self::offer(control, identity, true)
    }

    /// As [`Exchange::begin`], but the client will not delegate.
    ///
    /// # Errors
    ///
    /// As [`Exchange::begin`].
    pub fn begin_without_delegation(control: Control, identity: &Identity) -> io::Result<Self> {
        Self::offer(control, identity, false)
    }

    fn offer(mut control: Control, identity: &Identity, delegate: bool) -> io::Result<Self> {
        control.must("AUTH GSSAPI", 334)?;
        let mut exchange = Self {
            control,
            context: Context::initiator(&identity.settings, delegate).map_err(io::Error::other)?,
            token: Vec::new(),
            identity: identity.clone(),
        };
        exchange.take(&[])?;
        Ok(exchange)
    }

    /// The next token.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// The control channel.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sends the next token and processes the token in the reply, if it has one.
    ///
    /// # Errors
    ///
    /// When the server's token is not accepted.
    pub fn step(&mut self) -> io::Result<Reply> {
        let token = std::mem::take(&mut self.token);
        let reply = self.send(&token)?;
        if let Some(answer) = reply.tail().strip_prefix("ADAT=") {
            self.take(&decode(answer)?)?;
        }
        Ok(reply)
    }

    /// Sends a token and reads the reply.
    ///
    /// # Errors
    ///
    /// As [`Control::command`].
    pub fn send(&mut self, token: &[u8]) -> io::Result<Reply> {
        let line = format!("ADAT {}", base64(token));
        self.control.command(&line)
    }

    fn take(&mut self, token: &[u8]) -> io::Result<()> {
        self.token = match self.context.step(token, &mut Vec::new()) {
            Ok(Step::Continue(output) | Step::Done(output)) => output,
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(())
    }

    /// Continues until the server has accepted or refused.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn finish(mut self) -> io::Result<GsiControl> {
        loop {
            let reply = self.step()?;
            if reply.code != 335 {
                expect(&reply, 235)?;
                return Ok(GsiControl {
                    control: self.control,
                    context: self.context,
                    identity: self.identity,
                });
            }
        }
    }

    /// Continues until the server's reply is not `335`, and returns it.
    ///
    /// # Errors
    ///
    /// When the server's token is not accepted.
    pub fn verdict(&mut self) -> io::Result<Reply> {
        loop {
            let reply = self.step()?;
            if reply.code != 335 {
                return Ok(reply);
            }
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

/// A control channel whose commands and replies are protected.
#[derive(Debug)]
pub struct GsiControl {
    control: Control,
    context: Context,
    identity: Identity,
}

impl GsiControl {
    /// Connects, authenticates, delegates and logs in, with `TYPE I`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn logged_in(server: SocketAddr, identity: &Identity) -> io::Result<Self> {
        let control = Control::greeted(server)?;
        let mut session = Exchange::begin(control, identity)?.finish()?;
        session.log_in()?;
        Ok(session)
    }

    /// Logs in with the account of the grid-mapfile, as clients do, and sends `TYPE I`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn log_in(&mut self) -> io::Result<()> {
        self.must("USER :globus-mapping:", 331)?;
        self.must("PASS", 230)?;
        self.must("TYPE I", 200).map(drop)
    }

    /// The channel beneath, for unprotected commands.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Makes the token that protects a line; CRLF is added. Tokens must be sent in the order in which they were made.
    ///
    /// # Errors
    ///
    /// When the context is lost.
    pub fn seal(&mut self, line: &str) -> io::Result<Vec<u8>> {
        let line = format!("{line}\r\n");
        self.context.wrap(line.as_bytes()).map_err(io::Error::other)
    }

    /// Sends a token with `ENC`.
    ///
    /// # Errors
    ///
    /// When the server does not accept it in time.
    pub fn send_token(&mut self, token: &[u8]) -> io::Result<()> {
        let line = format!("ENC {}", base64(token));
        self.control.send_line(&line)
    }

    /// Sends a command line in a token of its own.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::send_token`].
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        let token = self.seal(line)?;
        self.send_token(&token)
    }

    /// Reads the next reply. An unprotected reply is an error, and so is one out of order.
    ///
    /// # Errors
    ///
    /// As [`Control::reply`].
    pub fn reply(&mut self) -> io::Result<Reply> {
        self.reply_by(Instant::now() + self.control.timeout())
    }

    fn reply_by(&mut self, deadline: Instant) -> io::Result<Reply> {
        let outer = self.control.reply_by(deadline)?;
        expect(&outer, 632)?;
        let mut bytes = Vec::new();
        for line in &outer.lines {
            let token = decode(line.get(4..).unwrap_or_default())?;
            bytes.extend(self.context.unwrap(&token).map_err(io::Error::other)?);
        }
        let reply = Reply::take(&mut bytes)?.filter(|_| bytes.is_empty());
        reply.ok_or_else(|| malformed("not one reply in", outer.text().as_bytes()))
    }

    /// Reads replies up to the first that is not a 1xx. The timeout is for all of them together.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::reply`].
    pub fn dialogue(&mut self) -> io::Result<Dialogue> {
        Dialogue::within(self.control.timeout(), |deadline| self.reply_by(deadline))
    }

    /// Sends a command line and reads one reply, which may be a 1xx.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::send_line`] and [`GsiControl::reply`].
    pub fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.send_line(line)?;
        self.reply()
    }

    /// Sends a command line and expects a reply of this code.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::command`]; and when the reply has another code, with its text.
    pub fn must(&mut self, line: &str, code: u16) -> io::Result<Reply> {
        let reply = self.command(line)?;
        expect(&reply, code).map_err(|error| io::Error::other(format!("{line}: {error}")))?;
        Ok(reply)
    }

    /// Sends `PASV` and returns the server's data address.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn passive(&mut self) -> io::Result<SocketAddr> {
        let reply = self.must("PASV", 227)?;
        passive_address(&reply)
    }

    /// Listens, and sends the address with `PORT`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn active(&mut self) -> io::Result<DataListener> {
        let listener = DataListener::open(Ipv4Addr::LOCALHOST)?;
        let address = comma_form(listener.address());
        self.must(&format!("PORT {address}"), 200)?;
        Ok(listener)
    }

    /// Fetches a file with `PASV`, `RETR`, `DCAU A` and `PROT C`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let address = self.passive()?;
        self.send_line(&format!("RETR {path}"))?;
        let stream = connect_data(address)?;
        let mut bytes = Vec::new();
        let received = self
            .identity
            .authenticate(stream, End::Connector)
            .and_then(|mut channel| channel.read_to_end(&mut bytes));
        expect(&self.dialogue()?.last, 226)?;
        received?;
        Ok(bytes)
    }
}

/// Reads one TLS record, and no byte beyond it.
pub(super) fn read_record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut record = vec![0; RECORD_HEADER];
    stream.read_exact(&mut record)?;
    let length = record_length(&record).unwrap_or(RECORD_HEADER);
    record.resize(length, 0);
    stream.read_exact(&mut record[RECORD_HEADER..])?;
    Ok(record)
}

/// Bytes in the encoding of `ADAT`, `ENC` and `DCSC`.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(text: &str) -> io::Result<Vec<u8>> {
    STANDARD
        .decode(text)
        .map_err(|_| malformed("not base64", text.as_bytes()))
}
