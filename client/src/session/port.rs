//! The server's end of data connections.

use std::net::{IpAddr, SocketAddr};

use gridhaul_protocol::address::{Family, PassiveAddress, StripeAddresses};
use gridhaul_protocol::command::{Command, EpsvRequest};
use gridhaul_protocol::feature::SimpleFeature;

use super::Session;
use crate::control::ControlError;

/// How many addresses a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// One.
    One,
    /// One for each of its stripes.
    Striped,
}

impl Session {
    /// Makes the server listen, and returns where.
    ///
    /// # Errors
    ///
    /// When the server refuses, or names no usable address.
    pub(crate) async fn passive(
        &mut self,
        addresses: Addresses,
    ) -> Result<Vec<SocketAddr>, ControlError> {
        self.kept = None;
        let is_ipv6 = self.control.peer().ip().to_canonical().is_ipv6();
        let command = match (addresses, is_ipv6) {
            (Addresses::Striped, false) => Command::Spas(None),
            (Addresses::Striped, true) => Command::Spas(Some(Family::Ipv6)),
            (Addresses::One, true) => Command::Epsv(EpsvRequest::Same),
            (Addresses::One, false) => Command::Pasv,
        };
        let reply = self.control.must(&command).await?;
        let found = PassiveAddress::parse(&reply);
        let found = found.map_err(|error| ControlError::PassiveAddress { reply, error })?;
        let peer = self.control.peer().ip().to_canonical();
        Ok(found
            .addresses(peer)
            .into_iter()
            .map(|address| usable(address, peer))
            .collect())
    }

    /// Tells the server where to connect to.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the session has ended.
    pub(crate) async fn active(&mut self, addresses: Vec<SocketAddr>) -> Result<(), ControlError> {
        self.kept = None;
        let command = match addresses.as_slice() {
            [SocketAddr::V4(address)] => Command::Port(*address),
            [address] => Command::Eprt(*address),
            _ => Command::Spor(
                StripeAddresses::new(addresses)
                    .ok_or(ControlError::Unsendable("this number of addresses"))?,
            ),
        };
        self.control.must(&command).await.map(drop)
    }

    /// Whether the server has several addresses for one transfer.
    pub(crate) fn may_stripe(&self) -> bool {
        self.has(SimpleFeature::Spas) && self.has(SimpleFeature::Spor)
    }
}

/// A server behind address translation names `0.0.0.0` or its own private address; the host of the control channel is meant then.
fn usable(address: SocketAddr, control: IpAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(control, address.port()),
        false => address,
    }
}
