//! The result of one check of this machine's support for RDMA.

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The subject, in a word or two.
    pub(crate) about: &'static str,
    /// Whether RDMA works as far as this subject is concerned.
    pub(crate) is_good: bool,
    /// The details, and how to fix a problem.
    pub(crate) words: String,
}
