//! The drivers of a program, and the stacks that it builds from them.

use std::sync::Arc;

use gridhaul_protocol::stack::{DriverSpec, StackSpec};

use crate::options::Audience;
use crate::{Built, Driver, Gauge, OptionRules, Stack, StackError};

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

    /// Adds a driver. It replaces an earlier one of the same name.
    pub fn register(&mut self, driver: impl Driver + 'static) {
        self.register_shared(Arc::new(driver));
    }

    /// Adds a shared driver. It replaces an earlier one of the same name.
    pub fn register_shared(&mut self, driver: Arc<dyn Driver>) {
        self.drivers.retain(|old| old.name() != driver.name());
        self.drivers.push(driver);
    }

    /// A copy with `drivers` added, which replace those of the same name. For sessions whose drivers hold state of the session.
    #[must_use]
    pub fn with(&self, drivers: &[Arc<dyn Driver>]) -> Self {
        let mut registry = self.clone();
        for driver in drivers {
            registry.register_shared(Arc::clone(driver));
        }
        registry
    }

    /// The drivers, in the order in which they were registered.
    pub fn drivers(&self) -> impl Iterator<Item = &dyn Driver> {
        self.drivers.iter().map(AsRef::as_ref)
    }

    /// The driver of this name.
    pub fn driver(&self, name: &str) -> Option<&dyn Driver> {
        self.drivers().find(|driver| driver.name() == name)
    }

    /// Whether the driver of this name documents an option.
    pub fn has_option(&self, driver: &str, option: &str) -> bool {
        let options = self.driver(driver).map_or(&[][..], Driver::options);
        options.iter().any(|document| document.name == option)
    }

    /// Bounds the memory that each driver keeps for the channels of the process.
    pub fn limit_memory(&self, bytes: u64) {
        self.drivers().for_each(|driver| driver.limit_memory(bytes));
    }

    /// The gauges of all drivers.
    pub fn gauges(&self) -> Vec<Gauge> {
        self.drivers().flat_map(Driver::gauges).collect()
    }

    /// The names of the drivers, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.drivers().map(Driver::name).collect();
        names.join(", ")
    }

    /// Refuses a stack with a driver that is not in the administrator's list. Call it before [`Registry::build`] for stacks of
    /// clients: clients that try a driver which may not exist (`udt`) look for the text of [`StackError::NotAllowed`].
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

    /// Refuses options that clients may not set. If `rules` has an entry for a driver, that decides; otherwise the documented
    /// audience of the option.
    ///
    /// # Errors
    ///
    /// [`StackError::OptionNotAllowed`] with the first such option.
    pub fn check_options(
        &self,
        stack: &StackSpec,
        rules: &[OptionRules],
    ) -> Result<(), StackError> {
        for spec in &stack.drivers {
            let Some(driver) = self.driver(&spec.name) else {
                continue;
            };
            match rules.iter().find(|rules| rules.driver() == spec.name) {
                Some(rules) => rules.check_options(driver, &spec.options)?,
                None => OptionRules::documented(driver).check_options(driver, &spec.options)?,
            }
        }
        Ok(())
    }

    /// Checks that rules are valid for their driver.
    ///
    /// # Errors
    ///
    /// [`StackError::UnknownDriver`], and as for [`OptionRules::check`].
    pub fn check_rules(&self, rules: &OptionRules) -> Result<(), StackError> {
        rules.check(self.known(rules.driver())?)
    }

    /// The stack of a client, with the administrator's options from `own`, the server's own stack, that the client's stack does
    /// not set. An option applies to the same driver, and from transport to transport if both document it identically: the
    /// ports and addresses of `auto` apply to `tcp` and `rdma` too.
    #[must_use]
    pub fn with_administrators_options(&self, mut stack: StackSpec, own: &StackSpec) -> StackSpec {
        for (index, spec) in stack.drivers.iter_mut().enumerate() {
            let mut of_own = own.drivers.iter();
            let from = match index {
                0 => of_own.next(),
                _ => of_own.skip(1).find(|from| from.name == spec.name),
            };
            if let Some(from) = from {
                self.carry_over(from, spec);
            }
        }
        stack
    }

    fn carry_over(&self, from: &DriverSpec, to: &mut DriverSpec) {
        let (Some(source), Some(target)) = (self.driver(&from.name), self.driver(&to.name)) else {
            return;
        };
        for (name, value) in &from.options {
            let document = source.options().iter().find(|option| option.name == name);
            let Some(document) = document else { continue };
            let is_given = to.options.iter().any(|(given, _)| given == name);
            if matches!(document.audience, Audience::Administrator(_))
                && target.options().contains(document)
                && !is_given
            {
                to.options.push((name.clone(), value.clone()));
            }
        }
    }

    /// The driver of this name.
    fn known(&self, name: &str) -> Result<&dyn Driver, StackError> {
        self.driver(name).ok_or_else(|| StackError::UnknownDriver {
            name: name.to_owned(),
            known: self.names(),
        })
    }

    /// Builds the drivers of a stack from the bottom up. Opens nothing.
    ///
    /// # Errors
    ///
    /// The first error in the stack.
    pub fn build(&self, stack: &StackSpec) -> Result<Stack, StackError> {
        let mut transport = None;
        let mut transforms = Vec::new();
        for spec in &stack.drivers {
            let driver = self.known(&spec.name)?;
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

#[cfg(test)]
mod tests;
