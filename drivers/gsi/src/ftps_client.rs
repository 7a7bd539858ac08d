//! The driver `ftps` of a client.

use std::sync::Arc;

use gridhaul_security::tls::{NamedConnector, NamedServer};
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Operation, SessionValue, SessionValueError, Side,
    StackError, Transform,
};
use rustls::ClientConnection;

use crate::Ftps;
use crate::ftps::Rustls;
use crate::handshake;
use crate::record::protocol;

const NAME: &str = Ftps::NAME;

/// The driver `ftps` of a client, whose server must be the one of the control channel. It has no options.
#[derive(Debug, Clone)]
pub struct FtpsClient {
    server: Arc<NamedServer>,
}

impl FtpsClient {
    /// The driver of one session.
    pub fn new(server: NamedServer) -> Self {
        Self {
            server: Arc::new(server),
        }
    }
}

impl Driver for FtpsClient {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.read_options(options)?;
        Ok(Built::Transform(Arc::new(self.clone())))
    }

    fn session_value(&self) -> Result<SessionValue, SessionValueError> {
        // Clients have no data nodes on other machines.
        Err(SessionValueError::without_session(NAME))
    }
}

impl Transform for FtpsClient {
    /// RFC 4217 7: the FTP server is the TLS server, also on connections that it opens.
    fn wrap(
        &self,
        mut channel: Box<dyn Channel>,
        _side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let failed = |reason: String| protocol(NAME, reason);
        let connector = NamedConnector::new(&self.server);
        let connector = connector.map_err(|error| failed(error.to_string()))?;
        let connection =
            ClientConnection::new(Arc::clone(&connector.config), connector.name.clone())
                .map_err(|error| failed(error.to_string()))?;
        let mut engine = Rustls::new(connection.into());
        let connected = handshake::connect(&mut *channel, &mut engine, NAME, |_| Ok(()), operation);
        // The words of rustls are those of the alert.
        connected.map_err(|error| connector.fault().map_or(error, failed))?;
        Ok(engine.protect_client(channel))
    }
}
