//! The drivers that a program has, and stacks built from them.

use std::fmt;
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;

use crate::options::OptionDoc;
use crate::{OptionRules, Stack, StackError, Transform, Transport};

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
        self.register_shared(Arc::new(driver));
    }

    /// Adds a driver that others hold too; it takes the place of an earlier one of the same name.
    pub fn register_shared(&mut self, driver: Arc<dyn Driver>) {
        self.drivers.retain(|old| old.name() != driver.name());
        self.drivers.push(driver);
    }

    /// These drivers and `drivers`, which take the place of those of the same name: what a session
    /// builds its stacks from, where a driver must know who the session is.
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

    /// Refuses options that the administrator does not let clients set. Of drivers without rules they may set all.
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
            for rules in rules.iter().filter(|rules| rules.driver() == spec.name) {
                rules.check_options(driver, &spec.options)?;
            }
        }
        Ok(())
    }

    /// Whether rules mean something. Those for drivers that the program does not have do no harm.
    ///
    /// # Errors
    ///
    /// See [`OptionRules::check`].
    pub fn check_rules(&self, rules: &OptionRules) -> Result<(), StackError> {
        let driver = self.driver(rules.driver());
        driver.map_or(Ok(()), |driver| rules.check(driver))
    }

    fn driver(&self, name: &str) -> Option<&dyn Driver> {
        self.drivers().find(|driver| driver.name() == name)
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
                .driver(&spec.name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Memory, Null, Trace};

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry.register(Null);
        registry.register(Memory);
        registry.register(Fault);
        registry
    }

    fn build(stack: &str) -> Result<Stack, StackError> {
        registry().build(&StackSpec::parse(stack).unwrap())
    }

    #[test]
    fn builds_what_is_there() {
        for stack in [
            "null",
            "memory",
            "memory:buffer=1M,fault:short=1;seed=3,fault",
        ] {
            build(stack).unwrap();
        }
    }

    #[test]
    fn says_what_is_wrong_and_what_there_is() {
        for (stack, words) in [
            (
                "tpc:port=1",
                "there is no driver \"tpc\"; the drivers are: null, memory, fault",
            ),
            (
                "null:byte=1",
                "the driver null has no option \"byte\"; its options are, with examples: bytes=1G",
            ),
            (
                "null:bytes=1;bytes=2",
                "the option bytes of the driver null is given twice",
            ),
            (
                "null:bytes=many",
                "the value \"many\" of the option bytes of the driver null is wrong: it is not a \
                 number of bytes; an example is bytes=1G",
            ),
            (
                "fault,memory",
                "the driver fault is not a transport and cannot come first; the stack starts with \
                 its transport, as in tcp,fault",
            ),
            (
                "memory,null",
                "the driver null is a transport and must come first; there is one transport in a \
                 stack",
            ),
        ] {
            assert_eq!(build(stack).unwrap_err().to_string(), words);
        }
        let empty = StackSpec {
            drivers: Vec::new(),
        };
        assert_eq!(
            registry().build(&empty).unwrap_err().to_string(),
            "the driver stack is empty; the drivers are: null, memory, fault"
        );
    }

    #[test]
    fn a_driver_without_options_says_so() {
        let options = [("verbose".to_owned(), "1".to_owned())];
        assert_eq!(
            Trace::new(|_| {}).build(&options).unwrap_err().to_string(),
            "the driver trace has no option \"verbose\"; it has no options"
        );
    }

    #[test]
    fn the_allow_list_goes_before_what_exists() {
        let allowed = ["memory".to_owned()];
        let check = |stack| registry().check_allowed(&StackSpec::parse(stack).unwrap(), &allowed);
        assert_eq!(check("memory,memory"), Ok(()));
        assert_eq!(
            check("memory,udt,null").unwrap_err().to_string(),
            "udt driver not whitelisted"
        );
    }

    #[test]
    fn a_later_driver_takes_the_place_of_an_earlier_one() {
        let mut registry = registry();
        registry.register(Memory);
        assert_eq!(registry.names(), "null, fault, memory");
    }

    #[test]
    fn the_drivers_of_one_session_are_not_those_of_another() {
        let registry = registry();
        let session = registry.with(&[Arc::new(Trace::new(|_| {})), Arc::new(Memory)]);
        assert_eq!(session.names(), "null, fault, trace, memory");
        assert_eq!(registry.names(), "null, memory, fault");
        let stack = StackSpec::parse("memory,trace").unwrap();
        session.build(&stack).unwrap();
        assert!(matches!(
            registry.build(&stack),
            Err(StackError::UnknownDriver { .. })
        ));
    }
}
