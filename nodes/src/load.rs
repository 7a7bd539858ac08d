//! The load of a node as a message.

use gridhaul_transfer::{NodeLoad, WorkerLoad};

use crate::generated as message;

pub(crate) fn message(load: &NodeLoad) -> message::Load {
    message::Load {
        senders: Some(workers(load.senders)),
        receivers: Some(workers(load.receivers)),
        buffer_bytes: load.buffer_bytes as u64,
        buffer_bytes_limit: load.buffer_bytes_limit as u64,
        buffers_awaited: load.buffers_awaited as u64,
        ..message::Load::default()
    }
}

pub(crate) fn of(sent: &message::Load) -> NodeLoad {
    NodeLoad {
        senders: to_workers(sent.senders),
        receivers: to_workers(sent.receivers),
        buffer_bytes: size(sent.buffer_bytes),
        buffer_bytes_limit: size(sent.buffer_bytes_limit),
        buffers_awaited: size(sent.buffers_awaited),
    }
}

fn workers(load: WorkerLoad) -> message::WorkerLoad {
    message::WorkerLoad {
        busy: load.busy as u64,
        limit: load.limit as u64,
        awaited: load.awaited as u64,
    }
}

fn to_workers(sent: Option<message::WorkerLoad>) -> WorkerLoad {
    let sent = sent.unwrap_or_default();
    WorkerLoad {
        busy: size(sent.busy),
        limit: size(sent.limit),
        awaited: size(sent.awaited),
    }
}

fn size(sent: u64) -> usize {
    usize::try_from(sent).unwrap_or(usize::MAX)
}
