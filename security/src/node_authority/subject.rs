//! The names of authorities, control servers and nodes.

use der::asn1::ObjectIdentifier;

use crate::certificate::Certificate;
use crate::encode::{COMMON_NAME, SEQUENCE, attribute, element};
use crate::host_name::HostName;
use crate::name::Name;

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const ORGANIZATIONAL_UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");

/// The organization in all names.
const GRIDHAUL: &str = "gridhaul node authority";

/// RFC 5280 Appendix A.1, ub-common-name.
const LONGEST_COMMON_NAME: usize = 64;

/// The kinds of hosts that an authority of data nodes knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connects to nodes.
    ControlServer,
    /// Accepts connections of control servers.
    Node,
}

impl Role {
    /// What it is called, in names too.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::ControlServer => "control server",
            Self::Node => "data node",
        }
    }
}

/// The DER name of an authority.
pub(super) fn of_authority(id: &str) -> Vec<u8> {
    let parts = [
        attribute(&ORGANIZATION, GRIDHAUL),
        attribute(&COMMON_NAME, id),
    ];
    element(SEQUENCE, &[&parts[0], &parts[1]])
}

/// The DER name of a host of this kind. The whole name of a host is an alternative name.
pub(super) fn of(role: Role, name: &str) -> Vec<u8> {
    // Names of hosts are ASCII.
    let name = name.get(..LONGEST_COMMON_NAME).unwrap_or(name);
    let parts = [
        attribute(&ORGANIZATION, GRIDHAUL),
        attribute(&ORGANIZATIONAL_UNIT, role.words()),
        attribute(&COMMON_NAME, name),
    ];
    element(SEQUENCE, &[&parts[0], &parts[1], &parts[2]])
}

/// The DER name of a node.
pub(super) fn of_node(host: &HostName) -> Vec<u8> {
    of(Role::Node, &host.to_string())
}

/// The id of an authority, if this is the certificate of one.
pub(super) fn id(authority: &Certificate) -> Option<String> {
    let id = authority.subject().first_common_name()?;
    let is_one = authority.is_self_issued()
        && authority.is_authority()
        && authority.subject().as_der() == of_authority(&id);
    is_one.then_some(id)
}

/// The name of the control servers of an authority: all that have a copy of its identity.
pub(super) fn of_control_server(authority: &Certificate) -> Option<Name> {
    Name::from_der(&of(Role::ControlServer, &id(authority)?)).ok()
}
