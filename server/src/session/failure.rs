//! Why a command failed, for audit records.

use gridhaul_storage::StorageError;

use super::replies::is_server_fault;

/// Why a command failed, in more detail than its reply.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) text: String,
    /// The server is to blame.
    pub(super) is_fault: bool,
}

impl From<&StorageError> for Failure {
    fn from(error: &StorageError) -> Self {
        Self {
            text: error.to_string(),
            is_fault: is_server_fault(error),
        }
    }
}
