//! Errors in the configuration, and how to fix them.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::one_line::FormError;
use super::port_range::PORT_RANGE_VARIABLE;
use super::values::ValueError;

/// A configuration file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration file {}: {error}", path.display())]
pub(super) struct FileError {
    /// The file.
    pub(super) path: PathBuf,
    /// The underlying OS error.
    pub(super) error: io::Error,
}

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// No way to log in is configured.
    #[error(
        "no user could log in: give --gsi, --anonymous, or --passwords FILE (made by `gridhaul-server passwd`)"
    )]
    NoWayToLogIn,
    /// A setting has no effect without another one.
    #[error("{0} needs {1}: give that as well")]
    Needs(&'static str, &'static str),
    /// Users with accounts would see the current directory.
    #[error(
        "gsi without root: name the directory that users see as /, with --root / for the whole \
         machine as globus-gridftp-server gives it, or --root DIR"
    )]
    NoRoot,
    /// A data node would show the current directory.
    #[error(
        "node without root: name the directory with the files of users, as control servers have it, with --root DIR"
    )]
    NoNodeRoot,
    /// A data node is named twice.
    #[error("nodes: {0} is named twice: delete one of them")]
    NodeTwice(String),
    /// There are too many data nodes.
    #[error("nodes: there are {count}, and a server has at most {most}: delete some of them")]
    TooManyNodes {
        /// The number of entries.
        count: usize,
        /// The largest number.
        most: usize,
    },
    /// An enrolled node knows its control servers.
    #[error(
        "control-servers: this node is enrolled ({}), and obeys the control servers of its authority: delete control-servers, or \
         that file", .0.display()
    )]
    ListedAndEnrolled(PathBuf),
    /// A reply with an address of one family must not depend on the node's choice.
    #[error("data-address has addresses of IPv4 and of IPv6: name those of one family")]
    DataAddressesOfTwoFamilies,
    /// The ports of each data address would need an address of their own outside.
    #[error(
        "advertise-address stands for one data-address, and there are several: name one, or none for that of the connection of \
         the control server"
    )]
    OneAdvertisedForSeveral,
    /// A server without data nodes takes one address.
    #[error(
        "data-address has several addresses, which data nodes (`gridhaul-server node`) share their transfers among: name one, \
         or none for that of the control connection"
    )]
    SeveralDataAddresses,
    /// A setting of data nodes, in a server.
    #[error(
        "{0} is a setting of `gridhaul-server node`, and of no effect in a server: delete it here"
    )]
    OfNode(&'static str),
    /// A setting of servers, in a data node.
    #[error(
        "{0} is of no effect in a data node: control servers log users in and decide; delete it here, and set it there"
    )]
    OfServer(String),
    /// The server has no certificate, and this setting needs one.
    #[error(
        "{0} needs --cert, and there is no certificate of this server: give --cert FILE and --key FILE, set \
         X509_USER_CERT and X509_USER_KEY, or put hostcert.pem and hostkey.pem into /etc/grid-security"
    )]
    NoCertificate(&'static str),
    /// Client certificates could not be verified.
    #[error(
        "{0} needs --trust, and there are no certificate authorities to trust: give --trust DIR, set X509_CERT_DIR, or put \
         them into /etc/grid-security/certificates"
    )]
    NoTrust(&'static str),
    /// Identities could not be mapped to accounts.
    #[error(
        "gsi needs --gridmap, and there is no grid-mapfile: give --gridmap FILE, set GRIDMAP, write \
         /etc/grid-security/grid-mapfile, or name accounts in [[authorize]] rules"
    )]
    NoGridmap,
    /// Rules depend on attributes that cannot be verified.
    #[error(
        "an [[authorize]] rule asks for VOMS attributes, which cannot be verified without a vomsdir: \
         give --vomsdir DIR, set X509_VOMS_DIR, or make /etc/grid-security/vomsdir"
    )]
    NoVomsdir,
    /// Data channels of ssh sessions cannot be encrypted.
    #[error(
        "encrypt-data: the data channels of ssh sessions cannot be encrypted; for them, say encrypt-data = false"
    )]
    SshIsClear,
    /// Sessions of ssh cannot use data nodes.
    #[error(
        "nodes: sessions of ssh cannot use data nodes, because their processes are those of users, who must not read the key that \
         data nodes obey: give `gridhaul-server ssh` a configuration without nodes, on a machine that has the files of users itself"
    )]
    SshHasNoNodes,
    /// The TLS settings for Globus programs on this machine are not understood.
    #[error(
        "{key} in the environment or in /etc/grid-security/gsi.conf: '{value}' is not TLS1_2_VERSION, \
         TLS1_3_VERSION or 0"
    )]
    TlsProtocol {
        /// The variable without its prefix.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// The TLS settings for Globus programs on this machine exclude all versions.
    #[error(
        "MIN_TLS_PROTOCOL and MAX_TLS_PROTOCOL leave neither TLS 1.2 nor TLS 1.3: say tls-versions, or \
         change them in the environment or in /etc/grid-security/gsi.conf"
    )]
    NoTlsVersion,
    /// A number is out of range.
    #[error("{name} must be between {}, not {}", range(*least, *most, unit), range_end(*value, unit))]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// The configured value.
        value: u64,
        /// The smallest valid value.
        least: u64,
        /// The largest valid value.
        most: u64,
        /// Of the three numbers, with a space before it.
        unit: &'static str,
    },
    /// Two limits have the same name.
    #[error("[[limit]] table {}: another table has the name '{name}' as well: give one of them another name", index + 1)]
    LimitTwice {
        /// The name.
        name: String,
        /// The second table, counted from 0.
        index: usize,
    },
    /// A name for anonymous users is no name.
    #[error(
        "anonymous-names: a name is empty, and no user can log in by it: name at least one, such as ftp, or leave it out for \
         anonymous and ftp"
    )]
    AnonymousName,
    /// A list is empty.
    #[error("{0} is empty; leave it out for its default")]
    Empty(&'static str),
    /// The greeting has more than one line, or control characters.
    #[error("banner must be one line of at most 1000 bytes without control characters")]
    Banner,
    /// The administration interface would be open to the network.
    #[error(
        "admin-listen {0} is not an address of this machine alone: give admin-cert and admin-key, and admin-token or \
         admin-clients, or listen at 127.0.0.1"
    )]
    OpenAdministration(SocketAddr),
    /// The subject of an administrator has a form that matches no certificate.
    #[error("admin-subjects: {0}")]
    AdminSubject(FormError),
    /// The port range in the environment is wrong.
    #[error("the environment variable {PORT_RANGE_VARIABLE}: {0}")]
    PortRangeVariable(ValueError),
}

fn range(least: u64, most: u64, unit: &str) -> String {
    match unit {
        " bytes" => format!("{} and {}", range_end(least, unit), range_end(most, unit)),
        _ => format!("{least} and {most}{unit}"),
    }
}

/// Numbers of bytes in the largest unit in which they are whole.
fn range_end(number: u64, unit: &str) -> String {
    if unit != " bytes" {
        return number.to_string();
    }
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let mut units = units.into_iter();
    let whole = units.find(|(shift, _)| number > 0 && number.trailing_zeros() >= *shift);
    match whole {
        Some((shift, name)) => format!("{} {name}", number >> shift),
        None => format!("{number} bytes"),
    }
}

impl ConfigError {
    /// The table of the setting to which the error belongs, counted from 0, where there is one.
    pub(super) fn table(&self) -> Option<usize> {
        match self {
            Self::LimitTwice { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// The setting to which the error belongs, where there is one.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Needs(key, _)
            | Self::NoCertificate(key)
            | Self::NoTrust(key)
            | Self::OfNode(key)
            | Self::Empty(key) => Some(key),
            Self::OfServer(key) => Some(key),
            Self::NodeTwice(_) | Self::TooManyNodes { .. } => Some("nodes"),
            Self::OutOfRange { name, .. } => Some(name),
            Self::NoRoot | Self::NoGridmap => Some("gsi"),
            Self::NoNodeRoot => Some("root"),
            Self::ListedAndEnrolled(_) => Some("control-servers"),
            Self::DataAddressesOfTwoFamilies | Self::SeveralDataAddresses => Some("data-address"),
            Self::OneAdvertisedForSeveral => Some("advertise-address"),
            Self::NoVomsdir => Some("authorize"),
            Self::SshIsClear => Some("encrypt-data"),
            Self::SshHasNoNodes => Some("nodes"),
            Self::AnonymousName => Some("anonymous-names"),
            Self::Banner => Some("banner"),
            Self::LimitTwice { .. } => Some("limit"),
            Self::OpenAdministration(_) => Some("admin-listen"),
            Self::AdminSubject(_) => Some("admin-subjects"),
            Self::NoWayToLogIn
            | Self::File(_)
            | Self::TlsProtocol { .. }
            | Self::NoTlsVersion
            | Self::PortRangeVariable(_) => None,
        }
    }
}
