//! A control channel in TLS: `AUTH TLS` (RFC 4217 4).

use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::{Command, Text};
use gridhaul_security::tls::{NamedConnector, NamedServer};
use gridhaul_security::trust::Peer;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::stream::Stream;
use super::{Control, ControlError};

impl Control {
    /// Begins TLS with this server.
    ///
    /// # Errors
    ///
    /// When the server has no TLS, or is another one.
    pub(crate) async fn secure(mut self, server: &NamedServer) -> Result<Self, ControlError> {
        let mechanism = Text::new("TLS").ok_or(ControlError::Unsendable("the mechanism"))?;
        self.must(&Command::Auth(mechanism)).await?;
        if !self.input.is_empty() {
            return Err(ControlError::Injected);
        }
        let Stream::Tcp(stream) = self.stream else {
            return Err(ControlError::Tls("there is TLS already".to_owned()));
        };
        let (stream, peer) = handshake(stream, server, self.patience).await?;
        Ok(Self {
            stream: Stream::Tls(Box::new(stream)),
            server: peer,
            ..self
        })
    }
}

async fn handshake(
    stream: TcpStream,
    server: &NamedServer,
    within: Duration,
) -> Result<(TlsStream<TcpStream>, Option<Peer>), ControlError> {
    let connector = NamedConnector::new(server);
    let connector = connector.map_err(|error| ControlError::Tls(error.to_string()))?;
    let config = TlsConnector::from(Arc::clone(&connector.config));
    let connected = config.connect(connector.name.clone(), stream);
    let connected = timeout(within, connected).await;
    let verb = "the TLS handshake";
    let connected = connected.map_err(|_| ControlError::Silent { verb, within })?;
    // The words of rustls are those of the alert.
    let refused = |error: std::io::Error| connector.fault().unwrap_or_else(|| error.to_string());
    let stream = connected.map_err(|error| ControlError::Tls(refused(error)))?;
    Ok((stream, connector.peer().cloned()))
}
