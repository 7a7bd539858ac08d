//! Registers memory from another thread.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::{Access, Memory};

/// Registers memory for an endpoint while the endpoint is used on its own thread.
pub trait Registrar: Send + fmt::Debug {
    /// Registers memory with the device, for [`Endpoint::adopt`](super::Endpoint::adopt).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::register`](super::Endpoint::register).
    fn register(&self, memory: &Arc<Memory>, access: Access) -> io::Result<Registered>;
}

/// A registration that no endpoint has yet. Dropping it ends the registration.
#[derive(Debug)]
pub struct Registered(Box<dyn Any + Send>);

impl Registered {
    /// What a provider knows of a registration.
    pub fn new(registration: impl Any + Send) -> Self {
        Self(Box::new(registration))
    }

    /// The same, if it is of this type.
    pub fn into_inner<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|registration| *registration)
    }
}
