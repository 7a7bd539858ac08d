//! Where data channels go: `PASV`, `PORT` and their kin.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_protocol::address::{Family, PassiveAddress, StripeAddresses};
use gridhaul_protocol::command::StackRequest;
use gridhaul_protocol::negotiated::{Passive, PassiveRequest};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{BufferSize, SocketOptions, StackError};
use gridhaul_transfer::{
    Admission, ConnectRequest, ListenRequest, Reach, Unreachable, destinations,
};

use super::authenticate::Protection;
use super::channel_security::{ChannelStack, GSI};
use super::{Session, User, names, replies};
use crate::routes::lead_here;

impl Session {
    /// `PASV`, `EPSV`, `SPAS`.
    pub(super) async fn passive(&mut self, user: &User, request: PassiveRequest) -> Reply {
        match self.answer_passive(user, request).await {
            Ok(reply) | Err(reply) => reply,
        }
    }

    async fn answer_passive(
        &mut self,
        user: &User,
        request: PassiveRequest,
    ) -> Result<Reply, Reply> {
        self.check_family(request)?;
        let stack = self.stack_of(request)?;
        self.note_port(&stack);
        match self
            .negotiated
            .passive(request)
            .map_err(|refusal| refusal.reply())?
        {
            Passive::Delay => {
                user.node.release();
                Ok(Reply::new(200, "Passive delayed."))
            }
            Passive::Listen { striped } => Ok(self.listen(user, request, striped).await?.reply()),
        }
    }

    /// Listens for data connections, and says where.
    pub(super) async fn listen(
        &mut self,
        user: &User,
        request: PassiveRequest,
        striped: bool,
    ) -> Result<PassiveAddress, Reply> {
        let stripes = if striped {
            self.settings.config.data.stripes
        } else {
            1
        };
        let stack = self.stack_of(request)?;
        let ChannelStack { stack, drivers } = self.channel_stack(stack).await?;
        let wanted = ListenRequest {
            stack,
            session_drivers: drivers,
            local: vec![self.data_address(); stripes],
            sockets: self.sockets(),
        };
        let node = Arc::clone(&user.node);
        let threads = &self.shared.threads;
        let listening = threads
            .log_in(&user.source, move || node.listen(&wanted))
            .await;
        let address = match listening {
            Some(Ok(addresses)) => self
                .advertised(request, addresses)
                .ok_or_else(no_such_address),
            Some(Err(error)) => Err(replies::listen_error(&error)),
            None => Err(Reply::new(451, "Command failed. : the server failed.")),
        };
        match address {
            Ok(_) => self.negotiated.listening(stripes),
            Err(_) => self.negotiated.port_failed(),
        }
        address
    }

    /// `PORT`, `EPRT`, `SPOR`: one address for each stripe.
    pub(super) async fn active(&mut self, user: &User, peers: &StripeAddresses) -> Reply {
        let stack = self.own_stack().clone();
        match self.connect(user, peers, stack).await {
            Ok(()) => Reply::new(200, "PORT Command successful."),
            Err(reply) => reply,
        }
    }

    /// Remembers where the next transfer connects to, and over what.
    pub(super) async fn connect(
        &mut self,
        user: &User,
        peers: &StripeAddresses,
        stack: StackSpec,
    ) -> Result<(), Reply> {
        self.check_peers(peers.as_slice())?;
        self.note_port(&stack);
        self.negotiated
            .active(peers)
            .map_err(|refusal| refusal.reply())?;
        let ChannelStack { stack, drivers } = match self.channel_stack(stack).await {
            Ok(stack) => stack,
            Err(reply) => {
                self.negotiated.port_failed();
                return Err(reply);
            }
        };
        let request = ConnectRequest {
            stack,
            session_drivers: drivers,
            peers: peers.as_slice().to_vec(),
            sockets: self.sockets(),
        };
        match user.node.connect(&request) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.negotiated.port_failed();
                Err(replies::connect_error(&error))
            }
        }
    }

    /// Data goes to the client and to hosts that the administrator named. RFC 2577 3: else a client
    /// could make the server talk to mail servers, for example. Who has proved an identity may name any
    /// host, which third-party copies need, but not what only this machine reaches.
    fn check_peers(&self, peers: &[SocketAddr]) -> Result<(), Reply> {
        let admission = match self.protection {
            Protection::Gsi(_) => Admission::Anyone,
            _ => self.settings.config.data.admission(self.peer),
        };
        for peer in peers {
            let (host, port) = (peer.ip(), peer.port());
            if port < 1024 {
                // The code that RFC 2577 3 suggests.
                return Err(Reply::new(
                    504,
                    format!("Illegal PORT command: port {port} is below 1024."),
                ));
            }
            self.check_reach(*peer)?;
            if !admission.admits(host) {
                let text = format!(
                    "Illegal PORT command: {host} is not your address, and the administrator of this \
                     server has not named it as a host for data connections (data-hosts)."
                );
                return Err(Reply::new(501, text));
            }
        }
        Ok(())
    }

    /// Refuses addresses behind which are services that only this machine reaches.
    fn check_reach(&self, peer: SocketAddr) -> Result<(), Reply> {
        let host = peer.ip();
        if host.to_canonical() == self.peer {
            return Ok(());
        }
        let machine = self.own_addresses(host).map_err(|error| {
            Reply::new(
                451,
                format!("Command failed. : the server cannot look up its own addresses: {error}."),
            )
        })?;
        let config = &self.settings.config.data;
        let advertised = config.advertise.into_iter();
        let advertised: Vec<_> = advertised
            .chain(self.settings.advertised_by_stack())
            .collect();
        let reach = Reach {
            client: self.peer,
            machine: &machine,
            advertised: &advertised,
            named: &config.named_hosts(),
        };
        match reach.check(host) {
            Ok(()) => Ok(()),
            // The other end of a copy within this server: a data port, which is open to the network anyway.
            Err(Unreachable::Own(_)) if self.is_own_data_port(peer, &machine) => Ok(()),
            Err(refusal) => Err(Reply::new(501, format!("Illegal PORT command: {refusal}."))),
        }
    }

    /// The addresses of this machine, with those that a connection to `host` may end up at.
    fn own_addresses(&self, host: IpAddr) -> io::Result<Vec<IpAddr>> {
        let mut own = self.shared.own_addresses.now()?.to_vec();
        own.push(self.local);
        for end in destinations(host) {
            if lead_here(end)? {
                own.push(end);
            }
        }
        Ok(own)
    }

    /// Whether a session of this server listens for data connections there.
    fn is_own_data_port(&self, peer: SocketAddr, machine: &[IpAddr]) -> bool {
        let node = &self.shared.node;
        let is_translated = self.settings.config.data.advertise == Some(peer.ip());
        node.listens_at(peer)
            // What leads to the advertised address comes to one of the machine's.
            || is_translated
                && machine
                    .iter()
                    .any(|own| node.listens_at(SocketAddr::new(*own, peer.port())))
    }

    /// `SITE SETNETSTACK`.
    pub(super) fn set_net_stack(&mut self, user: &User, request: &StackRequest) -> Reply {
        self.stack = match request {
            StackRequest::Default => None,
            StackRequest::Drivers(text) => match self.client_stack(text.as_str()) {
                Ok(stack) => Some(Box::new(stack)),
                Err(reason) => return replies::stack_error(&reason),
            },
        };
        user.settle(self.negotiated.set_stack(request.clone()));
        names::ok()
    }

    /// What the session's data channels run over, unless a command says otherwise for its port.
    pub(super) fn own_stack(&self) -> &StackSpec {
        self.stack.as_deref().unwrap_or(&self.settings.stack)
    }

    /// A stack that the client asks for, if it may have it.
    pub(super) fn client_stack(&self, text: &str) -> Result<StackSpec, String> {
        let stack = StackSpec::parse(text).map_err(|error| error.to_string())?;
        self.check_drivers(&stack)?;
        self.check_client_options(&stack)
            .map_err(|error| error.to_string())?;
        // What the administrator says of ports, addresses and devices holds whatever the client asks for.
        let registry = &self.shared.registry;
        let stack = registry.with_administrators_options(stack, &self.settings.stack);
        let stack = self.settings.with_ports(stack);
        let checked = self.shared.node.check_stack(&stack);
        checked.map_err(|error| error.to_string())?;
        Ok(stack)
    }

    /// Refuses drivers that this user may not have.
    fn check_drivers(&self, stack: &StackSpec) -> Result<(), String> {
        let data = &self.settings.config.data;
        let drivers = if self.is_anonymous() {
            &data.anonymous_drivers
        } else {
            &data.allowed_drivers
        };
        // Where authentication has its place in a stack is always for the client to say.
        let allowed = [drivers.as_slice(), &[GSI.to_owned()]].concat();
        let checked = self.shared.registry.check_allowed(stack, &allowed);
        checked.map_err(|error| match &error {
            StackError::NotAllowed(driver) if data.allowed_drivers.contains(driver) => format!(
                "{error} for anonymous users: log in, or ask the administrator to name it in anonymous-drivers"
            ),
            _ => error.to_string(),
        })
    }

    /// Refuses options that are for the administrator.
    pub(super) fn check_client_options(&self, stack: &StackSpec) -> Result<(), StackError> {
        let rules = &self.settings.config.data.client_options;
        self.shared.registry.check_options(stack, rules)
    }

    /// The buffers that the client asked for.
    fn sockets(&self) -> SocketOptions {
        let settings = self.negotiated.settings();
        SocketOptions {
            receive_buffer: buffer_size(settings.store_buffer_bytes),
            send_buffer: buffer_size(settings.retrieve_buffer_bytes),
        }
    }

    /// The local address of data connections.
    fn data_address(&self) -> IpAddr {
        self.settings.config.data.address.unwrap_or(self.local)
    }

    /// Refuses a form of address that cannot be had here.
    fn check_family(&self, request: PassiveRequest) -> Result<(), Reply> {
        let told = self
            .settings
            .config
            .data
            .advertise
            .unwrap_or_else(|| self.data_address());
        let here = Family::of(told);
        match request {
            PassiveRequest::Pasv if here == Family::Ipv6 => Err(no_such_address()),
            // RFC 2428 3.
            PassiveRequest::Epsv(Some(family)) | PassiveRequest::Spas(Some(family))
                if family != here =>
            {
                Err(Reply::new(
                    522,
                    format!("Network protocol not supported, use ({}).", here.number()),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The answer with the addresses that clients shall connect to.
    fn advertised(
        &self,
        request: PassiveRequest,
        listening: Vec<SocketAddr>,
    ) -> Option<PassiveAddress> {
        let data = &self.settings.config.data;
        let addresses: Vec<_> = listening
            .into_iter()
            .map(|address| {
                let host = data.advertise.unwrap_or_else(|| address.ip());
                SocketAddr::new(host, address.port())
            })
            .collect();
        let first = *addresses.first()?;
        match request {
            PassiveRequest::Pasv => match first {
                SocketAddr::V4(address) => Some(PassiveAddress::HostPort(address)),
                SocketAddr::V6(_) => None,
            },
            PassiveRequest::Rpsv(_) if let SocketAddr::V4(address) = first => {
                Some(PassiveAddress::HostPort(address))
            }
            PassiveRequest::Epsv(_) | PassiveRequest::Rpsv(_) if first.ip() == self.local => {
                Some(PassiveAddress::Port(first.port()))
            }
            PassiveRequest::Epsv(_) | PassiveRequest::Rpsv(_) => {
                Some(PassiveAddress::Extended(first))
            }
            PassiveRequest::Spas(None) => {
                StripeAddresses::new(addresses).map(PassiveAddress::Striped)
            }
            PassiveRequest::Spas(Some(_)) => {
                StripeAddresses::new(addresses).map(PassiveAddress::ExtendedStriped)
            }
        }
    }
}

fn no_such_address() -> Reply {
    Reply::new(
        425,
        "PASV cannot carry an IPv6 address, and this connection is IPv6; send EPSV.",
    )
}

/// The kernel's limits are below what does not fit here.
fn buffer_size(bytes: Option<u64>) -> BufferSize {
    bytes.map_or(BufferSize::Automatic, |bytes| {
        BufferSize::Bytes(u32::try_from(bytes).unwrap_or(u32::MAX))
    })
}
