//! Drivers: kinds of transports and transforms.

use std::fmt;
use std::sync::Arc;

use crate::options::{OptionDoc, Options};
use crate::{Finding, Gauge, SessionValue, SessionValueError, StackError, Transform, Transport};

/// A kind of transport or transform that can be named in a stack string.
pub trait Driver: Send + Sync + fmt::Debug {
    /// The name in stack strings.
    fn name(&self) -> &'static str;

    /// The options that the driver has.
    fn options(&self) -> &'static [OptionDoc];

    /// Applies options. Opens nothing. [`Driver::read_options`] checks their names.
    ///
    /// # Errors
    ///
    /// When an option is unknown or repeated, or its value is wrong.
    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError>;

    /// Checks the names in `given` against [`Driver::options`].
    ///
    /// # Errors
    ///
    /// [`StackError::UnknownOption`] and [`StackError::RepeatedOption`].
    fn read_options<'a>(&self, given: &'a [(String, String)]) -> Result<Options<'a>, StackError> {
        Options::new(self.name(), self.options(), given)
    }

    /// Describes the driver of a session as bytes, from which another machine can restore it. A driver that belongs to no
    /// session is on that machine already.
    ///
    /// # Errors
    ///
    /// When the driver belongs to no session, or has something that must not leave this machine.
    fn session_value(&self) -> Result<SessionValue, SessionValueError> {
        Err(SessionValueError::without_session(self.name()))
    }

    /// Bounds the memory that the driver keeps for the channels of the process, in bytes. Drivers without memory of their
    /// own ignore it.
    fn limit_memory(&self, _bytes: u64) {}

    /// The present values for monitoring.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }

    /// Checks quickly which features of the kernel the driver can use.
    fn check_kernel(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Whether the machine has devices that only this driver uses.
    fn has_devices(&self) -> bool {
        false
    }

    /// Checks thoroughly whether channels of this driver work on this machine: opens devices, and takes memory.
    fn check_devices(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Examines each device for an administrator: its link, its place in the machine, its settings and its counters, as far as the
    /// kernel tells this user. What [`Driver::check_devices`] finds is not repeated.
    fn examine_devices(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// A driver with its options applied.
#[derive(Debug, Clone)]
pub enum Built {
    /// The bottom of a stack.
    Transport(Arc<dyn Transport>),
    /// A layer above it.
    Transform(Arc<dyn Transform>),
}
