//! The setup of a case: the roles of its servers, and the user of its client programs.

use std::ffi::OsString;

use crate::support::UserKind;

/// A configuration of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// For anonymous users; most cases use this one.
    Main,
    /// The other end of third-party copies.
    Second,
    /// Listens on `::1`.
    Ipv6,
    /// Anonymous users may only read.
    ReadOnly,
    /// Serves `/`, so that paths are those of the host.
    WholeMachine,
    /// As the main one, for users with certificates. Our server makes keys on a curve for their delegations, because an
    /// RSA key takes longer than most cases.
    Gsi,
    /// As the second one, for users with certificates.
    SecondGsi,
    /// As [`Role::Gsi`], with RSA keys for delegations: the default of our server.
    GsiRsa,
    /// As [`Role::SecondGsi`], with RSA keys for delegations.
    SecondGsiRsa,
    /// For anonymous users and one with a password, who may use TLS.
    Tls,
    /// With one data node, for users with certificates.
    OneNode,
    /// As [`Role::OneNode`], with two nodes.
    TwoNodes,
    /// With three nodes.
    ThreeNodes,
    /// With four nodes.
    FourNodes,
    /// With eight nodes.
    EightNodes,
    /// As [`Role::EightNodes`]: the other end of a copy.
    SecondEightNodes,
    /// As [`Role::TwoNodes`], with RSA keys for delegated credentials.
    TwoNodesRsa,
    /// As [`Role::ThreeNodes`], with RSA keys for delegated credentials.
    ThreeNodesRsa,
    /// With two data nodes, for anonymous users.
    TwoOpenNodes,
    /// With three data nodes, for anonymous users.
    ThreeOpenNodes,
}

impl Role {
    /// The number of roles.
    pub(super) const COUNT: usize = Self::ThreeOpenNodes as usize + 1;

    /// Whether a server in this role needs certificates.
    pub(super) fn needs_certificates(self) -> bool {
        let without = [
            Self::Main,
            Self::Second,
            Self::Ipv6,
            Self::ReadOnly,
            Self::WholeMachine,
            Self::TwoOpenNodes,
            Self::ThreeOpenNodes,
        ];
        !without.contains(&self)
    }

    /// The number of data nodes; without them the server has the files itself.
    pub(super) fn nodes(self) -> u8 {
        match self {
            Self::OneNode => 1,
            Self::TwoNodes | Self::TwoNodesRsa | Self::TwoOpenNodes => 2,
            Self::ThreeNodes | Self::ThreeNodesRsa | Self::ThreeOpenNodes => 3,
            Self::FourNodes => 4,
            Self::EightNodes | Self::SecondEightNodes => 8,
            _ => 0,
        }
    }
}

/// The servers of a case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Partners {
    /// The server under test alone.
    One,
    /// Source and destination are two servers of the kind under test.
    Alike,
    /// The source is under test, the destination is the real server.
    ToGlobus,
    /// The source is the real server, the destination is under test.
    FromGlobus,
}

impl Partners {
    /// Whether the case adds anything when the real server itself is under test.
    pub fn concern_globus(self) -> bool {
        matches!(self, Self::One | Self::Alike)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::One => "alone",
            Self::Alike => "to its own kind",
            Self::ToGlobus => "to the real server",
            Self::FromGlobus => "from the real server",
        }
    }
}

/// The servers, the user and the environment of a case.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The source and the destination.
    pub partners: Partners,
    /// The roles of the server under test and of its partner.
    pub roles: [Role; 2],
    /// The user for whom client programs act; `None` is an anonymous user.
    pub user: Option<UserKind>,
    /// Variables of the environment of client programs.
    pub environment: Vec<(OsString, OsString)>,
}

impl Default for Setup {
    /// One server for anonymous users.
    fn default() -> Self {
        Self {
            partners: Partners::One,
            roles: [Role::Main, Role::Second],
            user: None,
            environment: Vec::new(),
        }
    }
}
