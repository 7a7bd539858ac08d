//! `ftps`, with a client made of rustls.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::thread;

use gridhaul_security::credential::Credential;
use gridhaul_security::files::read_roots;
use gridhaul_security::tls::{NamedServer, Principal, TlsVersions};
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Operation, Side, SocketOptions, StackError, Transform,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::pki::PKI;
use super::{accept, content, listen, receive_all, send, stack, with_operation};
use crate::ftps::Rustls;
use crate::handshake;
use crate::{Ftps, FtpsClient};

/// `ftps` on the accepting end, and the TLS of an FTP client on the connecting end.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    server: Ftps,
    config: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

const HOST: &str = "dtn.example.org";

/// The files of the server are made once: a test must not read them while another one writes them.
static ISSUED: LazyLock<Arc<Credential>> =
    LazyLock::new(|| PKI.issue("host", "/DC=test/CN=host", &[HOST]));

impl Tls {
    pub(super) fn new() -> Self {
        LazyLock::force(&ISSUED);
        let pem = |file| CertificateDer::from_pem_file(PKI.path(file)).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(PKI.path("host.key")).expect("a key");
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![pem("host.pem")], key)
            .expect("a key of the certificate");
        let mut roots = RootCertStore::empty();
        roots.add(pem("ca.pem")).expect("an authority");
        let client = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        Self {
            server: Ftps::new(Arc::clone(&config)),
            config,
            client: Arc::new(client),
        }
    }
}

impl Driver for Tls {
    fn name(&self) -> &'static str {
        self.server.name()
    }

    fn options(&self) -> &'static [OptionDoc] {
        self.server.options()
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.server.build(options)?;
        Ok(Built::Transform(Arc::new(self.clone())))
    }
}

impl Transform for Tls {
    fn wrap(
        &self,
        mut channel: Box<dyn Channel>,
        side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        if side == Side::Acceptor {
            return self.server.wrap(channel, side, operation);
        }
        let host = ServerName::try_from(HOST).expect("a host name");
        let connection = ClientConnection::new(self.client.clone(), host).expect("a connection");
        let mut engine = Rustls::new(connection.into());
        handshake::connect(&mut *channel, &mut engine, "client", |_| Ok(()), operation)?;
        Ok(engine.protect(channel))
    }
}

#[test]
fn the_server_is_the_tls_server_also_where_it_connects() {
    let tls = Tls::new();
    let mut listener = listen(&stack("tcp", tls.server.clone()));
    let address = listener.address();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stack = stack("tcp,ftps", tls.server.clone());
            let sockets = SocketOptions::default();
            let mut channel =
                with_operation(|operation| stack.connect(address, &sockets, operation)).unwrap();
            send(&mut *channel, &content(100_000));
            with_operation(|operation| channel.finish(operation)).unwrap();
        });
        let channel = accept(&mut listener).unwrap();
        let wrapped = with_operation(|operation| tls.wrap(channel, Side::Connector, operation));
        assert!(receive_all(&mut *wrapped.unwrap()).unwrap() == content(100_000));
    });
}

/// The driver of a client that expects this host.
fn client(host: &str) -> FtpsClient {
    let trust = read_roots(&PKI.path("ca.pem")).expect("an authority");
    FtpsClient::new(NamedServer {
        trust: Arc::new(trust),
        principal: Principal::Host(host.parse().expect("a host name")),
        versions: TlsVersions::default(),
    })
}

/// A connection without TLS.
fn connect(address: SocketAddr) -> Box<dyn Channel> {
    let stack = stack("tcp", client(HOST));
    let sockets = SocketOptions::default();
    with_operation(|operation| stack.connect(address, &sockets, operation)).unwrap()
}

#[test]
fn our_client_sends_and_receives_on_either_side() {
    let server = Tls::new().server;
    for (client_accepts, client_sends) in
        [(false, true), (false, false), (true, true), (true, false)]
    {
        let mut listener = listen(&stack("tcp", client(HOST)));
        let address = listener.address();
        thread::scope(|scope| {
            scope.spawn(|| {
                let channel = connect(address);
                let connected = with_operation(|operation| match client_accepts {
                    true => server.wrap(channel, Side::Connector, operation),
                    false => client(HOST).wrap(channel, Side::Connector, operation),
                });
                exchange(connected.unwrap(), client_sends != client_accepts);
            });
            let channel = accept(&mut listener).unwrap();
            let accepted = with_operation(|operation| match client_accepts {
                true => client(HOST).wrap(channel, Side::Acceptor, operation),
                false => server.wrap(channel, Side::Acceptor, operation),
            });
            exchange(accepted.unwrap(), client_sends == client_accepts);
        });
    }
}

fn exchange(mut channel: Box<dyn Channel>, sends: bool) {
    if sends {
        send(&mut *channel, &content(1_000_000));
        with_operation(|operation| channel.finish(operation)).unwrap();
    } else {
        assert!(receive_all(&mut *channel).unwrap() == content(1_000_000));
    }
}

#[test]
fn our_client_refuses_another_host() {
    let server = Tls::new().server;
    let mut listener = listen(&stack("tcp", client(HOST)));
    let address = listener.address();
    thread::scope(|scope| {
        scope.spawn(|| {
            let channel = connect(address);
            let refused = with_operation(|operation| {
                client("other.example.org").wrap(channel, Side::Connector, operation)
            });
            let error = refused.expect_err("another host").to_string();
            assert!(error.contains("not of other.example.org"), "{error}");
        });
        let channel = accept(&mut listener).unwrap();
        let wrapped = with_operation(|operation| server.wrap(channel, Side::Acceptor, operation));
        assert!(wrapped.is_err(), "the client has refused");
    });
}

/// A server of which a client reads nothing while it sends, as tickets after the handshake.
#[test]
fn unread_bytes_of_the_server_lose_no_data() {
    let mut config = Arc::unwrap_or_clone(Tls::new().config);
    config.send_tls13_tickets = 8;
    let config = Arc::new(config);
    for _ in 0..20 {
        let mut listener = listen(&stack("tcp", client(HOST)));
        let address = listener.address();
        thread::scope(|scope| {
            scope.spawn(|| {
                let channel = connect(address);
                let connected = with_operation(|operation| {
                    client(HOST).wrap(channel, Side::Connector, operation)
                });
                exchange(connected.unwrap(), true);
            });
            let mut channel = accept(&mut listener).unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a configuration");
            let mut engine = Rustls::new(connection.into());
            with_operation(|operation| {
                handshake::connect(&mut *channel, &mut engine, "server", |_| Ok(()), operation)
            })
            .unwrap();
            exchange(engine.protect(channel), false);
        });
    }
}
