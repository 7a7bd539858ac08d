//! The node that attaches sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::StackError;

use super::config::NodeConfig;
use super::session::LocalSession;
use super::shared::NodeShared;
use crate::node::{AttachError, DataNode, NodeAccount, NodeLoad, NodeSession};

/// The data node in the same process, without messages between session and node.
#[derive(Debug)]
pub struct LocalNode {
    shared: Arc<NodeShared>,
}

impl LocalNode {
    /// A node without sessions; threads are started when transfers need them.
    pub fn new(config: NodeConfig) -> Self {
        let shared = Arc::new(NodeShared::new(config));
        Self { shared }
    }
}

impl DataNode for LocalNode {
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError> {
        let files = (self.shared.config.open_storage)(account)?;
        let session = LocalSession::new(self.shared.clone(), account.clone(), files);
        Ok(Arc::new(session))
    }

    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError> {
        self.shared.config.registry.build(stack).map(drop)
    }

    fn listens_at(&self, address: SocketAddr) -> bool {
        self.shared.open_ports.has(address)
    }

    fn load(&self) -> NodeLoad {
        let resources = &self.shared.resources;
        let buffers = resources.buffers.load();
        let bytes = resources.buffers.buffer_bytes();
        NodeLoad {
            senders: resources.senders.load(),
            receivers: resources.receivers.load(),
            buffer_bytes: buffers.held * bytes,
            buffer_bytes_limit: buffers.capacity * bytes,
            buffers_awaited: buffers.waiting,
        }
    }
}
