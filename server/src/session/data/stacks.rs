//! The driver stack of data channels: the server's own, the client's choice, and the one of the RDMA commands.

use gridhaul_protocol::command::BufferBytes;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_stack::StackError;

use crate::session::context::Context;

/// The driver whose place in a stack the client decides.
pub(crate) const GSI: &str = "gsi";

/// The driver of the commands `RADR` and `RPSV`.
const RDMA: &str = "rdma";

/// The choice of one session.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// From `SITE SETNETSTACK`. `None` is the server's own stack.
    chosen: Option<Box<StackSpec>>,
}

impl Stacks {
    pub(super) fn choose(&mut self, stack: Option<StackSpec>) {
        self.chosen = stack.map(Box::new);
    }

    /// The stack of the session's data channels, unless a command asks for another one for its port.
    pub(super) fn current<'a>(&'a self, context: &'a Context) -> &'a StackSpec {
        self.chosen.as_deref().unwrap_or(&context.settings.stack)
    }

    /// The stack of a port of `RADR` or `RPSV`: the session's own if it is one over `rdma`, else that driver alone, if the
    /// client may use it; with slabs of the size of the client's buffers.
    pub(super) fn over_rdma(
        &self,
        context: &Context,
        is_anonymous: bool,
        buffer: Option<BufferBytes>,
    ) -> Result<StackSpec, String> {
        /// An option of the driver.
        const SLAB: &str = "slab";

        let current = self.current(context);
        let mut stack = if is_rdma(current) {
            current.clone()
        } else {
            client_stack(context, is_anonymous, RDMA)?
        };
        if let (Some(BufferBytes(bytes)), Some(driver)) = (buffer, stack.drivers.first_mut()) {
            let slab = (SLAB.to_owned(), bytes.to_string());
            // The other options may be the administrator's, so only this one is checked.
            let asked = StackSpec {
                drivers: vec![DriverSpec {
                    name: RDMA.to_owned(),
                    options: vec![slab.clone()],
                }],
            };
            driver.options.retain(|(name, _)| name != SLAB);
            driver.options.push(slab);
            check_client_options(context, &asked)
                .and_then(|()| context.shared.node.check_stack(&stack))
                .map_err(|error| error.to_string())?;
        }
        Ok(stack)
    }
}

pub(super) fn is_rdma(stack: &StackSpec) -> bool {
    stack
        .drivers
        .first()
        .is_some_and(|driver| driver.name == RDMA)
}

/// A stack that a client asks for, if it may use it.
pub(super) fn client_stack(
    context: &Context,
    is_anonymous: bool,
    text: &str,
) -> Result<StackSpec, String> {
    let stack = StackSpec::parse(text).map_err(|error| error.to_string())?;
    check_drivers(context, is_anonymous, &stack)?;
    check_client_options(context, &stack).map_err(|error| error.to_string())?;
    // The administrator's ports, addresses and devices hold for every stack.
    let registry = &context.shared.registry;
    let stack = registry.with_administrators_options(stack, &context.settings.stack);
    let stack = context.settings.with_ports(stack);
    let checked = context.shared.node.check_stack(&stack);
    checked.map_err(|error| error.to_string())?;
    Ok(stack)
}

/// Refuses drivers that this client may not use.
fn check_drivers(context: &Context, is_anonymous: bool, stack: &StackSpec) -> Result<(), String> {
    let data = &context.config().data;
    let drivers = if is_anonymous {
        &data.anonymous_drivers
    } else {
        &data.allowed_drivers
    };
    // The client always decides where authentication is in the stack.
    let allowed = [drivers.as_slice(), &[GSI.to_owned()]].concat();
    let checked = context.shared.registry.check_allowed(stack, &allowed);
    checked.map_err(|error| match &error {
        StackError::NotAllowed(driver) if data.allowed_drivers.contains(driver) => format!(
            "{error} for anonymous users: log in, or ask the administrator to name it in anonymous-drivers"
        ),
        _ => error.to_string(),
    })
}

/// Refuses options that only the administrator may set.
fn check_client_options(context: &Context, stack: &StackSpec) -> Result<(), StackError> {
    let rules = &context.config().data.client_options;
    context.shared.registry.check_options(stack, rules)
}
