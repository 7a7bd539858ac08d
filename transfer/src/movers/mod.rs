//! Threads that serve data channels, and what bounds them.

mod crew;
mod permits;
mod shares;
mod threads;

pub(crate) use crew::Crew;
pub(crate) use permits::{Permit, Permits};
pub(crate) use shares::{MoverPermit, Movers};
pub(crate) use threads::Threads;
