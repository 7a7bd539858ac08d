//! The commands that move data, by name.

use std::fmt;

/// A command that starts a transfer, as logs, the transfer log and the metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferVerb {
    Retr,
    Eret,
    /// `RETR` over RDMA.
    Rrtr,
    Stor,
    Stou,
    Appe,
    Esto,
    /// `STOR` over RDMA.
    Rstr,
    List,
    Nlst,
    Mlsd,
    Mlsr,
}

impl TransferVerb {
    /// Whether the data port must be one over RDMA.
    pub(crate) const fn needs_rdma(self) -> bool {
        matches!(self, Self::Rrtr | Self::Rstr)
    }

    /// Whether it sends a listing.
    pub(crate) const fn lists(self) -> bool {
        matches!(self, Self::List | Self::Nlst | Self::Mlsd | Self::Mlsr)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Retr => "RETR",
            Self::Eret => "ERET",
            Self::Rrtr => "RRTR",
            Self::Stor => "STOR",
            Self::Stou => "STOU",
            Self::Appe => "APPE",
            Self::Esto => "ESTO",
            Self::Rstr => "RSTR",
            Self::List => "LIST",
            Self::Nlst => "NLST",
            Self::Mlsd => "MLSD",
            Self::Mlsr => "MLSR",
        }
    }
}

impl fmt::Display for TransferVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
