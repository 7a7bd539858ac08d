//! The result of one check of this machine's support for RDMA.

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The subject, in a word or two.
    pub about: &'static str,
    /// Whether RDMA works as far as this subject is concerned.
    pub is_good: bool,
    /// The details, and how to fix a problem.
    pub words: String,
}
