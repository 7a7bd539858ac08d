//! The control channel: command lines in, replies out.
//!
//! Between two commands it holds no buffer: sessions are many and mostly idle.

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

/// Commands that may wait while another one is carried out; then reading stops.
const MOST_WAITING: usize = 64;
/// The bytes that all waiting commands together may have, roughly.
const MOST_WAITING_BYTES: usize = 256 * 1024;
/// How much is read at a time.
const READ_BYTES: usize = 8 * 1024;
/// A client that does not take its replies for so long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection on which commands and replies travel.
#[derive(Debug)]
pub(crate) struct Control {
    stream: Stream,
    /// What commands come in, and replies go out in, after a GSI login.
    context: Option<Box<MessageProtection>>,
    decoder: LineDecoder,
    /// Bytes that were read. Passwords come in them.
    unread: Zeroizing<Vec<u8>>,
    /// How many of them were looked at; the others have to wait, because enough commands do.
    looked_at: usize,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    output: Vec<u8>,
    ended: bool,
    abort_waits: bool,
    /// No command is looked at before the one ahead of it was carried out.
    is_one_by_one: bool,
}

/// What another process needs to go on.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) stream: Stream,
    pub(crate) context: Option<Box<MessageProtection>>,
    /// What has come and was not looked at.
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

    /// A connection that may go on in another process: what comes behind a command stays as it is until that was carried
    /// out.
    pub(crate) fn one_by_one(stream: impl Into<Stream>) -> Self {
        Self {
            is_one_by_one: true,
            ..Self::new(stream)
        }
    }

    /// As if this had come on the connection.
    #[must_use]
    pub(crate) fn with_input(mut self, input: Vec<u8>) -> Self {
        self.unread = Zeroizing::new(input);
        self
    }

    /// A connection that is gone.
    pub(crate) fn lost() -> Self {
        Self::new(Stream::Lost(tokio::io::empty()))
    }

    /// For another process. All replies were sent. With a context no command waits: those that were opened cannot be
    /// opened again.
    pub(crate) fn into_parts(self) -> Parts {
        /// Stands for a line that is no line: there is a NUL in it.
        const NO_LINE: &[u8] = b"\0\r\n";
        /// Stands for a command that is none.
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

    /// Whether the client has closed its side, and all that came before is taken.
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

    /// Whether an `ABOR` is among the commands that wait.
    pub(crate) fn abort_waits(&self) -> bool {
        self.abort_waits
    }

    /// The command that is next, if it is one.
    pub(crate) fn next(&self) -> Option<&Command> {
        self.waiting
            .front()
            .and_then(|request| request.content.as_ref().ok())
    }

    /// The commands that wait, up to the first line that is none.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Command> {
        self.waiting
            .iter()
            .map_while(|request| request.content.as_ref().ok())
    }

    /// The oldest command that waits.
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

    /// Waits until the client sends something or closes, and takes what there is. Dropping the future
    /// loses nothing.
    pub(crate) async fn receive(&mut self) -> io::Result<()> {
        if self.look_on() {
            return Ok(());
        }
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// The buffer lives on the stack, and not in the session.
    fn poll_receive(&mut self, context: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
            Ok(()) => {}
            // A TLS client that did not say goodbye. Lines that are not whole mean nothing anyway.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        self.ended |= buffer.filled().is_empty();
        self.unread.extend_from_slice(buffer.filled());
        self.decode();
        Poll::Ready(Ok(()))
    }

    /// Looks at what was read and had to wait; false if there is nothing.
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
        // Between two commands a session holds no buffer.
        if self.has_looked_at_all() {
            self.unread = Zeroizing::default();
            self.looked_at = 0;
        }
    }

    /// What a line says behind the protection that the session has.
    fn opened(&mut self, content: Result<Command, Fault>) -> Result<Command, Fault> {
        match &mut self.context {
            Some(context) => tokens::open(context, content?),
            None => content,
        }
    }

    /// From now on commands and replies are protected; also those commands that wait already.
    pub(crate) fn protect(&mut self, context: MessageProtection) {
        self.context = Some(Box::new(context));
        for mut request in std::mem::take(&mut self.waiting) {
            request.content = self.opened(request.content);
            request.aborted = false;
            self.waiting.push_back(request);
        }
        self.abort_waits = self.waiting.iter().any(Request::is_abort);
    }

    /// Whether the stream can be protected by TLS, and nothing has come that the client may have meant
    /// to be in it.
    pub(crate) fn takes_tls(&self) -> bool {
        self.stream.takes_tls()
            && self.waiting.is_empty()
            && self.has_looked_at_all()
            && !self.decoder.is_inside_line()
    }

    /// Waits for the client's TLS handshake. Returns what was agreed, for the log.
    pub(crate) async fn accept_tls(
        &mut self,
        config: &ServerConfig,
        workers: &Workers,
        network: Network,
    ) -> io::Result<String> {
        self.stream.accept_tls(config, workers, network).await?;
        Ok(self.stream.tls_description().unwrap_or_default())
    }

    /// Adds a reply to what will be sent.
    pub(crate) fn reply(&mut self, reply: &Reply) {
        self.raw(&reply.encode());
    }

    /// Adds a reply that nothing can protect any more: the context is lost.
    pub(crate) fn reply_in_clear(&mut self, reply: &Reply) {
        self.output.extend_from_slice(&reply.encode());
    }

    /// Adds a part of a reply that is sent piece by piece: whole lines.
    pub(crate) fn raw(&mut self, lines: &[u8]) {
        let sealed = match &mut self.context {
            Some(context) => tokens::seal(context, lines, &mut self.output),
            None => {
                self.output.extend_from_slice(lines);
                Ok(())
            }
        };
        // Nothing can be said any more that the client would believe.
        if sealed.is_err() {
            self.ended = true;
        }
    }

    /// The bytes of replies that were not sent yet.
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

    /// As [`Self::flush`], also what TLS itself has to say.
    pub(crate) async fn flush_all(&mut self) -> io::Result<()> {
        self.flush().await?;
        tokio::time::timeout(WRITE_TIMEOUT, self.stream.flush()).await?
    }

    /// Sends what the kernel takes now, and ends the connection.
    pub(crate) async fn close_at_once(mut self) {
        /// A moment, in which the kernel takes a line unless the client reads nothing.
        const MOMENT: Duration = Duration::from_millis(10);

        // The client may be gone already, which is as good.
        let _ = tokio::time::timeout(MOMENT, self.flush()).await;
    }

    /// Ends the connection in an orderly way.
    pub(crate) async fn close(mut self) {
        // The client may be gone already, which is as good.
        let _ = self.flush().await;
        let _ = tokio::time::timeout(WRITE_TIMEOUT, self.stream.shutdown()).await;
    }
}

#[cfg(test)]
mod tests;
