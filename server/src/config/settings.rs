//! Every setting, once: a flag of `gridhaul-server serve`, a key of the configuration file, and whether SIGHUP applies a
//! change of it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;

use super::authorization::Rule;
use super::configuration::Config;
use super::max_startups::MaxStartups;
use super::reload::{Reload, is_gsi_switched, keep, reload};
use super::tls_range::TlsRange;
use super::values::{
    ArrivalChecksums, Bytes, ClientOptions, DataHosts, ExemptBlock, FileMode, KeyKind, LogFormat,
    PortRange, SyncFiles,
};

/// Defines [`Settings`], how two of them are merged, and what a reload keeps, so that no setting can be forgotten.
///
/// `restart` names the fields of [`Config`] that follow from the setting. `restart(A if B)` keeps the field A where the
/// function B tells that the setting has changed.
macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty => $reload:ident $(($($kept:tt)+))?,)*) => {
        /// What an administrator may set. Each is `None` unless it is given.
        #[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Settings {
            $($(#[$meta])* pub $name: Option<$kind>,)*
        }

        impl Settings {
            /// These settings, and those of `other` where these have none.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or(other.$name),)* }
            }

            /// Every setting by the name of its field, and when a change of it takes effect.
            pub const ALL: &[(&str, Reload)] = &[$((stringify!($name), reload!($reload)),)*];
        }

        impl Config {
            /// This configuration for a server that runs with `running`: settings that need a restart keep their values.
            /// Also names those of them that have changed.
            #[must_use]
            pub fn reloaded(mut self, running: &Self) -> (Self, Vec<String>) {
                let mut changed = Vec::new();
                $($(
                    if keep!(self, running, $($kept)+) {
                        changed.push(stringify!($name).replace('_', "-"));
                    }
                )?)*
                (self, changed)
            }
        }
    };
}

settings! {
    /// The directory to serve: `ftp://HOST:PORT/a/b` is DIR/a/b. Default: the current directory
    #[arg(long, value_name = "DIR")]
    root: PathBuf => live,

    /// Where to listen; may be given several times. Port 0 takes a free port. Default: 127.0.0.1:2811
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr> => restart(listen),

    /// Let anonymous users in, to read
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous: bool => live,

    /// Let anonymous users write, rename and delete as well
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_write: bool => live,

    /// The names that anonymous users may log in with; `*` is any. Default: anonymous,ftp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    anonymous_names: Vec<String> => live,

    /// The file of users with passwords, as `gridhaul-server passwd` makes it
    #[arg(long, value_name = "FILE")]
    passwords: PathBuf => live,

    /// Let users with certificates in (AUTH GSSAPI)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gsi: bool => restart(security if is_gsi_switched),

    /// The server's certificate, with those of its issuers. Default: X509_USER_CERT, else hostcert.pem
    /// in /etc/grid-security or ~/.globus, else X509_USER_PROXY
    #[arg(long, value_name = "FILE")]
    cert: PathBuf => live,

    /// The private key of the certificate. Default: X509_USER_KEY, else hostkey.pem beside hostcert.pem;
    /// with --cert, the same file
    #[arg(long, value_name = "FILE")]
    key: PathBuf => live,

    /// The certificate authorities, signing policies and revocation lists. Default: X509_CERT_DIR, else
    /// ~/.globus/certificates, else /etc/grid-security/certificates
    #[arg(long, value_name = "DIR")]
    trust: PathBuf => live,

    /// The accounts of each identity. Default: GRIDMAP, else ~/.gridmap when not started as root, else
    /// /etc/grid-security/grid-mapfile
    #[arg(long, value_name = "FILE")]
    gridmap: PathBuf => live,

    /// The VOMS servers to believe. Default: X509_VOMS_DIR, else /etc/grid-security/vomsdir
    #[arg(long, value_name = "DIR")]
    vomsdir: PathBuf => live,

    /// What identities may use, in the configuration file only. Default: what the grid-mapfile says
    #[arg(skip)]
    authorize: Vec<Rule> => live,

    /// Let proxies in that are identities of their own (RFC 3820 id-ppl-independent). Rules and the
    /// grid-mapfile must name them; rules that deny their user hold for them too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_independent_proxies: bool => live,

    /// Offer AUTH TLS to anonymous users and those with passwords. Default: if there is a certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tls: bool => live,

    /// The versions of TLS in GSI sessions: 1.2, 1.3 or 1.2-1.3. Default: what GLOBUS_GSSAPI_MIN_TLS_PROTOCOL,
    /// GLOBUS_GSSAPI_MAX_TLS_PROTOCOL and /etc/grid-security/gsi.conf say, else 1.2-1.3
    #[arg(long, value_name = "VERSIONS")]
    tls_versions: TlsRange => live,

    /// Refuse transfers over data channels that are not encrypted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    encrypt_data: bool => live,

    /// Refuse DCAU N in GSI sessions: data channels without a handshake, as gfal2 uses them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    require_dcau: bool => live,

    /// The keys of delegated credentials: rsa as globus-gridftp-server has, or ec, which cost less
    /// time. Default: rsa
    #[arg(long, value_name = "KIND")]
    delegation_keys: KeyKind => live,

    /// Security handshakes at a time with one address. Default: 200
    #[arg(long, value_name = "COUNT")]
    max_handshakes_per_address: usize => live,

    /// Security handshakes with one address that may fail in a minute until more are refused. Default: 100
    #[arg(long, value_name = "COUNT")]
    max_failed_handshakes: usize => live,

    /// Let identities be mapped to root
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_root: bool => restart(accounts.monitor.policy.allow_root),

    /// Let identities be mapped to accounts that have expired, or whose shell is no program
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_disabled_login: bool => restart(accounts.monitor.policy.allow_disabled_login),

    /// Refuse accounts with a lower number, those of the system. Default: 1000
    #[arg(long, value_name = "NUMBER")]
    least_uid: u32 => restart(accounts.monitor.policy.least_uid),

    /// Ask the account stage of this PAM service as well whether a local account may be used
    #[arg(long, value_name = "SERVICE")]
    pam_service: String => restart(accounts.monitor.pam_service),

    /// The umask of local accounts. Default: that of the server
    #[arg(long, value_name = "OCTAL")]
    umask: FileMode => restart(accounts.monitor.umask),

    /// Local accounts at work at a time; each has a process. Default: 100
    #[arg(long, value_name = "COUNT")]
    max_brokers: usize => restart(accounts.brokers.brokers, accounts.monitor.brokers),

    /// Seconds until the process of a local account that does nothing ends. Default: 300
    #[arg(long, value_name = "SECONDS")]
    broker_idle_timeout: u64 => restart(accounts.brokers.idle),

    /// The account to run as when started as root. Default: nobody
    #[arg(long, value_name = "NAME")]
    user: String => restart(user),

    /// The permission bits of new files; the umask applies. Default: 0644
    #[arg(long, value_name = "OCTAL")]
    perms: FileMode => restart(perms),

    /// Write received files from one end to the other, also when they come over several channels: for
    /// disks and file systems that are slow otherwise
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ordered_writes: bool => live,

    /// Keep holes: do not write zeros that are received, and do not read holes of files that are sent
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sparse_files: bool => live,

    /// What a stored file waits for until the client hears of success: none; close, for which it is on its
    /// way to the disk; data, for which it is there. Default: none
    #[arg(long, value_name = "WHEN")]
    sync_files: SyncFiles => live,

    /// The checksums that are computed while files arrive, besides those that clients announce: names
    /// with commas between, none, or asked: those that clients asked for in the last 15 minutes, of files that
    /// were just stored. They cost some of the speed of receiving. Default: asked
    #[arg(long, value_name = "NAMES")]
    arrival_checksums: ArrivalChecksums => live,

    /// What the greeting says after `220 `. Default: the host's name and this program's
    #[arg(long, value_name = "TEXT")]
    banner: String => live,

    /// Control connections at a time. Default: 2000
    #[arg(long, value_name = "COUNT")]
    max_connections: usize => live,

    /// Control connections at a time from one address; the addresses of an IPv6 network of 64 bits count as one.
    /// Default: 1000
    #[arg(long, value_name = "COUNT")]
    max_connections_per_address: usize => live,

    /// Connections at a time that have not logged in, as START:PERCENT:FULL: from START on, each new one closes one
    /// that has waited for some seconds with a chance of PERCENT percent, which grows to all at FULL; at FULL, each
    /// new one takes the place of one of the address that has most. Default: 500:30:1000
    #[arg(long, value_name = "START:PERCENT:FULL")]
    max_startups: MaxStartups => live,

    /// Addresses, or blocks of them, from which connections are accepted however many of them failed to log in.
    /// Default: none
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',')]
    penalty_exempt: Vec<ExemptBlock> => live,

    /// Wrong passwords in one connection until it is closed. Default: 3
    #[arg(long, value_name = "COUNT")]
    max_login_attempts: u32 => live,

    /// Seconds that a client has to log in. Default: 120
    #[arg(long, value_name = "SECONDS")]
    login_timeout: u64 => live,

    /// Seconds until a session that does nothing is closed. Default: 600
    #[arg(long, value_name = "SECONDS")]
    idle_timeout: u64 => live,

    /// A transfer that moves fewer than `stall-bytes` in this many seconds is ended. Default: 600
    #[arg(long, value_name = "SECONDS")]
    stall_timeout: u64 => live,

    /// The bytes that a transfer must move in `stall-timeout`. Default: 64K
    #[arg(long, value_name = "BYTES")]
    stall_bytes: Bytes => live,

    /// Seconds to wait for a data connection, or for ends of data that a client announced. Default: 30
    #[arg(long, value_name = "SECONDS")]
    data_timeout: u64 => restart(limits.data_timeout),

    /// Seconds that transfers have to finish after SIGTERM. Default: 60
    #[arg(long, value_name = "SECONDS")]
    grace: u64 => live,

    /// Transfers at a time, and fewer while processors are short; more of them wait. Default: 500
    #[arg(long, value_name = "COUNT")]
    max_transfers: usize => live,

    /// Data channels that may send at a time, and as many that may receive; each takes a thread, and
    /// more of them wait. Default: 1024
    #[arg(long, value_name = "COUNT")]
    movers: usize => restart(limits.movers),

    /// Threads for work on files that is not a transfer. Default: 64
    #[arg(long, value_name = "COUNT")]
    file_threads: usize => restart(limits.file_threads),

    /// Threads that compute checksums together, beside one for each that is asked for. Default: the
    /// number of processors
    #[arg(long, value_name = "COUNT")]
    checksum_threads: usize => restart(limits.checksum_threads),

    /// Files whose checksums are remembered. Default: 100000
    #[arg(long, value_name = "COUNT")]
    remembered_checksums: usize => restart(limits.remembered_checksums),

    /// Keep checksums with their files as well, in the extended attribute user.gridhaul.checksums, so that they are
    /// known after a restart. The file has 32 or more secret bytes, without which the attribute is not
    /// believed. Default: only in memory
    #[arg(long, value_name = "FILE")]
    checksum_key: PathBuf => restart(checksum_key),

    /// Memory for data on its way. Default: a quarter of the machine's or the control group's
    #[arg(long, value_name = "BYTES")]
    buffer_memory: Bytes => restart(limits.buffer_memory),

    /// Memory for the rings of data channels over the driver rdma. Default: a quarter of the machine's or
    /// the control group's
    #[arg(long, value_name = "BYTES")]
    rdma_memory: Bytes => live,

    /// Ports for passive data connections. Default: GLOBUS_TCP_PORT_RANGE, else any
    #[arg(long, value_name = "FIRST-LAST")]
    port_range: PortRange => live,

    /// The local address of passive data connections. Default: that of the control connection
    #[arg(long, value_name = "ADDRESS")]
    data_address: IpAddr => live,

    /// The address to tell clients in PASV replies, for servers behind address translation
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: IpAddr => live,

    /// Who may open data connections besides the control connection's peer: addresses, blocks, or
    /// `any`. Third-party copies between hosts need it. The server connects to loopback, link-local and its own addresses
    /// only for clients that are there, or where a block names just them. Default: none
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    data_hosts: Vec<DataHosts> => live,

    /// Addresses in the answer to SPAS, 1 to 64. Default: 1
    #[arg(long, value_name = "COUNT")]
    stripes: usize => live,

    /// The driver stack of data channels. Default: auto
    #[arg(long, value_name = "STACK")]
    stack: String => live,

    /// The drivers that users who have logged in may ask for (SITE SETNETSTACK, -dcstack). Default: auto, tcp, splice
    /// and rdma
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    allowed_drivers: Vec<String> => live,

    /// The drivers that anonymous users may ask for. Default: auto, tcp and splice, as far as allowed-drivers has them
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    anonymous_drivers: Vec<String> => live,

    /// What clients may set of a driver's options; may be given once for each driver: `rdma:message<=4M;rate;qps<=8`
    /// is messages up to 4 MiB, any rate, up to 8 queue pairs and nothing else. Default: the options that are documented
    /// for clients; none that says where the server's sockets are, which devices it uses or what others pay for
    /// (port, bind, advertise, direct, device, gid, tc, sl, ktls)
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    client_options: Vec<ClientOptions> => live,

    /// A file that gets one line for each transfer, in the format of globus-gridftp-server's `-Z`
    #[arg(long, value_name = "FILE")]
    transfer_log: PathBuf => restart(transfer_log),

    /// Where to answer `GET /metrics` of Prometheus, over plain HTTP and without authentication. Default: nowhere
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: SocketAddr => restart(metrics_listen),

    /// The file for the log. Default: standard error
    #[arg(long, value_name = "FILE")]
    log_file: PathBuf => restart(log.file),

    /// The form of the log: text or json. Default: text
    #[arg(long, value_name = "FORMAT")]
    log_format: LogFormat => restart(log.format),

    /// What is logged: error, warn, info, debug, trace, or rules like `info,gridhaul_server=debug`. Default: info
    #[arg(long, value_name = "LEVEL")]
    log_level: String => live,
}

#[cfg(test)]
mod tests;
