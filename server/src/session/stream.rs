//! What carries a control channel: TCP, TLS above it, or a pair of pipes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Empty, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The byte stream of a control channel.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Standard input and output: another program carries the bytes.
    Pipes {
        input: Box<dyn AsyncRead + Send + Unpin>,
        output: Box<dyn AsyncWrite + Send + Unpin>,
    },
    /// A TLS handshake has failed: nothing can be received or sent any more.
    Lost(Empty),
}

impl Stream {
    /// Makes a TLS server of this end. When that fails, the stream is lost.
    pub(super) async fn accept_tls(&mut self, acceptor: &TlsAcceptor) -> io::Result<()> {
        let lost = Self::Lost(tokio::io::empty());
        let Self::Tcp(stream) = std::mem::replace(self, lost) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut accept = std::pin::pin!(acceptor.accept(stream));
        // A handshake computes for as long as thousands of commands take.
        let accept = std::future::poll_fn(|context| {
            tokio::task::block_in_place(|| accept.as_mut().poll(context))
        });
        *self = Self::Tls(Box::new(accept.await?));
        Ok(())
    }

    /// Whether there can be TLS on it.
    pub(super) fn takes_tls(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// The version and the cipher of TLS, for the log.
    pub(super) fn tls_description(&self) -> Option<String> {
        let Self::Tls(stream) = self else {
            return None;
        };
        let (_, connection) = stream.get_ref();
        let version = connection.protocol_version()?;
        let cipher = connection.negotiated_cipher_suite()?.suite();
        Some(format!("{version:?}, {cipher:?}"))
    }

    fn reader(&mut self) -> Pin<&mut (dyn AsyncRead + Send + Unpin)> {
        Pin::new(match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Pipes { input, .. } => input,
            Self::Lost(nothing) => nothing,
        })
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        Pin::new(match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Pipes { output, .. } => output,
            Self::Lost(nothing) => nothing,
        })
    }
}

/// Reads what there is. The kernel stops before the urgent byte that telnet clients send with ABOR
/// (RFC 959 4.1.3), though more is there, and tokio's own `poll_read` takes any short read for the last.
fn poll_read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        match stream.try_read_buf(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result.map(drop)),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => poll_read(stream, context, buffer),
            stream => stream.reader().poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().writer().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_shutdown(context)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(_) => "Tls",
            Self::Pipes { .. } => "Pipes",
            Self::Lost(_) => "Lost",
        })
    }
}
