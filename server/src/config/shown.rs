//! The texts of values, as in the file.

use std::net::IpAddr;
use std::path::PathBuf;

use gridhaul_security::tls::{Principal, TlsVersions};

use super::as_node::ControlServer;
use super::listen::ListenAddress;
use super::log_level::LogLevel;
use super::max_startups::MaxStartups;
use super::name_server::NameServer;
use super::nodes::NodeSource;
use super::seconds::Seconds;
use super::tls_range::TlsRange;
use super::values::{
    ArrivalChecksums, AtomicRoot, Bytes, Callout, ClientOptions, DataHosts, ExemptBlock, FileMode,
    KeyKind, LogFormat, PortRange, SyncFiles,
};

/// The text of a value, as in the file.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown_as_displayed {
    ($($kind:ty),*) => {$(
        impl Shown for $kind {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

shown_as_displayed!(
    String,
    IpAddr,
    ListenAddress,
    NameServer,
    NodeSource,
    bool,
    u32,
    usize,
    FileMode,
    PortRange,
    Seconds
);

impl Shown for PathBuf {
    fn shown(&self) -> String {
        self.display().to_string()
    }
}

impl Shown for Bytes {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl<T: Shown> Shown for Vec<T> {
    fn shown(&self) -> String {
        let values: Vec<String> = self.iter().map(Shown::shown).collect();
        values.join(",")
    }
}

impl Shown for DataHosts {
    fn shown(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Block(block) => block.to_string(),
        }
    }
}

impl Shown for ExemptBlock {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl Shown for ClientOptions {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl Shown for ArrivalChecksums {
    fn shown(&self) -> String {
        match self {
            Self::Asked => "asked".to_owned(),
            Self::Named(names) if names.is_empty() => "none".to_owned(),
            Self::Named(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                names.join(",")
            }
        }
    }
}

impl Shown for SyncFiles {
    fn shown(&self) -> String {
        format!("{:?}", self.0).to_ascii_lowercase()
    }
}

impl Shown for MaxStartups {
    fn shown(&self) -> String {
        format!("{}:{}:{}", self.start, self.rate, self.full)
    }
}

impl Shown for TlsRange {
    fn shown(&self) -> String {
        let versions = match self.0 {
            TlsVersions::Only12 => "1.2",
            TlsVersions::Only13 => "1.3",
            TlsVersions::From12To13 => "1.2-1.3",
        };
        versions.to_owned()
    }
}

impl Shown for LogFormat {
    fn shown(&self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }
}

impl Shown for LogLevel {
    fn shown(&self) -> String {
        self.0.clone()
    }
}

impl Shown for Callout {
    fn shown(&self) -> String {
        let path = self.path().display();
        match self {
            Self::Program(_) => path.to_string(),
            Self::Socket(_) => format!("unix:{path}"),
        }
    }
}

impl Shown for AtomicRoot {
    fn shown(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Root(path) => path.shown(),
        }
    }
}

impl Shown for ControlServer {
    fn shown(&self) -> String {
        match &self.0 {
            Principal::Subject(subject) => subject.clone(),
            Principal::Host(host) => host.to_string(),
        }
    }
}

impl Shown for KeyKind {
    fn shown(&self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }
}
