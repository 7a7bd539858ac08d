//! The control channel: command lines in, replies out.
//!
//! It holds no buffer between two commands, because most of many sessions are idle.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::line::{LineDecoder, encode_command_line};
use gridhaul_protocol::reply::Reply;
use gridhaul_security::context::MessageProtection;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use zeroize::Zeroizing;

use super::request::{Fault, Request};
use super::stream::Stream;
use super::tokens;
use crate::admission::{Network, Workers};

/// How many commands may wait while another one is carried out. Then reading stops.
const MOST_WAITING: usize = 64;
/// How many bytes all waiting commands may have together, roughly.
const MOST_WAITING_BYTES: usize = 256 * 1024;
/// How many bytes are read during a transfer when no further command may wait.
const MOST_UNDECODED: usize = 16 * 1024;
/// The size of one read.
const READ_BYTES: usize = 8 * 1024;
/// The connection ends if the client does not read its replies for this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection on which commands and replies travel.
#[derive(Debug)]
pub(crate) struct Control {
    stream: Stream,
    /// Protects commands and replies after a GSI login.
    context: Option<Box<MessageProtection>>,
    decoder: LineDecoder,
    /// Bytes that were read. Passwords are among them.
    unread: Zeroizing<Vec<u8>>,
    /// How many of them were decoded. The others are decoded when fewer commands wait.
    looked_at: usize,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    output: Vec<u8>,
    ended: bool,
    abort_waits: bool,
    /// A command is decoded only after the one before it was carried out.
    is_one_by_one: bool,
}

/// What another process needs to continue with the channel.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) stream: Stream,
    pub(crate) context: Option<Box<MessageProtection>>,
    /// What the client sent and was not carried out.
    pub(crate) input: Vec<u8>,
}

impl Control {
    pub(crate) fn new(stream: impl Into<Stream>) -> Self {
        Self {
            stream: stream.into(),
            context: None,
            decoder: LineDecoder::for_commands(),
            unread: Zeroizing::default(),
            looked_at: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            output: Vec::new(),
            ended: false,
            abort_waits: false,
            is_one_by_one: false,
        }
    }

    /// A connection that may continue in another process: input after a command is not decoded before that was carried
    /// out.
    pub(crate) fn one_by_one(stream: impl Into<Stream>) -> Self {
        Self {
            is_one_by_one: true,
            ..Self::new(stream)
        }
    }

    /// Puts `input` before the bytes of the connection.
    #[must_use]
    pub(crate) fn with_input(mut self, input: Vec<u8>) -> Self {
        self.unread = Zeroizing::new(input);
        self
    }

    /// A channel without a connection.
    pub(crate) fn lost() -> Self {
        Self::new(Stream::Lost(tokio::io::empty()))
    }

    /// Takes the channel apart for another process. All replies must have been sent. With a security context no command
    /// may wait, because the other process could not open its token a second time.
    pub(crate) fn into_parts(self) -> Parts {
        /// Replaces a line that could not be decoded: it contains a NUL, so the other process refuses it as well.
        const NO_LINE: &[u8] = b"\0\r\n";
        /// Replaces a line that is not a command.
        const NO_COMMAND: &[u8] = b"?\r\n";

        let lines = self.waiting.iter().map(|request| match &request.content {
            Ok(command) => encode_command_line(&command.encode()),
            Err(Fault::Line(_)) => NO_LINE.to_vec(),
            Err(_) => NO_COMMAND.to_vec(),
        });
        let mut input: Vec<u8> = lines.flatten().collect();
        input.extend(self.decoder.into_begun());
        input.extend(&self.unread[self.looked_at..]);
        Parts {
            stream: self.stream,
            context: self.context,
            input,
        }
    }

    /// Whether the client has closed its side, and all its commands were taken.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended && self.waiting.is_empty()
    }

    /// Whether the client has closed its side, even if commands still wait.
    pub(crate) fn is_closed_by_client(&self) -> bool {
        self.ended
    }

    /// Whether there is room for another command.
    pub(crate) fn has_room(&self) -> bool {
        !self.ended && self.waiting.len() < MOST_WAITING && self.waiting_bytes < MOST_WAITING_BYTES
    }

    /// Whether [`Self::receive_ahead`] may be called.
    pub(crate) fn may_read_ahead(&self) -> bool {
        let undecoded = self.unread.len() - self.looked_at;
        self.has_room() || !self.ended && undecoded < MOST_UNDECODED
    }

    /// Whether an `ABOR` waits.
    pub(crate) fn abort_waits(&self) -> bool {
        self.abort_waits
    }

    /// The next command, unless the next line is not a command.
    pub(crate) fn next(&self) -> Option<&Command> {
        self.waiting
            .front()
            .and_then(|request| request.content.as_ref().ok())
    }

    /// The commands that wait, up to the first line that is not a command.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Command> {
        self.waiting
            .iter()
            .map_while(|request| request.content.as_ref().ok())
    }

    /// Takes the oldest line that waits.
    pub(crate) fn take(&mut self) -> Option<Request> {
        let request = self.waiting.pop_front()?;
        self.waiting_bytes -= request.bytes;
        if request.is_abort() {
            self.abort_waits = self.waiting.iter().any(Request::is_abort);
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
            if !self.is_one_by_one {
                self.decode();
            }
        }
        Some(request)
    }

    /// Waits until the client sends something or closes, and decodes it. The future is cancel safe.
    pub(crate) async fn receive(&mut self) -> io::Result<()> {
        if self.look_on() {
            return Ok(());
        }
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// As [`Self::receive`], during a transfer. Without room for another command it reads on, so that the end of the connection is
    /// noticed.
    pub(crate) async fn receive_ahead(&mut self) -> io::Result<()> {
        if self.has_room() {
            return self.receive().await;
        }
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// The buffer is on the stack, so that idle sessions are small.
    fn poll_receive(&mut self, context: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
            Ok(()) => {}
            // A TLS client closed without close_notify. An incomplete line is ignored anyway.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        self.ended |= buffer.filled().is_empty();
        self.unread.extend_from_slice(buffer.filled());
        self.decode();
        Poll::Ready(Ok(()))
    }

    /// Decodes input that was read earlier and had to wait; false if there was none.
    pub(crate) fn look_on(&mut self) -> bool {
        let waits = !self.has_looked_at_all();
        self.decode();
        waits
    }

    fn has_looked_at_all(&self) -> bool {
        self.looked_at == self.unread.len()
    }

    fn decode(&mut self) {
        let most = if self.is_one_by_one { 1 } else { MOST_WAITING };
        while self.waiting.len() < most
            && self.waiting_bytes < MOST_WAITING_BYTES
            && !self.has_looked_at_all()
        {
            let mut input = &self.unread[self.looked_at..];
            let line = self.decoder.decode(&mut input);
            self.looked_at = self.unread.len() - input.len();
            let Some(line) = line else {
                break;
            };
            let bytes = line.as_ref().map_or(0, Vec::len);
            let content = match line {
                Ok(line) => Command::parse(&Zeroizing::new(line)).map_err(Fault::from),
                Err(error) => Err(error.into()),
            };
            let request = Request {
                content: self.opened(content),
                aborted: false,
                bytes,
            };
            if request.is_abort() {
                self.abort_waits = true;
                for earlier in &mut self.waiting {
                    earlier.aborted = true;
                }
            }
            self.waiting_bytes += bytes;
            self.waiting.push_back(request);
        }
        // No buffer between two commands.
        if self.has_looked_at_all() {
            self.unread = Zeroizing::default();
            self.looked_at = 0;
        }
    }

    /// Removes the protection of a command, if the session has a security context.
    fn opened(&mut self, content: Result<Command, Fault>) -> Result<Command, Fault> {
        match &mut self.context {
            Some(context) => tokens::open(context, content?),
            None => content,
        }
    }

    /// Protects commands and replies from now on, including commands that wait already.
    pub(crate) fn protect(&mut self, context: MessageProtection) {
        self.context = Some(Box::new(context));
        for mut request in std::mem::take(&mut self.waiting) {
            request.content = self.opened(request.content);
            request.aborted = false;
            self.waiting.push_back(request);
        }
        self.abort_waits = self.waiting.iter().any(Request::is_abort);
    }

    /// Whether the stream can carry TLS, and the client has sent no bytes that may belong to the TLS stream.
    pub(crate) fn takes_tls(&self) -> bool {
        self.stream.takes_tls()
            && self.waiting.is_empty()
            && self.has_looked_at_all()
            && !self.decoder.is_inside_line()
    }

    /// Waits for the client's TLS handshake. Returns the version and the cipher, for the log.
    pub(crate) async fn accept_tls(
        &mut self,
        config: &ServerConfig,
        workers: &Workers,
        network: Network,
    ) -> io::Result<String> {
        self.stream.accept_tls(config, workers, network).await?;
        Ok(self.stream.tls_description().unwrap_or_default())
    }

    /// Appends a reply to the output.
    pub(crate) fn reply(&mut self, reply: &Reply) {
        self.raw(&reply.encode());
    }

    /// Appends a reply in clear, because the security context is lost.
    pub(crate) fn reply_in_clear(&mut self, reply: &Reply) {
        self.output.extend_from_slice(&reply.encode());
    }

    /// Appends whole lines of a reply that is sent piece by piece.
    pub(crate) fn raw(&mut self, lines: &[u8]) {
        let sealed = match &mut self.context {
            Some(context) => tokens::seal(context, lines, &mut self.output),
            None => {
                self.output.extend_from_slice(lines);
                Ok(())
            }
        };
        // Without the context no reply can be sent that the client would accept.
        if sealed.is_err() {
            self.ended = true;
        }
    }

    /// The number of bytes that were not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.output.len()
    }

    /// Sends all replies, in one write where possible.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let stream = &mut self.stream;
        let sent = async {
            stream.write_all(&output).await?;
            stream.flush().await
        };
        tokio::time::timeout(WRITE_TIMEOUT, sent).await?
    }

    /// Like [`Self::flush`], including records that TLS itself has to send.
    pub(crate) async fn flush_all(&mut self) -> io::Result<()> {
        self.flush().await?;
        tokio::time::timeout(WRITE_TIMEOUT, self.stream.flush()).await?
    }

    /// Sends as much as the kernel accepts now, and ends the connection.
    pub(crate) async fn close_at_once(mut self) {
        /// The kernel accepts a line within this time, unless the client reads nothing.
        const MOMENT: Duration = Duration::from_millis(10);

        // The client may be gone already.
        let _ = tokio::time::timeout(MOMENT, self.flush()).await;
    }

    /// Ends the connection in an orderly way.
    pub(crate) async fn close(mut self) {
        // The client may be gone already.
        let _ = self.flush().await;
        let _ = tokio::time::timeout(WRITE_TIMEOUT, self.stream.shutdown()).await;
    }
}

#[cfg(test)]
mod tests;
