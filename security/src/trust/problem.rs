//! Problems of files, for reports to the administrator.

/// A file of a trust directory that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustProblem {
    /// The file's name.
    pub file: String,
    /// The cause, the remedy, and the consequence until then.
    pub reason: String,
    /// Whether certificates are refused because of it.
    pub is_grave: bool,
}
