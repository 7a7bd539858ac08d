//! Drivers of one session as bytes, so that another machine can make its data channels.
//!
//! The code between the two machines moves a name and bytes, and knows no driver. The driver describes itself
//! ([`crate::Driver::session_value`]); the program on the other machine, which knows its drivers, restores it with the trust and
//! the certificate of that machine.

use std::fmt;

use zeroize::Zeroizing;

/// The largest [`SessionValue`], in bytes: several times a credential with a long chain.
pub const MAX_SESSION_VALUE_BYTES: usize = 256 * 1024;

/// The longest name of a driver in a [`SessionValue`], in bytes.
pub const MAX_SESSION_VALUE_NAME_BYTES: usize = 64;

/// A driver of one session as bytes. They may contain private keys: they are wiped from memory when they are dropped, and never
/// printed. Send them only over an encrypted connection to an authenticated machine.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionValue {
    name: String,
    bytes: Zeroizing<Vec<u8>>,
}

/// Why there is no [`SessionValue`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionValueError {
    /// The driver cannot be described.
    #[error("the driver {driver} of this session cannot be sent to another machine: {reason}")]
    NotSendable {
        /// The driver.
        driver: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The name is too long.
    #[error(
        "the name of the driver has {0} bytes, and at most {MAX_SESSION_VALUE_NAME_BYTES} are possible"
    )]
    LongName(usize),
    /// The value is too long.
    #[error(
        "the value of the driver {name} has {bytes} bytes, and at most {MAX_SESSION_VALUE_BYTES} are \
         possible: use a credential with a shorter chain"
    )]
    TooLong {
        /// The driver.
        name: String,
        /// The length.
        bytes: usize,
    },
}

/// Why a driver cannot be restored from a [`SessionValue`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The program on this machine has no such driver.
    #[error(
        "this machine has no driver {0:?} for sessions of other machines: install the same version of the \
         program on all of them"
    )]
    UnknownDriver(String),
    /// The value comes from another version of the driver.
    #[error(
        "the value of the driver {driver} has the format {found}, and this machine reads the format {known}: \
         install the same version of the program on all machines"
    )]
    UnknownFormat {
        /// The driver.
        driver: &'static str,
        /// The format of the value.
        found: u8,
        /// The format that this program reads.
        known: u8,
    },
    /// The bytes are not a value of this driver, or what they contain cannot be used.
    #[error("the value of the driver {driver} cannot be used: {reason}")]
    Malformed {
        /// The driver.
        driver: &'static str,
        /// The reason.
        reason: String,
    },
    /// This machine lacks what the driver needs.
    #[error("the driver {driver} cannot be made on this machine: {reason}")]
    Machine {
        /// The driver.
        driver: &'static str,
        /// The reason and the remedy.
        reason: String,
    },
}

impl SessionValueError {
    /// A driver that belongs to no session.
    pub fn without_session(driver: &'static str) -> Self {
        let reason = "it belongs to no session";
        Self::NotSendable { driver, reason }
    }
}

impl SessionValue {
    /// A value of the driver `name`.
    ///
    /// # Errors
    ///
    /// When the name or the value is too long.
    pub fn new(
        name: impl Into<String>,
        bytes: Zeroizing<Vec<u8>>,
    ) -> Result<Self, SessionValueError> {
        let name = name.into();
        if name.len() > MAX_SESSION_VALUE_NAME_BYTES {
            return Err(SessionValueError::LongName(name.len()));
        }
        if bytes.len() > MAX_SESSION_VALUE_BYTES {
            let bytes = bytes.len();
            return Err(SessionValueError::TooLong { name, bytes });
        }
        Ok(Self { name, bytes })
    }

    /// The name of the driver: [`crate::Driver::name`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the driver needs to be restored. Only the driver knows the format.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for SessionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionValue")
            .field("name", &self.name)
            .field("length", &self.bytes.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver as _, Fault};

    fn value(name: &str, length: usize) -> Result<SessionValue, SessionValueError> {
        SessionValue::new(name, Zeroizing::new(vec![b'k'; length]))
    }

    #[test]
    fn names_and_values_are_bounded() {
        let longest = "x".repeat(MAX_SESSION_VALUE_NAME_BYTES);
        let most = value(&longest, MAX_SESSION_VALUE_BYTES).expect("the limit");
        assert_eq!(most.name(), longest);
        assert_eq!(most.bytes().len(), MAX_SESSION_VALUE_BYTES);
        let error = value("gsi", MAX_SESSION_VALUE_BYTES + 1).expect_err("too long");
        assert!(
            error.to_string().contains("gsi has 262145 bytes"),
            "{error}"
        );
        let error = value(&format!("{longest}x"), 0).expect_err("too long");
        assert_eq!(error, SessionValueError::LongName(65));
    }

    #[test]
    fn the_bytes_are_not_printed() {
        let value = value("gsi", 5).expect("short");
        assert_eq!(
            format!("{value:?}"),
            "SessionValue { name: \"gsi\", length: 5 }"
        );
    }

    #[test]
    fn a_driver_without_a_session_has_no_value() {
        let error = Fault.session_value().expect_err("no value");
        assert!(error.to_string().contains("the driver fault"), "{error}");
    }
}
