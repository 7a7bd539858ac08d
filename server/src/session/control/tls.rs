//! TLS on a control channel, whose keys can move to another process at any time.
//!
//! tokio-rustls has no such stream: rustls exports its keys (`dangerous_extract_secrets`), but not the records that it has
//! read and not decrypted, so bytes that a client sent ahead would be lost. Here rustls does the handshake and reads no
//! further, and `gridhaul_security::tls` protects the records from there on.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use gridhaul_security::tls::{ConnectionKeys, HandedConnection, TlsAcceptance};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::admission::{Network, Workers};

/// The size of one read.
const READ_BYTES: usize = 8 * 1024;

/// The most bytes that are encrypted at a time.
const WRITE_BYTES: usize = 16 * 1024;

/// The server's end of a TLS connection.
pub(crate) struct TlsStream {
    stream: TcpStream,
    connection: HandedConnection,
    /// Decrypted bytes that were not read yet. Passwords are among them.
    received: Zeroizing<Vec<u8>>,
    /// Records that the kernel has not accepted yet.
    unsent: Vec<u8>,
    is_closed: bool,
}

/// What another process needs to continue with the connection.
pub(crate) struct TlsParts {
    pub(crate) stream: TcpStream,
    pub(crate) keys: ConnectionKeys,
    /// Decrypted bytes that were not read yet.
    pub(crate) received: Zeroizing<Vec<u8>>,
}

impl TlsStream {
    /// Waits for the client's handshake.
    ///
    /// A handshake computes for as long as thousands of commands take, and its signature may come from another process. So
    /// `workers` do each step, fairly among networks, and the handshake holds no thread of the runtime.
    pub(crate) async fn accept(
        mut stream: TcpStream,
        config: &ServerConfig,
        workers: &Workers,
        network: Network,
    ) -> io::Result<Self> {
        let mut acceptance = TlsAcceptance::new(config.clone()).map_err(invalid)?;
        while acceptance.is_handshaking() {
            let mut input = Vec::with_capacity(READ_BYTES);
            if stream.read_buf(&mut input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let step = move || {
                let mut output = Vec::new();
                let advanced = acceptance.advance(&input, &mut output);
                (acceptance, output, advanced)
            };
            let stepped = workers.run(network, step).await;
            let (after, output, advanced) = stepped.map_err(io::Error::other)?;
            // This includes the alert of a handshake that failed.
            stream.write_all(&output).await?;
            advanced.map_err(invalid)?;
            acceptance = after;
        }
        let (connection, behind) = acceptance.finish().map_err(invalid)?;
        let mut accepted = Self::new(stream, connection);
        accepted.open(&behind)?;
        Ok(accepted)
    }

    fn new(stream: TcpStream, connection: HandedConnection) -> Self {
        Self {
            stream,
            connection,
            received: Zeroizing::default(),
            unsent: Vec::new(),
            is_closed: false,
        }
    }

    /// Continues a connection of another process.
    ///
    /// # Errors
    ///
    /// When the keys cannot be used.
    pub(crate) fn continued(stream: TcpStream, keys: ConnectionKeys) -> io::Result<Self> {
        let connection = HandedConnection::new(keys).map_err(invalid)?;
        Ok(Self::new(stream, connection))
    }

    /// Takes the connection apart for another process. All records must have been sent.
    ///
    /// # Errors
    ///
    /// When this end is closed.
    pub(crate) fn into_parts(self) -> io::Result<TlsParts> {
        Ok(TlsParts {
            stream: self.stream,
            keys: self.connection.hand_over().map_err(invalid)?,
            received: self.received,
        })
    }

    /// The version and the cipher, for the log.
    pub(crate) fn description(&self) -> String {
        self.connection.description()
    }

    /// Decrypts records of the client.
    fn open(&mut self, records: &[u8]) -> io::Result<()> {
        let Self {
            connection,
            unsent,
            received,
            ..
        } = self;
        connection
            .advance(records, unsent, received)
            .map_err(invalid)
    }

    /// Sends the records that wait.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..sent);
        }
        // A session that waits for its client holds no buffer.
        self.unsent = Vec::new();
        Poll::Ready(Ok(()))
    }
}

fn invalid(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Records that the kernel did not accept before. It wakes the reading task when it can accept more.
        if let Poll::Ready(Err(error)) = this.poll_send(context) {
            return Poll::Ready(Err(error));
        }
        while this.received.is_empty() {
            if this.connection.is_closed_by_peer() {
                return Poll::Ready(Ok(()));
            }
            // The client updates keys again and again and does not read the answers.
            if this.unsent.len() >= WRITE_BYTES {
                ready!(this.poll_send(context))?;
            }
            let mut records = [MaybeUninit::uninit(); READ_BYTES];
            let mut records = ReadBuf::uninit(&mut records);
            ready!(poll_read(&this.stream, context, &mut records))?;
            if records.filled().is_empty() {
                // The client closed without close_notify.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let opened = this.open(records.filled());
            // Answers to key updates, or an alert. The part that the kernel does not accept now goes with the next reply.
            if let Poll::Ready(sent) = this.poll_send(context) {
                opened.and(sent)?;
            } else {
                opened?;
            }
        }
        let count = this.received.len().min(buffer.remaining());
        buffer.put_slice(&this.received[..count]);
        this.received.drain(..count);
        if this.received.is_empty() {
            this.received = Zeroizing::default();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        let piece = &bytes[..bytes.len().min(WRITE_BYTES)];
        this.connection
            .wrap(piece, &mut this.unsent)
            .map_err(invalid)?;
        // The piece counts as written. The next call sends the part that the kernel does not accept now.
        if let Poll::Ready(Err(error)) = this.poll_send(context) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_closed, true) {
            this.connection.close(&mut this.unsent);
        }
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Reads the available bytes. The kernel stops before the urgent byte that telnet clients send with ABOR (RFC 959 4.1.3),
/// even if more bytes follow, and tokio's own `poll_read` takes every short read for the last one.
pub(crate) fn poll_read(
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::sign::{Signer, SigningKey};
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, SignatureAlgorithm, SignatureScheme,
    };
    use tokio::net::TcpListener;

    use super::*;
    use crate::security::server_config;

    const SAMPLE: &[u8] = include_bytes!("../../security/samples/host.pem");

    /// A test that takes longer has failed.
    const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// A key whose signatures take long, as if the login process did not answer.
    #[derive(Debug)]
    struct SlowKey(Arc<Gate>);

    #[derive(Debug, Default)]
    struct Gate {
        is_open: Mutex<bool>,
        opened: Condvar,
        /// Requested signatures.
        asked: AtomicUsize,
    }

    /// Opens the gate at the end even if the test fails, because the runtime waits for its threads.
    struct Opener(Arc<Gate>);

    impl Drop for Opener {
        fn drop(&mut self) {
            *self.0.is_open.lock().expect("no panic") = true;
            self.0.opened.notify_all();
        }
    }

    impl SigningKey for SlowKey {
        fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
            Some(Box::new(Self(Arc::clone(&self.0))))
        }

        fn algorithm(&self) -> SignatureAlgorithm {
            SignatureAlgorithm::ECDSA
        }
    }

    impl Signer for SlowKey {
        fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            let is_open = self.0.is_open.lock().expect("no panic");
            let waited = self.0.opened.wait_while(is_open, |is_open| !*is_open);
            drop(waited.expect("no panic"));
            Err(rustls::Error::General("it signs nothing".to_owned()))
        }

        fn scheme(&self) -> SignatureScheme {
            SignatureScheme::ECDSA_NISTP256_SHA256
        }
    }

    /// A client that sends its hello, and then reads.
    fn client(address: std::net::SocketAddr, hellos: &AtomicUsize) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let mut stream = std::net::TcpStream::connect(address).expect("connected");
        connection.write_tls(&mut stream).expect("sent");
        hellos.fetch_add(1, Ordering::Relaxed);
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
    }

    #[test]
    fn handshakes_that_wait_for_signatures_hold_no_thread_of_the_runtime() {
        const CLIENTS: usize = 12;

        let gate = Arc::new(Gate::default());
        let chain = vec![CertificateDer::from_pem_slice(SAMPLE).expect("a certificate")];
        let config = server_config(chain, Arc::new(SlowKey(Arc::clone(&gate)))).expect("usable");
        let config = Arc::new(config);
        // As many as handshakes could hold, if they held threads of the runtime.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let opener = Opener(Arc::clone(&gate));
        let workers = Arc::new(Workers::new("test", 1));
        let (tell, told) = mpsc::channel();
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("bound");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(async move {
            let network = Network::of(address.ip());
            for _ in 0..CLIENTS {
                let (stream, _) = listener.accept().await.expect("accepted");
                let (config, workers) = (Arc::clone(&config), Arc::clone(&workers));
                let tell = tell.clone();
                tokio::spawn(async move {
                    let accepted = TlsStream::accept(stream, &config, &workers, network).await;
                    tell.send(accepted.is_err()).expect("waited for");
                });
            }
        });
        let hellos = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let hellos = Arc::clone(&hellos);
                thread::spawn(move || client(address, &hellos))
            })
            .collect();
        // The runtime has time for another connection, though all handshakes wait.
        let (answer, answered) = mpsc::channel();
        let mut rounds = 0;
        while rounds < 1000 {
            if hellos.load(Ordering::Relaxed) == CLIENTS && gate.asked.load(Ordering::Relaxed) > 0 {
                rounds += 1;
            }
            let answer = answer.clone();
            runtime.spawn(async move {
                tokio::task::yield_now().await;
                answer.send(()).expect("waited for");
            });
            answered
                .recv_timeout(TIME_LIMIT)
                .expect("the runtime works");
            thread::yield_now();
        }
        assert!(told.try_recv().is_err(), "no handshake has ended");
        drop(opener);
        for _ in 0..CLIENTS {
            assert!(
                told.recv_timeout(TIME_LIMIT).expect("it ends"),
                "without a signature"
            );
        }
        for client in clients {
            client.join().expect("no panic");
        }
    }
}
