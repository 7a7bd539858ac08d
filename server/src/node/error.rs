//! Errors that end a data node.

use std::io;

use gridhaul_accounts::MonitorError;
use gridhaul_sandbox::SandboxError;
use gridhaul_security::node_authority::IdentityError;

use crate::config::ConfigErrors;
use crate::enrolment::EnrolError;
use crate::privileges::PrivilegeError;
use crate::security::SecurityError;
use crate::server::StartError;
use crate::service::EnvironmentError;
use crate::telemetry::LoggingError;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The node got no certificate.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// What started the program contradicts itself.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The log cannot be written.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The monitor does not start.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The certificate or the trust directory cannot be read.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The certificate is not that of a host.
    #[error("the certificate of this node: {0}")]
    Certificate(#[from] IdentityError),
    /// The node cannot listen, or open its root.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The process cannot give up root.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// The process cannot be confined.
    #[error("cannot confine the node: {0}")]
    Sandbox(#[from] SandboxError),
    /// The monitor has ended.
    #[error("{0}")]
    Helper(String),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}
