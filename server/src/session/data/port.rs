//! The data port of a session: `PASV`, `PORT` and their variants.

use std::net::SocketAddr;
use std::sync::Arc;

use gridhaul_protocol::address::{PassiveAddress, StripeAddresses};
use gridhaul_protocol::command::{BufferBytes, DataChannelContext, StackRequest};
use gridhaul_protocol::negotiated::{Passive, PassiveRequest, Settings};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_security::credential::Credential;
use gridhaul_stack::{BufferSize, ListenError, SocketOptions};
use gridhaul_transfer::{ConnectRequest, ListenFailure, ListenRequest, Stripes};

use super::addresses::{advertised, check_family, local_address};
use super::channel_security::{ChannelStack, Credentials, secured};
use super::peers::check_peers;
use super::stacks::{Stacks, client_stack, is_rdma};
use crate::session::call::Call;
use crate::session::context::Context;
use crate::session::replies;
use crate::telemetry::Event;
use crate::transfer_verb::TransferVerb;

/// A command that sets the data port, or what its channels run over.
#[derive(Debug)]
pub(crate) enum DataPortCommand {
    /// `PASV`, `EPSV`, `SPAS`, `RPSV`.
    Passive(PassiveRequest),
    /// `PORT`, `EPRT`, `SPOR`: one address for each stripe.
    Active(StripeAddresses),
    /// `RADR`.
    ActiveOverRdma {
        peer: SocketAddr,
        buffer: Option<BufferBytes>,
    },
    /// `DCSC`.
    Credential(DataChannelContext),
    /// `SITE SETNETSTACK`.
    Stack(StackRequest),
}

#[derive(Debug, Default)]
pub(crate) struct DataPort {
    stacks: Stacks,
    /// From `DCSC P`.
    credential: Option<Arc<Credential>>,
    /// The last data port runs over the driver `rdma`.
    is_rdma: bool,
}

impl DataPort {
    pub(crate) async fn execute(
        &mut self,
        call: &mut Call<'_>,
        command: DataPortCommand,
    ) -> Result<Reply, Reply> {
        match command {
            DataPortCommand::Passive(request) => self.passive(call, request).await,
            DataPortCommand::Active(peers) => self.active(call, &peers).await,
            DataPortCommand::ActiveOverRdma { peer, buffer } => {
                self.active_over_rdma(call, peer, buffer).await
            }
            DataPortCommand::Credential(context) => self.set_credential(call, &context),
            DataPortCommand::Stack(request) => self.set_stack(call, &request),
        }
    }

    /// The stack of data channels, unless a command asks for another one for its port.
    pub(crate) fn stack<'a>(&'a self, context: &'a Context) -> &'a StackSpec {
        self.stacks.current(context)
    }

    /// Whether the driver `rdma` exists and the client may use it.
    pub(crate) fn may_use_rdma(&self, context: &Context, is_anonymous: bool) -> bool {
        self.stacks.over_rdma(context, is_anonymous, None).is_ok()
    }

    /// Refuses `RSTR` and `RRTR` if the data port is not one over RDMA.
    pub(crate) fn check_verb(&self, verb: TransferVerb) -> Result<(), Reply> {
        if self.is_rdma || !verb.needs_rdma() {
            return Ok(());
        }
        let reason = format!("{verb} needs a data port over rdma: send RADR or RPSV before it.");
        Err(Reply::new(503, reason))
    }

    async fn passive(
        &mut self,
        call: &mut Call<'_>,
        request: PassiveRequest,
    ) -> Result<Reply, Reply> {
        check_family(call.context, request)?;
        let stack = self.stack_of(call, request)?;
        self.is_rdma = is_rdma(&stack);
        match call
            .negotiated
            .passive(request)
            .map_err(|refusal| refusal.reply())?
        {
            Passive::Delay => {
                call.user.node.release();
                Ok(Reply::new(200, "Passive delayed."))
            }
            Passive::Listen { striped } => Ok(self.listen(call, request, striped).await?.reply()),
        }
    }

    /// Listens for data connections. Returns the addresses for the client.
    pub(crate) async fn listen(
        &self,
        call: &mut Call<'_>,
        request: PassiveRequest,
        striped: bool,
    ) -> Result<PassiveAddress, Reply> {
        let at_most = call.context.config().data.stripes;
        let stack = self.stack_of(call, request)?;
        let ChannelStack { stack, drivers } = self.secured(call, stack).await?;
        let wanted = ListenRequest {
            stack,
            session_drivers: drivers,
            local: local_address(call.context),
            stripes: if striped {
                Stripes::Many { at_most }
            } else {
                Stripes::One
            },
            sockets: sockets(call.negotiated.settings()),
        };
        let node = Arc::clone(&call.user.node);
        let threads = &call.context.shared.threads;
        let listening = threads
            .log_in(&call.user.source, move || node.listen(&wanted))
            .await;
        let mut stripes = 0;
        let address = match listening {
            Some(Ok(addresses)) => {
                stripes = addresses.len();
                advertised(call.context, request, addresses)
            }
            Some(Err(error)) => {
                tell_exhaustion(call, &error);
                Err(replies::listen_error(&error))
            }
            None => Err(replies::server_failed()),
        };
        match address {
            Ok(_) => call.negotiated.listening(stripes),
            Err(_) => call.negotiated.port_failed(),
        }
        address
    }

    async fn active(
        &mut self,
        call: &mut Call<'_>,
        peers: &StripeAddresses,
    ) -> Result<Reply, Reply> {
        let stack = self.stack(call.context).clone();
        self.connect(call, peers, stack).await?;
        Ok(Reply::new(200, "PORT Command successful."))
    }

    async fn active_over_rdma(
        &mut self,
        call: &mut Call<'_>,
        peer: SocketAddr,
        buffer: Option<BufferBytes>,
    ) -> Result<Reply, Reply> {
        let peers = StripeAddresses::from(peer);
        let stack = self.rdma_stack(call, buffer)?;
        self.connect(call, &peers, stack).await?;
        Ok(Reply::new(200, "RADR command successful."))
    }

    /// Notes where the next transfer connects to, and over which stack.
    async fn connect(
        &mut self,
        call: &mut Call<'_>,
        peers: &StripeAddresses,
        stack: StackSpec,
    ) -> Result<(), Reply> {
        check_peers(call.context, call.user, peers.as_slice())?;
        self.is_rdma = is_rdma(&stack);
        call.negotiated
            .active(peers)
            .map_err(|refusal| refusal.reply())?;
        let connected = match self.secured(call, stack).await {
            Ok(ChannelStack { stack, drivers }) => {
                let request = ConnectRequest {
                    stack,
                    session_drivers: drivers,
                    peers: peers.as_slice().to_vec(),
                    sockets: sockets(call.negotiated.settings()),
                };
                let connected = call.user.node.connect(&request);
                connected.map_err(|error| replies::connect_error(&error))
            }
            Err(reply) => Err(reply),
        };
        if connected.is_err() {
            call.negotiated.port_failed();
        }
        connected
    }

    fn set_credential(
        &mut self,
        call: &mut Call<'_>,
        context: &DataChannelContext,
    ) -> Result<Reply, Reply> {
        self.credential = match context {
            DataChannelContext::Default => None,
            DataChannelContext::Credential(text) => {
                let pem = text.decode().ok_or_else(|| {
                    Reply::new(501, "Invalid base64 input for credential type P.")
                })?;
                let credential = Credential::of_session(&pem).map_err(|error| {
                    let reason = error.to_string();
                    Reply::coded(500, "Credential import failed.", [reason], "End.")
                })?;
                Some(Arc::new(credential))
            }
        };
        let own = self.credential.is_some();
        call.user.settle(call.negotiated.set_own_credential(own));
        Ok(replies::ok())
    }

    fn set_stack(&mut self, call: &mut Call<'_>, request: &StackRequest) -> Result<Reply, Reply> {
        let stack = match request {
            StackRequest::Default => None,
            StackRequest::Drivers(text) => {
                let stack = client_stack(call.context, call.user.is_anonymous, text.as_str());
                Some(stack.map_err(|reason| replies::stack_error(&reason))?)
            }
        };
        self.stacks.choose(stack);
        call.user.settle(call.negotiated.set_stack(request.clone()));
        Ok(replies::ok())
    }

    /// The stack of the listener that a client asks for, without security.
    fn stack_of(&self, call: &Call<'_>, request: PassiveRequest) -> Result<StackSpec, Reply> {
        match request {
            PassiveRequest::Rpsv(buffer) => self.rdma_stack(call, buffer),
            PassiveRequest::Pasv | PassiveRequest::Epsv(_) | PassiveRequest::Spas(_) => {
                Ok(self.stack(call.context).clone())
            }
        }
    }

    /// The stack of a port that an RDMA command sets, without security.
    fn rdma_stack(&self, call: &Call<'_>, buffer: Option<BufferBytes>) -> Result<StackSpec, Reply> {
        self.stacks
            .over_rdma(call.context, call.user.is_anonymous, buffer)
            .map_err(|reason| replies::stack_error(&reason))
    }

    async fn secured(&self, call: &mut Call<'_>, stack: StackSpec) -> Result<ChannelStack, Reply> {
        let credentials = Credentials {
            user: call.user,
            own: self.credential.as_ref(),
        };
        secured(call.context, call.negotiated, credentials, stack).await
    }
}

/// The port range is too small for the present transfers, which the client cannot change.
fn tell_exhaustion(call: &Call<'_>, error: &ListenFailure) {
    if let ListenFailure::Listen(ListenError::PortRangeExhausted { .. }) = error {
        call.context.publish(&Event::PortsExhausted {
            session: call.context.id,
            peer: call.context.peer,
            error: &error.to_string(),
        });
    }
}

/// The buffers that the client asked for.
fn sockets(settings: &Settings) -> SocketOptions {
    SocketOptions {
        receive_buffer: buffer_size(settings.store_buffer_bytes),
        send_buffer: buffer_size(settings.retrieve_buffer_bytes),
        ..SocketOptions::default()
    }
}

/// A size that does not fit is above the kernel's limit anyway.
fn buffer_size(bytes: Option<u64>) -> BufferSize {
    bytes.map_or(BufferSize::Automatic, |bytes| {
        BufferSize::Bytes(u32::try_from(bytes).unwrap_or(u32::MAX))
    })
}
