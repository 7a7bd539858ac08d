//! The byte stream of a control channel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::ssh::SshProcess;

/// The byte stream of a control channel.
pub(super) enum Stream {
    /// In the clear, or with protected commands and replies (RFC 2228).
    Tcp(TcpStream),
    /// In TLS (RFC 4217).
    Tls(Box<TlsStream<TcpStream>>),
    /// Standard input and output of ssh.
    Ssh {
        stream: UnixStream,
        /// Ends with the channel.
        _process: SshProcess,
    },
}

/// Calls a method of the stream that there is.
macro_rules! delegate {
    ($stream:ident.$method:ident($($argument:expr),*)) => {
        match $stream.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Self::Tls(stream) => Pin::new(stream).$method($($argument),*),
            Self::Ssh { stream, .. } => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_shutdown(context))
    }
}
