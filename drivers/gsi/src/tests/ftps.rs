//! `ftps`, with a client made of rustls.

use std::sync::Arc;
use std::thread;

use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Operation, Side, SocketOptions, StackError, Transform,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::pki::PKI;
use super::{accept, content, listen, receive_all, send, stack, with_operation};
use crate::Ftps;
use crate::ftps::Rustls;
use crate::handshake;

/// `ftps` on the accepting end, and the TLS of an FTP client on the connecting end.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    server: Ftps,
    client: Arc<ClientConfig>,
}

const HOST: &str = "dtn.example.org";

impl Tls {
    pub(super) fn new() -> Self {
        PKI.issue("host", "/DC=test/CN=host", &[HOST]);
        let pem = |file| CertificateDer::from_pem_file(PKI.path(file)).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(PKI.path("host.key")).expect("a key");
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![pem("host.pem")], key)
            .expect("a key of the certificate");
        let mut roots = RootCertStore::empty();
        roots.add(pem("ca.pem")).expect("an authority");
        let client = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            server: Ftps::new(Arc::new(server)),
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
