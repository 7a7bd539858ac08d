//! A control channel: commands, replies, and their protection.

mod connect;
mod dialogue;
mod error;
mod ssh;
mod stream;
mod tls;

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Base64, Command};
use gridhaul_protocol::line::encode_command_line;
use gridhaul_protocol::reply::{Reply, ReplyDecoder};
use gridhaul_security::context::Context;
use gridhaul_security::trust::Peer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

pub use connect::AddressFamily;
pub use dialogue::{DialogueObserver, Spoken};
pub use error::ControlError;
pub use ssh::SshSettings;
pub(crate) use ssh::is_user;

use self::stream::Stream;
use crate::location::Server;

/// The bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;

/// The reply of a server that ends the session, to any command or to none (RFC 959 4.2.1).
const ENDS: u16 = 421;

/// The most preliminary replies to a command that is no transfer. One a second for an hour would be fewer.
const MAX_PRELIMINARY: usize = 4096;

/// A control channel.
pub struct Control {
    stream: Stream,
    peer: SocketAddr,
    local: SocketAddr,
    decoder: ReplyDecoder,
    /// Bytes that were read and are not decoded.
    input: Vec<u8>,
    /// Commands that were not sent.
    output: Vec<u8>,
    /// The first reply.
    greeting: Reply,
    /// Who the server is, where its certificate says it.
    server: Option<Peer>,
    /// Protects commands and replies (RFC 2228).
    context: Option<Box<Context>>,
    /// The longest wait for the last reply to a command.
    patience: Duration,
    /// Last replies that the server owes.
    awaited: usize,
    /// Replies have come that answer no command.
    is_out_of_step: bool,
    /// Sees the dialogue with the server of this name.
    observer: Option<(Server, DialogueObserver)>,
    /// The shortest time that a reply has taken.
    round_trip: Option<Duration>,
}

impl Control {
    /// Connects, and reads the greeting.
    ///
    /// # Errors
    ///
    /// When no address answers, or the server does not welcome clients.
    pub async fn open(
        server: &Server,
        family: AddressFamily,
        patience: Duration,
    ) -> Result<Self, ControlError> {
        let stream = connect::connect(server, family, patience).await?;
        let ends = stream.peer_addr().and_then(|peer| {
            let local = stream.local_addr()?;
            Ok((peer, local))
        });
        let ends = ends.map_err(ControlError::Connection)?;
        Self::welcomed(Stream::Tcp(stream), ends, patience, patience).await
    }

    /// Starts the server through ssh, and reads the greeting. Data connections go to an address of the host.
    ///
    /// # Errors
    ///
    /// When the host cannot be looked up, ssh fails, or the server does not welcome clients.
    pub(crate) async fn open_over_ssh(
        server: &Server,
        ssh: &SshSettings,
        family: AddressFamily,
        patience: Duration,
    ) -> Result<Self, ControlError> {
        /// The user types a password, for which sshd waits so long by default.
        const TYPING: Duration = Duration::from_secs(120);

        let addresses = connect::look_up(server, family, patience).await?;
        let failed = |error| ControlError::Ssh {
            program: ssh.program.clone(),
            error,
        };
        let ends = ssh::ends(&addresses).map_err(ControlError::Connection)?;
        let (stream, process) = ssh.start(server, ends.0.ip()).map_err(failed)?;
        let stream = Stream::Ssh {
            stream,
            _process: process,
        };
        let within = match ssh.may_ask {
            true => patience.max(TYPING),
            false => patience,
        };
        let opened = Self::welcomed(stream, ends, patience, within).await;
        opened.map_err(|error| match error {
            ControlError::Closed | ControlError::Connection(_) => ControlError::SshEnded,
            error => error,
        })
    }

    async fn welcomed(
        stream: Stream,
        (peer, local): (SocketAddr, SocketAddr),
        patience: Duration,
        within: Duration,
    ) -> Result<Self, ControlError> {
        let mut control = Self {
            stream,
            peer,
            local,
            decoder: ReplyDecoder::new(),
            input: Vec::new(),
            output: Vec::new(),
            greeting: Reply::new(220, ""),
            server: None,
            context: None,
            patience,
            // The greeting.
            awaited: 1,
            is_out_of_step: false,
            observer: None,
            round_trip: None,
        };
        let greeting = control.final_reply("the greeting", within).await?;
        control.greeting = accepted("the connection", greeting)?;
        Ok(control)
    }

    /// The address of the server.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this machine that the server sees.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The text of the greeting.
    pub fn greeting(&self) -> String {
        self.greeting.text().trim().to_owned()
    }

    /// Who the server is, where its certificate says it.
    pub fn server(&self) -> Option<&Peer> {
        self.server.as_ref()
    }

    /// Sends a command, and returns its last reply, which is no error.
    ///
    /// # Errors
    ///
    /// [`ControlError::Refused`] when the server refuses; others end the session.
    pub async fn must(&mut self, command: &Command) -> Result<Reply, ControlError> {
        accepted(command.verb(), self.ask(command).await?)
    }

    /// Sends a command, and returns its last reply, which may be an error.
    ///
    /// # Errors
    ///
    /// Those that end the session, also by the server (421).
    pub async fn ask(&mut self, command: &Command) -> Result<Reply, ControlError> {
        self.ask_within(command, self.patience).await
    }

    /// As [`Self::ask`], for a command whose last reply may take so long.
    ///
    /// # Errors
    ///
    /// Those that end the session.
    pub(crate) async fn ask_within(
        &mut self,
        command: &Command,
        limit: Duration,
    ) -> Result<Reply, ControlError> {
        let sent = Instant::now();
        self.send(command).await?;
        let verb = command.verb();
        let reply = self.final_reply(verb, limit).await?;
        let took = sent.elapsed();
        let shortest = self.round_trip.map_or(took, |known| known.min(took));
        self.round_trip = Some(shortest);
        match reply.code() {
            ENDS => Err(ControlError::Refused { verb, reply }),
            _ => Ok(reply),
        }
    }

    /// Sends a command; its replies must be read later.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    pub async fn send(&mut self, command: &Command) -> Result<(), ControlError> {
        self.prepare(command)?;
        self.send_prepared(command.verb()).await
    }

    /// Adds a command to those that [`Self::send_prepared`] sends at once; returns its bytes.
    pub(crate) fn prepare(&mut self, command: &Command) -> Result<usize, ControlError> {
        self.tell(Spoken::Command(command));
        let line = encode_command_line(&command.encode());
        let line = match &mut self.context {
            None => line,
            Some(context) => {
                let token = Base64::new(Base64::encode(&context.wrap(&line)?));
                let token = token.ok_or(ControlError::Unsendable("a command of this length"))?;
                encode_command_line(&Command::Enc(token).encode())
            }
        };
        self.awaited += 1;
        self.output.extend(&line);
        Ok(line.len())
    }

    /// Sends the commands that were prepared; `verb` is that of the last one.
    pub(crate) async fn send_prepared(&mut self, verb: &'static str) -> Result<(), ControlError> {
        let output = std::mem::take(&mut self.output);
        let sent = async {
            self.stream.write_all(&output).await?;
            self.stream.flush().await
        };
        let sent = timeout(self.patience, sent).await;
        let silent = ControlError::Silent {
            verb,
            within: self.patience,
        };
        sent.map_err(|_| silent)?.map_err(ControlError::Connection)
    }

    /// The next reply, however long it takes. Can be given up and called again.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    pub async fn next_reply(&mut self) -> Result<Reply, ControlError> {
        loop {
            let mut unread = self.input.as_slice();
            let reply = self.decoder.decode(&mut unread);
            let consumed = self.input.len() - unread.len();
            self.input.drain(..consumed);
            if let Some(reply) = reply {
                let reply = self.revealed(reply?)?;
                self.tell(Spoken::Reply(&reply));
                if !reply.is_preliminary() {
                    self.awaited = self.awaited.saturating_sub(1);
                }
                self.is_out_of_step |= reply.code() == ENDS;
                return Ok(reply);
            }
            // An array here would be a part of each future that waits for a reply.
            self.input.reserve(READ_BYTES);
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(ControlError::Connection)? == 0 {
                return Err(ControlError::Closed);
            }
        }
    }

    /// The shortest time that the reply to a command has taken until now: about a round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The longest wait for the last reply to a command.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether every command has its last reply. Otherwise a later reply would be taken for that of another command.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaited == 0 && !self.is_out_of_step
    }

    /// Whether bytes of the server wait that no command has asked for, when every command has its reply.
    pub(crate) fn has_unread(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether the session has ended, as far as that is known without a wait: the server has closed the connection, or said something
    /// that no command has asked for, such as 421 after some minutes.
    pub(crate) async fn has_ended(&mut self) -> bool {
        if !self.is_idle() || self.has_unread() {
            return true;
        }
        self.input.reserve(READ_BYTES);
        let mut read = pin!(self.stream.read_buf(&mut self.input));
        poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await
    }

    /// Replies have come that answer no command: none of the further ones can be trusted.
    pub(crate) fn note_out_of_step(&mut self) {
        self.is_out_of_step = true;
    }

    /// Ends the session from this end: the server carries out nothing more once it has seen that, and closes its data connections.
    /// Replies can be read until it has closed the connection.
    pub(crate) async fn hang_up(&mut self) {
        self.is_out_of_step = true;
        // A connection that is broken has ended as well.
        let _ = timeout(self.patience, self.stream.shutdown()).await;
    }

    /// Protects all further commands. Bytes that have come before count for nothing, because another host may have sent them.
    pub(crate) fn protect(&mut self, context: Context) -> Result<(), ControlError> {
        if !self.input.is_empty() {
            return Err(ControlError::Injected);
        }
        self.server = context.peer().cloned();
        self.context = Some(Box::new(context));
        Ok(())
    }

    /// The last reply. The limit is for all replies together, so that preliminary ones do not prolong it.
    async fn final_reply(
        &mut self,
        verb: &'static str,
        limit: Duration,
    ) -> Result<Reply, ControlError> {
        let last = async {
            for _ in 0..=MAX_PRELIMINARY {
                let reply = self.next_reply().await?;
                if !reply.is_preliminary() {
                    return Ok(reply);
                }
            }
            Err(ControlError::Flood {
                verb,
                limit: MAX_PRELIMINARY,
            })
        };
        let within = limit;
        let silent = Err(ControlError::Silent { verb, within });
        timeout(limit, last).await.unwrap_or(silent)
    }

    /// The reply in a protected one. Each line has a token (RFC 2228 3, 63yz).
    fn revealed(&mut self, reply: Reply) -> Result<Reply, ControlError> {
        let Some(context) = &mut self.context else {
            return Ok(reply);
        };
        if !(631..=633).contains(&reply.code()) {
            // Another host may have sent it. A server that ends the session does so in the clear, too.
            return Err(ControlError::Clear(reply));
        }
        let mut text = Vec::new();
        for line in reply.lines() {
            let line = String::from_utf8_lossy(line).into_owned();
            let token = Base64::new(line).and_then(|token| token.decode());
            let token = token.ok_or(ControlError::Unreadable)?;
            text.extend(context.unwrap(&token)?);
        }
        let mut text = text.as_slice();
        match ReplyDecoder::new().decode(&mut text) {
            Some(reply) if text.is_empty() => Ok(reply?),
            _ => Err(ControlError::Unreadable),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("peer", &self.peer)
            .field("is_protected", &self.context.is_some())
            .finish_non_exhaustive()
    }
}

/// The reply, if it is no error.
pub(crate) fn accepted(verb: &'static str, reply: Reply) -> Result<Reply, ControlError> {
    match reply.is_completion() || reply.is_intermediate() || reply.is_preliminary() {
        true => Ok(reply),
        false => Err(ControlError::Refused { verb, reply }),
    }
}
