//! `RADR`, `RPSV`, `RSTR` and `RRTR`: data by RDMA, for clients that know of RDMA and not of stacks.
//!
//! The first two set a data port whose connections run over the driver `rdma`, whatever the session's stack is; the
//! others are `STOR` and `RETR` that insist on such a port. Nothing else about them is different.

use std::net::SocketAddr;

use gridhaul_protocol::command::BufferBytes;
use gridhaul_protocol::negotiated::PassiveRequest;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};

use super::dispatch::one;
use super::{Session, User, replies};
use crate::transfer_verb::TransferVerb;

/// The driver, by its name.
const RDMA: &str = "rdma";

impl Session {
    /// `RADR`.
    pub(super) async fn active_by_rdma(
        &mut self,
        user: &User,
        peer: SocketAddr,
        buffer: Option<BufferBytes>,
    ) -> Reply {
        let connected = match self.rdma_stack(buffer) {
            Ok(stack) => self.connect(user, &one(peer), stack).await,
            Err(reason) => Err(replies::stack_error(&reason)),
        };
        match connected {
            Ok(()) => Reply::new(200, "RADR command successful."),
            Err(reply) => reply,
        }
    }

    /// The stack of the listener that a client asks for, before `gsi` has its place in it.
    pub(super) fn stack_of(&self, request: PassiveRequest) -> Result<StackSpec, Reply> {
        match request {
            PassiveRequest::Rpsv(buffer) => self
                .rdma_stack(buffer)
                .map_err(|reason| replies::stack_error(&reason)),
            _ => Ok(self.own_stack().clone()),
        }
    }

    /// Whether there is the driver, and the client may have it.
    pub(super) fn may_use_rdma(&self) -> bool {
        self.rdma_stack(None).is_ok()
    }

    /// Remembers what the data port that is set now runs over.
    pub(super) fn note_port(&mut self, stack: &StackSpec) {
        self.port_is_rdma = is_rdma(stack);
    }

    /// Refuses `RSTR` and `RRTR` if data would go another way.
    pub(super) fn check_rdma_port(&self, verb: TransferVerb) -> Result<(), Reply> {
        if self.port_is_rdma {
            return Ok(());
        }
        let reason = format!("{verb} needs a data port over rdma: send RADR or RPSV before it.");
        Err(Reply::new(503, reason))
    }

    /// The session's own stack if it is one over `rdma`, else that driver alone, if the administrator allows it;
    /// with slabs that are as large as the client's buffers.
    fn rdma_stack(&self, buffer: Option<BufferBytes>) -> Result<StackSpec, String> {
        /// The option of the driver.
        const SLAB: &str = "slab";

        let own = self.own_stack();
        let mut stack = if is_rdma(own) {
            own.clone()
        } else {
            self.client_stack(RDMA)?
        };
        if let (Some(BufferBytes(bytes)), Some(driver)) = (buffer, stack.drivers.first_mut()) {
            let slab = (SLAB.to_owned(), bytes.to_string());
            // Of the rest of the stack the client may have said nothing.
            let asked = StackSpec {
                drivers: vec![DriverSpec {
                    name: RDMA.to_owned(),
                    options: vec![slab.clone()],
                }],
            };
            driver.options.retain(|(name, _)| name != SLAB);
            driver.options.push(slab);
            self.check_client_options(&asked)
                .and_then(|()| self.shared.node.check_stack(&stack))
                .map_err(|error| error.to_string())?;
        }
        Ok(stack)
    }
}

fn is_rdma(stack: &StackSpec) -> bool {
    stack
        .drivers
        .first()
        .is_some_and(|driver| driver.name == RDMA)
}
