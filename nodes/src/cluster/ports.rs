//! The members that hold the data port of a session, and the transfers that start there.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::{mem, thread};

use gridhaul_stack::StackError;
use gridhaul_transfer::{
    ConnectRequest, EventSink, ListenFailure, ListenRequest, NodeSession, Plan, RunningTransfer,
    SequenceError, Stripes, TransferError,
};

use super::attachments::{Attached, Attachments, NotUsed, Used};
use super::choice::Purpose;
use super::joint::Joint;
use super::member::{Counted, Record};
use super::port::{Part, Port, can_share, distribute, should_share};
use super::reasons::list;
use super::shared::Shared;
use super::single::{self, Start};
use super::storage::ClusterStorage;
use crate::sync::lock;

/// The data port of a session.
#[derive(Debug)]
pub(super) struct Ports {
    shared: Arc<Shared>,
    attachments: Arc<Attachments>,
    storage: Arc<ClusterStorage>,
    slot: Mutex<Slot>,
}

/// The present data port.
#[derive(Debug, Default)]
struct Slot {
    port: Port,
    /// How many ports there were before.
    number: u64,
}

impl Slot {
    fn replace(&mut self, port: Port) -> Port {
        self.number += 1;
        mem::replace(&mut self.port, port)
    }
}

impl Ports {
    pub(super) fn new(
        shared: &Arc<Shared>,
        attachments: Arc<Attachments>,
        storage: Arc<ClusterStorage>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            attachments,
            storage,
            slot: Mutex::default(),
        })
    }

    /// The member that has the whole data port.
    pub(super) fn only(&self) -> Option<Attached> {
        lock(&self.slot).port.only().cloned()
    }

    /// The session on the member that sends the next file: the one with the data port, else that of the storage.
    pub(super) fn sender(&self) -> Arc<dyn NodeSession> {
        let only = self.only();
        only.unwrap_or_else(|| self.storage.present()).session
    }

    /// Closes all channels and listeners.
    pub(super) fn release(&self) {
        self.take();
    }

    /// As [`Self::release`]; returns the port.
    fn take(&self) -> Port {
        let before = lock(&self.slot).replace(Port::None);
        before.release();
        self.attachments.release();
        before
    }

    /// Listens on the best members. Blocks.
    pub(super) fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        // The old listeners are closed first: the port range of a member may have no other free ports.
        let holder = self.take().holder();
        let (wanted, stripes) = match request.stripes {
            Stripes::Many { at_most } if self.shared.config.spread_stripes => {
                (at_most, Stripes::One)
            }
            stripes => (1, stripes),
        };
        let request = ListenRequest {
            stripes,
            ..request.clone()
        };
        let members = self.ranked(wanted, holder);
        let (parts, addresses) = self.listen_on(&members, wanted, &request)?;
        let counted = count(&parts);
        lock(&self.slot).replace(Port::Placed { parts, counted });
        Ok(addresses)
    }

    /// Remembers the peers. Which members connect to them is decided when a transfer starts.
    pub(super) fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        self.release();
        // The drivers of the session have keys, which go to the members of the transfer only.
        let record = self.storage.present().record;
        record.node.check_stack(&request.stack)?;
        lock(&self.slot).replace(Port::Peers(request.clone()));
        Ok(())
    }

    /// Starts a transfer.
    pub(super) fn start(
        self: &Arc<Self>,
        plan: (Plan, Start),
        events: EventSink,
    ) -> Arc<dyn RunningTransfer> {
        let mut slot = lock(&self.slot);
        let number = slot.number;
        match &mut slot.port {
            Port::None | Port::Spent => {
                drop(slot);
                failed(events, SequenceError::NoDataPort.into())
            }
            Port::Placed { parts, counted } => {
                let parts = parts.clone();
                let mut counted = mem::take(counted);
                if counted.is_empty() {
                    counted = count(&parts);
                }
                drop(slot);
                self.start_placed((parts, counted), number, plan, events)
            }
            Port::Peers(request) => {
                let request = request.clone();
                drop(slot);
                self.start_on_peers(request, number, plan, events)
            }
        }
    }

    /// Starts a transfer on the members that have the data port.
    fn start_placed(
        self: &Arc<Self>,
        (parts, mut counted): (Vec<Part>, Vec<Counted>),
        number: u64,
        (plan, start): (Plan, Start),
        events: EventSink,
    ) -> Arc<dyn RunningTransfer> {
        if let [only] = parts.as_slice()
            && let Some(counted) = counted.pop()
        {
            return single::run(&only.attached, counted, (plan, start), events);
        }
        if !can_share(&plan) {
            let reason = "only one data node can carry out this transfer, and the data port is on several; \
                          send PASV or EPSV before it";
            return failed(events, TransferError::Local(reason.to_owned()));
        }
        let joint = self.joint(number, events);
        joint.begin_placed(parts.into_iter().zip(counted).collect(), plan);
        joint
    }

    /// Distributes the peers and starts a transfer: at once on a member that the session is attached to, else on a thread.
    fn start_on_peers(
        self: &Arc<Self>,
        request: ConnectRequest,
        number: u64,
        (plan, start): (Plan, Start),
        events: EventSink,
    ) -> Arc<dyn RunningTransfer> {
        let wanted = if self.shared.config.spread_stripes && should_share(&plan) {
            request.peers.len()
        } else {
            1
        };
        let members = self.ranked(wanted, None);
        if wanted == 1
            && let Some(best) = members.first()
            && let Some(known) = self.attachments.known(best)
            && let Ok(parts) = self.connect_from(vec![known], &request)
            && let Some(counted) = self.place(&parts, number)
        {
            return self.start_placed((parts, counted), number, (plan, start), events);
        }
        let joint = self.joint(number, events);
        let starting = Arc::clone(&joint);
        let inner = Arc::clone(self);
        let start = move || {
            let placed = catch_unwind(AssertUnwindSafe(|| {
                inner.recruit_senders(&members, wanted, &request)
            }));
            let placed = placed.unwrap_or_else(|_| Err("the attachment panicked".to_owned()));
            match placed {
                Ok(parts) => match inner.place(&parts, number) {
                    Some(counted) => {
                        starting.begin(parts.into_iter().zip(counted).collect(), &plan);
                    }
                    None => starting.fail(SequenceError::NoDataPort.into()),
                },
                Err(reason) => starting.fail(TransferError::Local(reason)),
            }
        };
        let thread = thread::Builder::new().name("cluster".to_owned());
        if let Err(error) = thread.spawn(start) {
            let reason = format!("cannot start a thread: {error}");
            joint.fail(TransferError::Local(reason));
        }
        joint
    }

    /// A transfer on several members, whose failure makes the data port unusable.
    fn joint(self: &Arc<Self>, number: u64, events: EventSink) -> Arc<Joint> {
        let inner = Arc::clone(self);
        let at_end = move |succeeded: bool| {
            let mut slot = lock(&inner.slot);
            if !succeeded && slot.number == number {
                slot.replace(Port::Spent);
            }
        };
        Joint::new(events, Box::new(at_end))
    }

    /// Usable members, the best first. For one member: those where the session has something, if they are nearly as well off.
    fn ranked(&self, wanted: usize, holder: Option<Arc<Record>>) -> Vec<Arc<Record>> {
        let mut ranked = self.shared.ranked(Purpose::Transfer);
        if wanted == 1
            && let Some(&(best, _)) = ranked.first()
        {
            let storage = self.storage.present().record;
            for (preferred, slack) in [(holder, 1), (Some(storage), 0)] {
                let near = ranked.iter().position(|(standing, record)| {
                    let is_it = preferred
                        .as_ref()
                        .is_some_and(|one| Arc::ptr_eq(one, record));
                    is_it && standing.is_near(&best, slack, &record.node.load())
                });
                if let Some(place) = near {
                    ranked[..=place].rotate_right(1);
                    break;
                }
            }
        }
        ranked.into_iter().map(|(_, record)| record).collect()
    }

    /// Attaches to up to `wanted` members and distributes the peers among them. Blocks.
    fn recruit_senders(
        &self,
        members: &[Arc<Record>],
        wanted: usize,
        request: &ConnectRequest,
    ) -> Result<Vec<Part>, String> {
        if members.is_empty() {
            return Err(self.shared.unavailable());
        }
        let attach = |_: &Attached| Ok::<(), Infallible>(());
        let Used { done, troubles } =
            self.attachments
                .use_members(members, wanted, &attach, |_| false);
        if done.is_empty() {
            return Err(list(troubles.into_iter().map(|(name, trouble)| {
                let NotUsed::Attach(error) = trouble;
                (name, error)
            })));
        }
        let attached = done.into_iter().map(|(attached, ())| attached).collect();
        self.connect_from(attached, request)
    }

    /// Tells members their peers. Members that refuse are left out.
    fn connect_from(
        &self,
        mut members: Vec<Attached>,
        request: &ConnectRequest,
    ) -> Result<Vec<Part>, String> {
        let mut troubles = Vec::new();
        while !members.is_empty() {
            let parts = distribute(&members, request.peers.len());
            let refused = parts.iter().enumerate().find_map(|(index, part)| {
                let peers = part.stripes.iter().map(|&stripe| request.peers[stripe]);
                let request = ConnectRequest {
                    peers: peers.collect(),
                    ..request.clone()
                };
                Some((index, part.attached.session.connect(&request).err()?))
            });
            let Some((index, error)) = refused else {
                return Ok(parts);
            };
            troubles.push((members.remove(index).record.name.clone(), error));
        }
        Err(list(troubles.into_iter()))
    }

    /// Makes these members the holders of the data port, unless the client has requested another one.
    fn place(&self, parts: &[Part], number: u64) -> Option<Vec<Counted>> {
        let mut slot = lock(&self.slot);
        if slot.number != number {
            drop(slot);
            parts
                .iter()
                .for_each(|part| part.attached.session.release());
            return None;
        }
        slot.port = Port::Placed {
            parts: parts.to_vec(),
            counted: Vec::new(),
        };
        Some(count(parts))
    }

    /// Listens on up to `wanted` members. Blocks.
    fn listen_on(
        &self,
        members: &[Arc<Record>],
        wanted: usize,
        request: &ListenRequest,
    ) -> Result<(Vec<Part>, Vec<SocketAddr>), ListenFailure> {
        if members.is_empty() {
            return Err(ListenFailure::Nodes(self.shared.unavailable()));
        }
        let listen = |attached: &Attached| attached.session.listen(request);
        // A stack that cannot be built is the client's choice, and no member will build it.
        let is_final = |error: &ListenFailure| matches!(error, ListenFailure::Stack(_));
        let used = self
            .attachments
            .use_members(members, wanted, &listen, is_final);
        let mut parts = Vec::new();
        let mut addresses = Vec::new();
        for (attached, listening) in used.done {
            let first = addresses.len();
            addresses.extend(listening);
            let stripes = (first..addresses.len()).collect();
            parts.push(Part { attached, stripes });
        }
        if addresses.is_empty() {
            return Err(refusal(used.troubles));
        }
        for (node, trouble) in used.troubles {
            tracing::warn!(node, ?trouble, "a data node does not listen");
        }
        Ok((parts, addresses))
    }
}

fn count(parts: &[Part]) -> Vec<Counted> {
    let records = parts.iter().map(|part| &part.attached.record);
    records.map(|record| record.count_transfer()).collect()
}

/// Why no member listens. A single reason keeps its type, by which the server decides.
fn refusal(mut troubles: Vec<(String, NotUsed<ListenFailure>)>) -> ListenFailure {
    let last = troubles.pop();
    match last {
        Some((_, NotUsed::Refused(error @ ListenFailure::Stack(_)))) => error,
        Some((_, NotUsed::Refused(error))) if troubles.is_empty() => error,
        last => {
            troubles.extend(last);
            let reasons = troubles.into_iter().map(|(name, trouble)| {
                let reason = match trouble {
                    NotUsed::Attach(error) => error.to_string(),
                    NotUsed::Refused(error) => error.to_string(),
                };
                (name, reason)
            });
            ListenFailure::Nodes(format!("no data node listens: {}", list(reasons)))
        }
    }
}

/// A transfer that has failed before its start.
fn failed(events: EventSink, error: TransferError) -> Arc<dyn RunningTransfer> {
    let joint = Joint::new(events, Box::new(|_| {}));
    joint.fail(error);
    joint
}
