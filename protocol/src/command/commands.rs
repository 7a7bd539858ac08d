//! The commands of the control channel as an enum.

use std::net::{SocketAddr, SocketAddrV4};

use jiff::Timestamp;

use super::arguments::{
    AlgorithmName, Base64, Checksum, DataChannelAuthentication, DataChannelContext, EpsvRequest,
    ListPath, MarkerEvent, Password, ProtectionLevel, Representation, Restart, Text, TransferMode,
};
use super::options::OptsCommand;
use super::rdma::RdmaCommand;
use super::site::SiteCommand;
use crate::address::{Family, StripeAddresses};
use crate::path::PathArgument;

/// A command of the control channel.
///
/// `Debug` shows neither passwords nor credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `USER`: the name to log in with.
    User(Text),
    /// `PASS`: the password, possibly empty.
    Pass(Password),
    /// `ACCT`: an account besides the user name (RFC 959 4.1.1). Treated as a secret.
    Acct(Password),
    /// `REIN`: resets the session (RFC 959 4.1.1).
    Rein,
    /// `QUIT`.
    Quit,

    /// `AUTH`: a security mechanism, `GSSAPI` for GridFTP (RFC 2228 3).
    Auth(Text),
    /// `ADAT`: a token of the security exchange.
    Adat(Base64),
    /// `ENC`: a command, encrypted.
    Enc(Base64),
    /// `MIC`: a command with integrity protection.
    Mic(Base64),
    /// `CONF`: a command, encrypted without integrity protection.
    Conf(Base64),
    /// `PBSZ`: the largest protected block, in bytes.
    Pbsz(u32),
    /// `PROT`: the protection of data channels.
    Prot(ProtectionLevel),
    /// `DCAU`: the authentication of data channels' peers (GFD.20, DCAU).
    Dcau(DataChannelAuthentication),
    /// `DCSC`: the credential for data channels.
    Dcsc(DataChannelContext),
    /// `CCC`: ends the protection of the control channel.
    Ccc,

    /// `FEAT`.
    Feat,
    /// `HELP`, optionally for one command.
    Help(Option<Text>),
    /// `OPTS`.
    Opts(OptsCommand),
    /// `SITE`.
    Site(SiteCommand),
    /// `SYST`.
    Syst,
    /// `NOOP`.
    Noop,
    /// `LANG`: a language tag, or none for the default (RFC 2640 4.1).
    Lang(Option<Text>),
    /// `STAT`: of a path, or of the server.
    Stat(Option<PathArgument>),

    /// `TYPE`.
    Type(Representation),
    /// `MODE`.
    Mode(TransferMode),
    /// `STRU F`, the only supported structure.
    Stru,
    /// `SBUF`: socket buffers for data channels, in bytes; 0 is the system's default (GFD.20, SBUF).
    Sbuf(u64),
    /// `TREV`: the interval of markers; zero is never.
    Trev {
        /// The marker.
        event: MarkerEvent,
        /// The time between two markers, in whole seconds on the wire.
        seconds: u32,
    },

    /// `PASV`.
    Pasv,
    /// `EPSV` (RFC 2428 3).
    Epsv(EpsvRequest),
    /// `SPAS`: without a family the reply carries host-port numbers (GFD.20, SPAS).
    Spas(Option<Family>),
    /// `PORT`.
    Port(SocketAddrV4),
    /// `EPRT` (RFC 2428 2).
    Eprt(SocketAddr),
    /// `SPOR`: one address for each stripe (GFD.20, SPOR).
    Spor(StripeAddresses),

    /// `ALLO`: the size of the file to be stored.
    Allo {
        /// The size in bytes.
        bytes: u64,
        /// The largest record, in bytes (RFC 959 4.1.3).
        record_bytes: Option<u64>,
    },
    /// `REST`: the bytes that the next transfer skips.
    Rest(Restart),
    /// `RETR`.
    Retr(PathArgument),
    /// `STOR`.
    Stor(PathArgument),
    /// `STOU`: stores under a unique name (RFC 959 4.1.3, RFC 1123 4.1.2.9). RFC 959 has no argument; BSD's ftp sends a file name,
    /// which the unique name starts with.
    Stou(Option<PathArgument>),
    /// `APPE`.
    Appe(PathArgument),
    /// `ERET P`: a part of a file (GFD.20, ERET).
    Eret {
        /// The start of the part, in bytes.
        offset: u64,
        /// Its length at most, in bytes.
        length: u64,
        /// The file.
        path: PathArgument,
    },
    /// `ESTO A`: into a part of a file (GFD.20, ESTO).
    Esto {
        /// The start of the part, in bytes.
        offset: u64,
        /// The file.
        path: PathArgument,
    },
    /// `RADR`, `RPSV`, `RSTR`, `RRTR`.
    Rdma(RdmaCommand),
    /// `ABOR`.
    Abor,

    /// `LIST`.
    List(Option<ListPath>),
    /// `NLST`.
    Nlst(Option<ListPath>),
    /// `MLSD`: a listing in facts (RFC 3659 7).
    Mlsd(Option<PathArgument>),
    /// `MLSR`: the same for a whole tree.
    Mlsr(Option<PathArgument>),
    /// `MLSC`: a listing in facts over the control channel.
    Mlsc(Option<PathArgument>),
    /// `MLST`: the facts of one path (RFC 3659 7).
    Mlst(Option<PathArgument>),
    /// `SIZE` (RFC 3659 4).
    Size(PathArgument),
    /// `MDTM` (RFC 3659 3).
    Mdtm(PathArgument),
    /// `MFMT`: sets the time of the last change (draft-somers-ftp-mfxx 3.1).
    Mfmt {
        /// The time, whole seconds.
        modified: Timestamp,
        /// The file.
        path: PathArgument,
    },
    /// `CKSM`: a checksum of a part of a file.
    Cksm {
        /// The algorithm.
        algorithm: AlgorithmName,
        /// The start of the part, in bytes.
        offset: u64,
        /// Its length in bytes; `None` (`-1` on the wire) is to the end.
        length: Option<u64>,
        /// The file.
        path: PathArgument,
    },
    /// `SCKS`: the checksum that the next stored file must have.
    Scks {
        /// The algorithm.
        algorithm: AlgorithmName,
        /// The checksum.
        checksum: Checksum,
    },

    /// `PWD`, `XPWD`.
    Pwd,
    /// `CWD`, `XCWD`.
    Cwd(PathArgument),
    /// `CDUP`, `XCUP`.
    Cdup,
    /// `MKD`, `XMKD`.
    Mkd(PathArgument),
    /// `RMD`, `XRMD`.
    Rmd(PathArgument),
    /// `DELE`.
    Dele(PathArgument),
    /// `RNFR`.
    Rnfr(PathArgument),
    /// `RNTO`.
    Rnto(PathArgument),
}
