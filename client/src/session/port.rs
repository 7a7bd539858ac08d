//! The server's end of data connections.

use std::net::{IpAddr, SocketAddr};

use gridhaul_protocol::address::{Family, PassiveAddress, StripeAddresses};
use gridhaul_protocol::command::{Command, EpsvRequest, RdmaCommand, TransferMode};
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_transfer::{AddressBlock, Admission, Reach};

use super::{DataCommands, DataProtection, Session, Striping, TransferSettings};
use crate::control::ControlError;
use crate::login::Login;

/// How many addresses a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// One.
    One,
    /// One for each of its stripes, or one if these are at hosts that this machine does not connect to.
    Striped,
    /// One for each of its stripes.
    AllStripes,
}

impl Session {
    /// Makes the server listen for connections of this machine, and returns where.
    ///
    /// Without authenticated data channels a hostile server could name the address of another host, and use this machine to
    /// scan or attack hosts that it cannot reach itself, or to fetch bytes from them. So only the host of the control channel
    /// is connected to then, as curl, lftp and browsers do; that also serves servers behind address translation, which name
    /// their private addresses. With authenticated data channels other hosts are those of data nodes, and prove that they act
    /// for the user. But the services of this machine and of its links are none: see [`may_be_node`].
    ///
    /// # Errors
    ///
    /// When the server refuses, or names no usable address.
    pub(crate) async fn passive(
        &mut self,
        addresses: Addresses,
    ) -> Result<Vec<SocketAddr>, ControlError> {
        let peer = self.control.peer().ip().to_canonical();
        let found = self.passive_for_others(addresses).await?;
        let has_nodes = self.has_data_nodes() && self.settings.protects_data();
        let local = self.control.local().ip();
        let mut hosts = found.iter().map(SocketAddr::ip);
        if has_nodes && hosts.all(|host| may_be_node(host, peer, local)) || all_at(&found, peer) {
            return Ok(found);
        }
        let found = match addresses {
            Addresses::One => found,
            // The ports of several hosts have no meaning at one.
            Addresses::Striped => self.passive_for_others(Addresses::One).await?,
            Addresses::AllStripes => return Err(ControlError::StripesElsewhere),
        };
        Ok(found
            .into_iter()
            .map(|address| SocketAddr::new(peer, address.port()))
            .collect())
    }

    /// Makes the server listen for connections of another server, and returns where. This machine does not connect there.
    ///
    /// # Errors
    ///
    /// When the server refuses, or names no usable address.
    pub(crate) async fn passive_for_others(
        &mut self,
        addresses: Addresses,
    ) -> Result<Vec<SocketAddr>, ControlError> {
        self.kept = None;
        let is_ipv6 = self.control.peer().ip().to_canonical().is_ipv6();
        let command = match (addresses, is_ipv6) {
            // RFTP has no command for several addresses.
            _ if self.settings.commands() == DataCommands::Rdma => {
                Command::Rdma(RdmaCommand::Passive { buffer: None })
            }
            (Addresses::Striped | Addresses::AllStripes, false) => Command::Spas(None),
            (Addresses::Striped | Addresses::AllStripes, true) => Command::Spas(Some(Family::Ipv6)),
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
            [peer] if self.settings.commands() == DataCommands::Rdma => {
                let (peer, buffer) = (*peer, None);
                Command::Rdma(RdmaCommand::Address { peer, buffer })
            }
            [SocketAddr::V4(address)] => Command::Port(*address),
            [address] => Command::Eprt(*address),
            _ => Command::Spor(
                StripeAddresses::new(addresses)
                    .ok_or(ControlError::Unsendable("this number of addresses"))?,
            ),
        };
        self.control.must(&command).await.map(drop)
    }

    /// The hosts whose data connections this machine accepts. As in [`Self::passive`]: without authenticated data channels any host
    /// could send a file in the place of the server.
    pub(crate) fn admits(&self, protection: DataProtection) -> Admission {
        match self.has_data_nodes() && protection != DataProtection::None {
            true => Admission::Anyone,
            false => Admission::Hosts(vec![AddressBlock::host(self.control.peer().ip())]),
        }
    }

    /// Whether other hosts can prove that they act for the user. The key of a credential that was sent in the clear proves nothing.
    fn has_data_nodes(&self) -> bool {
        self.has_mutual_data() && !matches!(self.login, Login::Clear(_))
    }

    /// How many addresses of this server a transfer with these settings uses, as far as this end decides it.
    ///
    /// # Errors
    ///
    /// When several are demanded, and the server has no commands for them.
    pub(crate) fn addresses(&self, settings: &TransferSettings) -> Result<Addresses, ControlError> {
        let has_commands = self.has(SimpleFeature::Spas) && self.has(SimpleFeature::Spor);
        // A stream has one connection.
        let may_stripe = has_commands && settings.mode == TransferMode::Extended;
        match settings.striping {
            Striping::Auto if may_stripe => Ok(Addresses::Striped),
            Striping::Always if may_stripe => Ok(Addresses::AllStripes),
            Striping::Always => Err(ControlError::NoStripes),
            Striping::Auto | Striping::Never => Ok(Addresses::One),
        }
    }
}

/// Whether a data node may have this address, and not only a service of this machine or of its links that the server cannot reach itself:
/// the attack of RFC 2577 3 from the other side. `local` is the address of this machine on the control connection.
fn may_be_node(host: IpAddr, server: IpAddr, local: IpAddr) -> bool {
    let reach = Reach {
        client: server,
        machine: &[local],
        advertised: &[],
        named: &[],
    };
    reach.check(host).is_ok()
}

fn all_at(addresses: &[SocketAddr], host: IpAddr) -> bool {
    let mut hosts = addresses.iter().map(|address| address.ip().to_canonical());
    hosts.all(|one| one == host)
}

/// A server behind address translation names `0.0.0.0` or its own private address; the host of the control channel is meant then.
fn usable(address: SocketAddr, control: IpAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(control, address.port()),
        false => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_another_host_is_enough() {
        let host = IpAddr::from([192, 0, 2, 1]);
        let at = |last: u8, port| SocketAddr::from(([192, 0, 2, last], port));
        let mapped = SocketAddr::new("::ffff:192.0.2.1".parse().expect("an address"), 3);
        assert!(all_at(&[at(1, 1), at(1, 2), mapped], host));
        assert!(!all_at(&[at(1, 1), at(2, 1)], host));
    }

    #[test]
    fn an_address_without_a_host_is_that_of_the_control_channel() {
        let host = IpAddr::from([192, 0, 2, 1]);
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 5));
        assert_eq!(usable(unspecified, host), SocketAddr::new(host, 5));
        let node = SocketAddr::from(([192, 0, 2, 2], 5));
        assert_eq!(usable(node, host), node);
    }

    #[test]
    fn servers_of_other_machines_lead_to_no_service_of_this_one() {
        let [server, local] = ["192.0.2.1", "192.0.2.9"];
        for (host, may) in [
            ("192.0.2.1", true),
            ("192.0.2.2", true),
            ("198.51.100.7", true),
            ("10.0.0.5", true),
            ("2001:db8::5", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("192.0.2.9", false),
        ] {
            let [host, server, local] = [host, server, local].map(|text| text.parse().unwrap());
            assert_eq!(may_be_node(host, server, local), may, "{host}");
        }
        // A server of this machine reaches it itself.
        let [loopback, own] = ["127.0.0.1", "192.0.2.9"].map(|text| text.parse().unwrap());
        assert!(may_be_node(own, loopback, loopback));
        assert!(may_be_node(loopback, loopback, loopback));
    }
}
