//! How pieces of ranges are moved, and why.

use std::io;

use gridhaul_stack::Movement;
use gridhaul_stack::measured::{Method, Stopwatch};
use rustix::io::Errno;

use crate::selection::{Direction, Record};

/// The decision for one piece.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) direction: Direction,
    pub(crate) method: Method,
    pub(crate) reason: Reason,
    /// Set if the piece is measured.
    pub(crate) stopwatch: Option<Stopwatch>,
}

/// How the last piece was moved.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) call: &'static str,
    pub(crate) reason: Reason,
}

#[derive(Debug)]
pub(crate) enum Reason {
    Requested,
    Tapped,
    Short,
    Failed(&'static str, Errno),
    Measured(Record),
}

impl Last {
    pub(crate) fn movement(&self) -> Movement {
        let reason = match &self.reason {
            Reason::Requested => "the stack asks for it".into(),
            Reason::Tapped => "its bytes are looked at on their way".into(),
            Reason::Short => "it is short".into(),
            Reason::Failed(call, errno) => format!("{call}: {}", io::Error::from(*errno)).into(),
            Reason::Measured(record) => record.to_string().into(),
        };
        Movement {
            way: self.call,
            reason,
        }
    }
}

/// Whether the error is permanent for such files, and not a condition of the moment.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}
