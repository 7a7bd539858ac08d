//! What carries a control channel: TCP, TLS above it, or a pair of pipes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Empty, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::{Network, Workers};

/// Is woken when a handshake can go on. It remembers that until someone waits: the bytes may come while the step before
/// them is still under way.
#[derive(Default)]
struct Bytes(Notify);

impl Wake for Bytes {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

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
    ///
    /// A handshake computes for as long as thousands of commands take, and its signature may have to be waited for. So
    /// each step of it waits for the turn of its network among `workers`, and holds no thread of the runtime.
    pub(super) async fn accept_tls(
        &mut self,
        acceptor: &TlsAcceptor,
        workers: &Workers,
        network: Network,
    ) -> io::Result<()> {
        let lost = Self::Lost(tokio::io::empty());
        let Self::Tcp(stream) = std::mem::replace(self, lost) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut accept = acceptor.accept(stream);
        let bytes = Arc::new(Bytes::default());
        loop {
            let waker = Waker::from(Arc::clone(&bytes));
            let step = move || {
                let step = Pin::new(&mut accept).poll(&mut Context::from_waker(&waker));
                (accept, step)
            };
            let (after, step) = workers.run(network, step).await.map_err(io::Error::other)?;
            match step {
                Poll::Ready(stream) => {
                    *self = Self::Tls(Box::new(stream?));
                    return Ok(());
                }
                Poll::Pending => accept = after,
            }
            bytes.0.notified().await;
        }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex, mpsc};
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

    const SAMPLE: &[u8] = include_bytes!("../security/samples/host.pem");

    /// What takes longer never happens.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A key whose signatures are waited for, as for those of a login process that does not answer.
    #[derive(Debug)]
    struct SlowKey(Arc<Gate>);

    #[derive(Debug, Default)]
    struct Gate {
        is_open: Mutex<bool>,
        opened: Condvar,
        /// Signatures that were asked for.
        asked: AtomicUsize,
    }

    /// Opens the gate at the end, also of a test that fails: the runtime waits for its threads.
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

    /// A client that says hello, and then waits for what comes.
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
        let acceptor = TlsAcceptor::from(Arc::new(config));
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
                let (acceptor, workers) = (acceptor.clone(), Arc::clone(&workers));
                let tell = tell.clone();
                tokio::spawn(async move {
                    let mut stream = Stream::from(stream);
                    let accepted = stream.accept_tls(&acceptor, &workers, network).await;
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
            answered.recv_timeout(PATIENCE).expect("the runtime works");
            thread::yield_now();
        }
        assert!(told.try_recv().is_err(), "no handshake has ended");
        drop(opener);
        for _ in 0..CLIENTS {
            assert!(
                told.recv_timeout(PATIENCE).expect("it ends"),
                "without a signature"
            );
        }
        for client in clients {
            client.join().expect("no panic");
        }
    }
}
