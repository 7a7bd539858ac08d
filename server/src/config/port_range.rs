//! The port range that Globus programs share on a machine.

use super::values::{PortRange, ValueError};

/// The environment variable that names the ports for Globus programs.
pub(super) const PORT_RANGE_VARIABLE: &str = "GLOBUS_TCP_PORT_RANGE";

/// The range in the environment, if there is one.
pub(super) fn of_environment() -> Result<Option<PortRange>, ValueError> {
    match std::env::var(PORT_RANGE_VARIABLE) {
        Ok(text) => text.parse().map(Some),
        Err(_) => Ok(None),
    }
}
