//! One channel's queue pair, its memory, and how both are released.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use async_rdma::{AccessFlag, Gid, MrAccess, QueuePairEndpointBuilder, Rdma};
use gridhaul_rdma::provider::Region as RegionName;
use gridhaul_rdma::provider::{
    Access, AdapterPort, Completion, Endpoint, Fabric, FabricRecord, Limits, Loss, Memory,
    PortRecord, PostError, QueuePairRecord, Request, Span, Work,
};
use gridhaul_stack::Detail;
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use crate::connection::{Peer, PeerConnection};
use crate::device::{self, DEPTH, READS};
use crate::lending::lend;
use crate::queue_pair::{Event, QueuePair, Region};
use crate::signal::Signal;

/// The largest WRITE or READ, in bytes; devices allow 2 GiB, and count in 32 bits.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// One channel's queue pair.
///
/// A channel has only one: in async-rdma, every queue pair that the two ends connect themselves has its own protection
/// domain and would need its own ring. For the same reason a lost queue pair is not replaced.
#[derive(Debug)]
pub(crate) struct AsyncRdmaEndpoint {
    // They are dropped in this order: the queue pair before the memory that it uses.
    state: State,
    /// By identifier; `None` for released ones.
    regions: Vec<Option<Region>>,
    mtu: u8,
    port: AdapterPort,
    connection: Option<PeerConnection>,
    signal: Arc<Signal>,
    runtime: Handle,
    /// The sending direction ends; the farewell is sent or will be.
    has_ended: bool,
    /// The peer has ended its sending direction.
    has_farewell: bool,
}

/// The state of the queue pair.
#[derive(Debug)]
enum State {
    Unconnected(Box<Rdma>),
    Connected(QueuePair),
    Gone,
}

impl AsyncRdmaEndpoint {
    /// A queue pair that is not connected. `mtu` is a number as in [`PortRecord`].
    pub(crate) fn new(
        rdma: Rdma,
        mtu: u8,
        port: &AdapterPort,
        runtime: &Handle,
    ) -> io::Result<Self> {
        Ok(Self {
            state: State::Unconnected(Box::new(rdma)),
            regions: Vec::new(),
            mtu,
            port: port.clone(),
            connection: None,
            signal: Signal::new()?,
            runtime: runtime.clone(),
            has_ended: false,
            has_farewell: false,
        })
    }

    /// The reason why the queue pair failed, if it did; `failure` is the device's error.
    fn loss(&self, failure: Option<io::Error>) -> Option<Loss> {
        let peer = self
            .connection
            .as_ref()
            .map_or(Peer::There, PeerConnection::peer);
        if self.has_farewell || self.has_ended && peer >= Peer::Closed {
            return Some(Loss::Closed);
        }
        match (peer, failure) {
            // The end of the connection is a clearer reason than a device's timeout.
            (Peer::Lost, _) => Some(Loss::Reset),
            (_, Some(failure)) => Some(Loss::Failed(device::words(&failure))),
            _ => None,
        }
    }

    fn is_idle(&self) -> bool {
        match &self.state {
            State::Connected(queue_pair) => queue_pair.is_idle(),
            State::Unconnected(_) | State::Gone => true,
        }
    }

    fn lose(&mut self, loss: Loss, completions: &mut Vec<Completion>) {
        self.state = State::Gone;
        completions.push(Completion::Lost {
            queue_pair: 0,
            loss,
        });
    }
}

impl Fabric for AsyncRdmaEndpoint {
    fn record(&self) -> FabricRecord {
        let (number, lid) = match &self.state {
            State::Unconnected(rdma) => {
                let endpoint = rdma.get_qp_endpoint();
                (*endpoint.qp_num(), *endpoint.lid())
            }
            State::Connected(_) | State::Gone => (0, 0),
        };
        FabricRecord {
            ports: vec![PortRecord {
                gid: self.port.gid,
                lid,
                mtu: self.mtu,
                reads: READS,
                partition: 0xffff,
            }],
            // async-rdma sets the first packet sequence numbers before it knows the peer: both are zero.
            queue_pairs: vec![QueuePairRecord {
                number,
                first_packet: 0,
            }],
        }
    }

    fn connect(&mut self, peer: &FabricRecord, connection: OwnedFd) -> io::Result<()> {
        let ([queue_pair], [port]) = (&peer.queue_pairs[..], &peer.ports[..]) else {
            return Err(io::Error::other(
                "the other end has several queue pairs or adapters, and async-rdma one",
            ));
        };
        // async-rdma sets it before it knows the peer.
        if port.mtu != self.mtu {
            return Err(io::Error::other(
                "the two ends' links have different MTUs, which async-rdma cannot bridge",
            ));
        }
        let State::Unconnected(mut rdma) = std::mem::replace(&mut self.state, State::Gone) else {
            return Err(io::Error::other("the queue pair was connected before"));
        };
        let endpoint = QueuePairEndpointBuilder::default()
            .qp_num(queue_pair.number)
            .lid(port.lid)
            .gid(Gid::from_raw(port.gid))
            .build()
            .map_err(io::Error::other)?;
        self.runtime.block_on(rdma.ibv_connect(endpoint))?;
        self.state = State::Connected(QueuePair::new(*rdma, DEPTH, &self.signal)?);
        self.connection = Some(PeerConnection::new(connection)?);
        Ok(())
    }
}

impl Endpoint for AsyncRdmaEndpoint {
    fn limits(&self) -> Limits {
        Limits {
            queue_pairs: 1,
            rails: 1,
            depth: DEPTH,
            reads: usize::from(READS),
            message_bytes: MAX_TRANSFER_BYTES,
            // async-rdma sends from one part of one region.
            payload_bytes: 0,
            immediate: false,
            over_tcp: false,
            needs_polling: false,
            replaces: false,
        }
    }

    fn details(&self) -> Vec<Detail> {
        vec![
            Detail::text("provider", "async-rdma"),
            Detail::text("device", self.port.device.clone()),
            Detail::setting("gid", u64::from(self.port.gid_index)),
            Detail::setting("mtu-bytes", device::mtu_bytes(self.mtu)),
        ]
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<RegionName> {
        let rights = match access {
            Access::Local => Default::default(),
            // The device writes the bytes of a READ there.
            Access::Sink => AccessFlag::LocalWrite.into(),
            // ibv_reg_mr(3): remote writing needs local writing.
            Access::RemoteWrite => AccessFlag::LocalWrite | AccessFlag::RemoteWrite,
            Access::RemoteRead => AccessFlag::RemoteRead.into(),
        };
        let rdma = match &self.state {
            State::Unconnected(rdma) => rdma.as_ref(),
            State::Connected(queue_pair) => queue_pair.rdma(),
            State::Gone => return Err(io::Error::other("the queue pair is lost")),
        };
        let start = memory.pointer(Span::new(0, memory.length()));
        let allocate = |layout| rdma.alloc_local_mr_with_access(layout, rights);
        let owner = Arc::clone(memory);
        // SAFETY: the memory is mapped for as long as its owner lives, and all of it is used by raw pointers.
        let region = unsafe { lend(owner, start, memory.length(), allocate) }?;
        let name = RegionName {
            id: self.regions.len(),
            address: memory.address(),
            key: region.rkey(),
        };
        self.regions.push(Some(Arc::new(RwLock::new(region))));
        Ok(name)
    }

    fn deregister(&mut self, region: usize) {
        self.regions[region] = None;
    }

    fn post(&mut self, _: usize, request: Request) -> Result<(), PostError> {
        let State::Connected(queue_pair) = &mut self.state else {
            return Err(PostError::Lost);
        };
        if self.has_ended {
            return Err(PostError::Lost);
        }
        if queue_pair.is_full() {
            return Err(PostError::Full);
        }
        let region = |name: usize| {
            let registered = self.regions[name].as_ref();
            registered.expect("requests name regions that are there")
        };
        let id = request.id;
        match request.work {
            Work::Write {
                region: name,
                span,
                to,
                ..
            } => queue_pair.write(id, region(name), span, to),
            Work::Read {
                region: name,
                span,
                from,
            } => queue_pair.read(id, region(name), span, from),
            Work::Send(message) => queue_pair.send(id, &message),
            Work::Carry { .. } => unreachable!("messages take nothing along"),
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.signal.take();
        if let Some(connection) = &mut self.connection {
            connection.watch(&self.runtime, &self.signal);
        }
        let was_idle = self.is_idle();
        let failure = loop {
            let State::Connected(queue_pair) = &mut self.state else {
                return;
            };
            match queue_pair.next() {
                Ok(Some(Event::Done(id))) => {
                    completions.push(Completion::Done { queue_pair: 0, id })
                }
                Ok(Some(Event::Received(message))) if !self.has_ended => {
                    completions.push(Completion::Received {
                        queue_pair: 0,
                        message,
                    });
                }
                Ok(Some(Event::Received(_))) => {}
                Ok(Some(Event::FarewellSent)) => {
                    self.regions.fill_with(|| None);
                    self.connection.iter().for_each(PeerConnection::end);
                }
                Ok(Some(Event::Farewell)) => self.has_farewell = true,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        // Completed requests are reported first, and the end with the next poll.
        if self.has_farewell && !was_idle && failure.is_none() {
            if self.is_idle() {
                self.signal.give();
            }
        } else if let Some(loss) = self.loss(failure) {
            self.lose(loss, completions);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.signal.descriptor()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let was_there = queue_pair == 0 && matches!(self.state, State::Connected(_));
        if was_there {
            self.state = State::Gone;
        }
        was_there
    }

    fn end(&mut self) {
        if let State::Connected(queue_pair) = &mut self.state
            && !std::mem::replace(&mut self.has_ended, true)
        {
            queue_pair.bid_farewell();
        }
    }

    fn abort(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.reset();
        }
        self.state = State::Gone;
    }
}
