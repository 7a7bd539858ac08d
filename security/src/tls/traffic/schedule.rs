//! The sequence of keys of a connection, which change with key updates (RFC 8446 7.2).

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use super::failure::Failure;
use crate::tls::describe::describe;
use crate::tls::handover::ConnectionKeys;
use crate::tls::keys::TrafficKeys;
use crate::tls::protection::RecordError;

/// The source of the next keys of a connection.
pub(in crate::tls) enum KeySchedule {
    Connector(KernelConnection<ClientConnectionData>),
    Acceptor(KernelConnection<ServerConnectionData>),
    /// Another process has performed the handshake and handed the keys over.
    HandedOver(Box<ConnectionKeys>),
}

impl KeySchedule {
    pub(super) fn version(&self) -> ProtocolVersion {
        match self {
            Self::Connector(connection) => connection.protocol_version(),
            Self::Acceptor(connection) => connection.protocol_version(),
            Self::HandedOver(keys) => keys.version(),
        }
    }

    pub(super) fn description(&self) -> String {
        let suite = match self {
            Self::Connector(connection) => connection.negotiated_cipher_suite(),
            Self::Acceptor(connection) => connection.negotiated_cipher_suite(),
            Self::HandedOver(keys) => return keys.description().to_owned(),
        };
        describe(Some(self.version()), Some(suite))
    }

    pub(super) fn next_sending(&mut self) -> Result<(u64, TrafficKeys), Failure> {
        match self {
            Self::Connector(connection) => of_rustls(connection.update_tx_secret()?),
            Self::Acceptor(connection) => of_rustls(connection.update_tx_secret()?),
            Self::HandedOver(keys) => keys.next_sending().ok_or_else(no_further_keys),
        }
    }

    pub(super) fn next_receiving(&mut self) -> Result<(u64, TrafficKeys), Failure> {
        match self {
            Self::Connector(connection) => of_rustls(connection.update_rx_secret()?),
            Self::Acceptor(connection) => of_rustls(connection.update_rx_secret()?),
            Self::HandedOver(keys) => keys.next_receiving().ok_or_else(no_further_keys),
        }
    }
}

pub(super) fn of_rustls(
    (sequence, secrets): (u64, ConnectionTrafficSecrets),
) -> Result<(u64, TrafficKeys), Failure> {
    let keys = TrafficKeys::new(&secrets).ok_or_else(no_further_keys)?;
    Ok((sequence, keys))
}

fn no_further_keys() -> Failure {
    RecordError::Exhausted.into()
}
