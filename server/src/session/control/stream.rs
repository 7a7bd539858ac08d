//! The byte stream under a control channel: TCP, TLS over TCP, or a pair of pipes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, Empty, ReadBuf};
use tokio::net::TcpStream;

use super::tls::{TlsStream, poll_read};
use crate::admission::{Network, Workers};

/// The byte stream of a control channel.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    /// Standard input and output: another program carries the bytes.
    Pipes {
        input: Box<dyn AsyncRead + Send + Unpin>,
        output: Box<dyn AsyncWrite + Send + Unpin>,
    },
    /// No connection, for example after a TLS handshake that failed.
    Lost(Empty),
}

impl Stream {
    /// Accepts a TLS handshake. If that fails, the stream is lost.
    pub(crate) async fn accept_tls(
        &mut self,
        config: &ServerConfig,
        workers: &Workers,
        network: Network,
    ) -> io::Result<()> {
        let lost = Self::Lost(tokio::io::empty());
        let Self::Tcp(stream) = std::mem::replace(self, lost) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let accepted = TlsStream::accept(stream, config, workers, network).await?;
        *self = Self::Tls(Box::new(accepted));
        Ok(())
    }

    /// Whether it can carry TLS.
    pub(crate) fn takes_tls(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// The version and the cipher of TLS, for the log.
    pub(crate) fn tls_description(&self) -> Option<String> {
        match self {
            Self::Tls(stream) => Some(stream.description()),
            _ => None,
        }
    }

    fn reader(&mut self) -> Pin<&mut (dyn AsyncRead + Send + Unpin)> {
        Pin::new(match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Pipes { input, .. } => input,
            Self::Lost(empty) => empty,
        })
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        Pin::new(match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Pipes { output, .. } => output,
            Self::Lost(empty) => empty,
        })
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
