//! The drivers that a program has, and stacks built from them.

use std::fmt;
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;

use crate::options::OptionDoc;
use crate::{Stack, StackError, Transform, Transport};

/// A kind of transport or transform that can be named in a stack string.
pub trait Driver: Send + Sync + fmt::Debug {
    /// The name in stack strings.
    fn name(&self) -> &'static str;

    /// The options there are.
    fn options(&self) -> &'static [OptionDoc];

    /// Applies options, and opens nothing. [`crate::options::Options`] does the checking.
    ///
    /// # Errors
    ///
    /// When an option is unknown or repeated, or its value is wrong.
    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError>;
}

/// What a driver is in a stack, with its options applied.
#[derive(Debug, Clone)]
pub enum Built {
    /// The bottom.
    Transport(Arc<dyn Transport>),
    /// Anything above.
    Transform(Arc<dyn Transform>),
}

/// The drivers of a program.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
}

impl Registry {
    /// A registry without drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver; it takes the place of an earlier one of the same name.
    pub fn register(&mut self, driver: impl Driver + 'static) {
        self.drivers.retain(|old| old.name() != driver.name());
        self.drivers.push(Arc::new(driver));
    }

    /// The drivers, in the order in which they were registered.
    pub fn drivers(&self) -> impl Iterator<Item = &dyn Driver> {
        self.drivers.iter().map(AsRef::as_ref)
    }

    /// The names of the drivers, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.drivers().map(Driver::name).collect();
        names.join(", ")
    }

    /// Refuses a stack with a driver that is not in the administrator's list. To be asked before
    /// [`Registry::build`] where the stack comes from a client: clients that try a driver which may
    /// not exist (`udt`) look for the words of [`StackError::NotAllowed`].
    ///
    /// # Errors
    ///
    /// [`StackError::NotAllowed`] with the first such driver.
    pub fn check_allowed(&self, stack: &StackSpec, allowed: &[String]) -> Result<(), StackError> {
        let refused = stack
            .drivers
            .iter()
            .find(|driver| !allowed.contains(&driver.name));
        match refused {
            Some(driver) => Err(StackError::NotAllowed(driver.name.clone())),
            None => Ok(()),
        }
    }

    /// Builds the drivers of a stack from the bottom up. Nothing is opened.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the stack.
    pub fn build(&self, stack: &StackSpec) -> Result<Stack, StackError> {
        let mut transport = None;
        let mut transforms = Vec::new();
        for spec in &stack.drivers {
            let driver = self
                .drivers()
                .find(|driver| driver.name() == spec.name)
                .ok_or_else(|| StackError::UnknownDriver {
                    name: spec.name.clone(),
                    known: self.names(),
                })?;
            match (driver.build(&spec.options)?, &transport) {
                (Built::Transport(built), None) => transport = Some(built),
                (Built::Transform(built), Some(_)) => transforms.push(built),
                (Built::Transform(_), None) => {
                    return Err(StackError::TransformAtBottom(driver.name()));
                }
                (Built::Transport(_), Some(_)) => {
                    return Err(StackError::TransportAboveBottom(driver.name()));
                }
            }
        }
        let transport = transport.ok_or_else(|| StackError::NoTransport {
            known: self.names(),
        })?;
        Ok(Stack::new(transport, transforms))
    }
}
