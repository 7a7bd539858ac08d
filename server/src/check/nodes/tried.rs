//! A transfer that a node carries out for this check.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::SocketOptions;
use gridhaul_transfer::{
    CancelReason, ConnectRequest, Event, Handling, LineSource, ListenRequest, NodeSession,
    Placement, Plan, RunningTransfer, Stripes, Task,
};

/// For a transfer of a few bytes, on a machine that is busy with others.
const LIMIT: Duration = Duration::from_secs(15);

/// A transfer under way.
pub(super) struct Tried {
    transfer: Arc<dyn RunningTransfer>,
    events: mpsc::Receiver<Event>,
}

impl Tried {
    pub(super) fn start(session: &dyn NodeSession, task: Task) -> Self {
        let (sender, events) = mpsc::channel();
        let plan = Plan {
            task,
            mode: TransferMode::Stream,
            representation: Representation::Image,
            parallelism: 1,
            layout: StripeLayout::Partitioned,
            handling: Handling::default(),
            share: None,
        };
        // After the limit, `finish` does not wait for the end any more.
        let sink = Box::new(move |event| drop(sender.send(event)));
        Self {
            transfer: session.transfer(plan, sink),
            events,
        }
    }

    /// Waits for the end; the error has the reason of a failure.
    pub(super) fn finish(self) -> Result<(), String> {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Finished(outcome)) => {
                    return outcome.result.map_err(|error| error.to_string());
                }
                Ok(_) => {}
                Err(_) => {
                    self.transfer.cancel(CancelReason::ControlChannelLost);
                    return Err(format!("no end within {} s", LIMIT.as_secs()));
                }
            }
        }
    }

    /// There is no peer any more.
    pub(super) fn give_up(self) {
        self.transfer.cancel(CancelReason::ControlChannelLost);
    }
}

/// Opens a data port.
pub(super) fn listen(session: &dyn NodeSession, stack: &StackSpec) -> Result<SocketAddr, String> {
    let request = ListenRequest {
        stack: stack.clone(),
        // The node listens at its own address.
        local: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        stripes: Stripes::One,
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    };
    let addresses = session
        .listen(&request)
        .map_err(|error| error.to_string())?;
    let first = addresses.first().copied();
    first.ok_or_else(|| "it has no data port".to_owned())
}

/// Has a session connect to a data port with its next transfer.
pub(super) fn connect(
    session: &dyn NodeSession,
    stack: &StackSpec,
    peer: SocketAddr,
) -> Result<(), String> {
    let request = ConnectRequest {
        stack: stack.clone(),
        peers: vec![peer],
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    };
    session.connect(&request).map_err(|error| error.to_string())
}

pub(super) fn send_file(path: PathBuf) -> Task {
    Task::SendFile {
        path,
        offset: 0,
        length: None,
        restart: RangeSet::default(),
    }
}

/// Sends what is no file: a node needs no right to read one.
pub(super) fn send_text(text: String) -> Task {
    let lines = move || Box::new(std::iter::once(Ok(text.clone().into_bytes())));
    Task::SendLines(LineSource {
        open: Arc::new(move |_| Ok(lines())),
    })
}

pub(super) fn receive_file(path: PathBuf) -> Task {
    Task::ReceiveFile {
        path,
        placement: Placement::Replace,
        restart: RangeSet::default(),
        promised: None,
    }
}
