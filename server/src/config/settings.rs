//! Every setting, once: a flag of `gridhaul-server serve`, a key of the configuration file, and whether SIGHUP applies a
//! change of it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;

use super::authorization::Rule;
use super::configuration::Config;
use super::group_limits::GroupLimit;
use super::max_startups::MaxStartups;
use super::reload::{Reload, is_gsi_switched, keep, reload};
use super::tls_range::TlsRange;
use super::values::{
    ArrivalChecksums, AtomicRoot, Bytes, ClientOptions, DataHosts, ExemptBlock, FileMode, KeyKind,
    LogFormat, PortRange, SyncFiles,
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

    /// The address of control connections; may be given several times. Port 0 takes a free port. Default:
    /// 127.0.0.1:2811
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr> => restart(listen),

    /// Admit anonymous users, read-only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous: bool => live,

    /// Anonymous users may also write, rename and delete
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_write: bool => live,

    /// User names of anonymous users; `*` matches any name. Default: anonymous,ftp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    anonymous_names: Vec<String> => live,

    /// The file of users with passwords, as `gridhaul-server passwd` makes it
    #[arg(long, value_name = "FILE")]
    passwords: PathBuf => live,

    /// Admit users with certificates (`AUTH GSSAPI`)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gsi: bool => restart(security if is_gsi_switched),

    /// The server's certificate, with the certificates of its issuers. Default: X509_USER_CERT, else hostcert.pem in
    /// /etc/grid-security or ~/.globus, else X509_USER_PROXY
    #[arg(long, value_name = "FILE")]
    cert: PathBuf => live,

    /// The private key of the certificate. Default: X509_USER_KEY, else hostkey.pem beside hostcert.pem; with --cert,
    /// the same file
    #[arg(long, value_name = "FILE")]
    key: PathBuf => live,

    /// The certificate authorities, signing policies and revocation lists. Default: X509_CERT_DIR, else
    /// ~/.globus/certificates, else /etc/grid-security/certificates
    #[arg(long, value_name = "DIR")]
    trust: PathBuf => live,

    /// The grid-mapfile: the accounts of each identity. Default: GRIDMAP, else ~/.gridmap when not started as root,
    /// else /etc/grid-security/grid-mapfile
    #[arg(long, value_name = "FILE")]
    gridmap: PathBuf => live,

    /// The trusted VOMS servers. Default: X509_VOMS_DIR, else /etc/grid-security/vomsdir
    #[arg(long, value_name = "DIR")]
    vomsdir: PathBuf => live,

    /// The rules for identities, in the configuration file only. Default: the grid-mapfile decides
    #[arg(skip)]
    authorize: Vec<Rule> => live,

    /// Accept independent proxies (RFC 3820 id-ppl-independent), which are separate identities. Rules or the
    /// grid-mapfile must name them; rules that deny their user apply to them too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_independent_proxies: bool => live,

    /// Offer AUTH TLS to anonymous users and users with passwords. Default: true if there is a certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tls: bool => live,

    /// The versions of TLS in GSI sessions: 1.2, 1.3 or 1.2-1.3. Default: from GLOBUS_GSSAPI_MIN_TLS_PROTOCOL,
    /// GLOBUS_GSSAPI_MAX_TLS_PROTOCOL and /etc/grid-security/gsi.conf, else 1.2-1.3
    #[arg(long, value_name = "VERSIONS")]
    tls_versions: TlsRange => live,

    /// Refuse transfers over data channels that are not encrypted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    encrypt_data: bool => live,

    /// Refuse DCAU N in GSI sessions: data channels without a handshake, which gfal2 uses by default
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    require_dcau: bool => live,

    /// The keys of delegated credentials: rsa, as globus-gridftp-server uses, or ec, which need less processor time.
    /// Default: rsa
    #[arg(long, value_name = "KIND")]
    delegation_keys: KeyKind => live,

    /// Security handshakes at a time with one address. Default: 200
    #[arg(long, value_name = "COUNT")]
    max_handshakes_per_address: usize => live,

    /// Failed security handshakes with one address in a minute, above which further ones are refused. Default: 100
    #[arg(long, value_name = "COUNT")]
    max_failed_handshakes: usize => live,

    /// Identities may be mapped to root
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_root: bool => restart(accounts.monitor.policy.allow_root),

    /// Identities may be mapped to accounts that have expired, or whose shell is not an executable program
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_disabled_login: bool => restart(accounts.monitor.policy.allow_disabled_login),

    /// Refuse accounts with a lower UID. Default: 1000
    #[arg(long, value_name = "NUMBER")]
    least_uid: u32 => restart(accounts.monitor.policy.least_uid),

    /// Also run the account stage of this PAM service before a local account is used
    #[arg(long, value_name = "SERVICE")]
    pam_service: String => restart(accounts.monitor.pam_service),

    /// The umask of local accounts. Default: that of the server
    #[arg(long, value_name = "OCTAL")]
    umask: FileMode => restart(accounts.monitor.umask),

    /// Broker processes at a time. Default: 100
    #[arg(long, value_name = "COUNT")]
    max_brokers: usize => restart(accounts.brokers.brokers, accounts.monitor.brokers),

    /// Seconds without work after which a broker ends. Default: 300
    #[arg(long, value_name = "SECONDS")]
    broker_idle_timeout: u64 => restart(accounts.brokers.idle),

    /// The account to run as when started as root. Default: `nobody`
    #[arg(long, value_name = "NAME")]
    user: String => restart(user),

    /// The permission bits of new files; the umask applies. Default: 0644
    #[arg(long, value_name = "OCTAL")]
    perms: FileMode => restart(perms),

    /// Write received files from front to back, also with several channels: for disks and file systems with slow random
    /// writes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ordered_writes: bool => live,

    /// Keep holes: do not write received zeros, and do not read holes of sent files
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sparse_files: bool => live,

    /// When the client gets the success of a put: none, at once; close, when writing to disk has begun; data, when the
    /// data is on disk. Default: none
    #[arg(long, value_name = "WHEN")]
    sync_files: SyncFiles => live,

    /// The roots beneath which an upload has a temporary name until it is complete, and only then replaces an older file; `*`
    /// is every root. Default: none
    #[arg(long, value_name = "DIRS", value_delimiter = ',')]
    atomic_uploads: Vec<AtomicRoot> => live,

    /// The checksums that are computed while files arrive, besides those that clients announce: names separated by
    /// commas, none, or asked: the kinds that clients requested in the last 15 minutes for files just stored. They slow
    /// down receiving. Default: asked
    #[arg(long, value_name = "NAMES")]
    arrival_checksums: ArrivalChecksums => live,

    /// The text of the greeting after `220 `. Default: the host's name and this program's
    #[arg(long, value_name = "TEXT")]
    banner: String => live,

    /// Control connections at a time. Default: 2000
    #[arg(long, value_name = "COUNT")]
    max_connections: usize => live,

    /// Control connections at a time from one address; the addresses of an IPv6 network of 64 bits count as one.
    /// Default: 1000
    #[arg(long, value_name = "COUNT")]
    max_connections_per_address: usize => live,

    /// Connections at a time that have not logged in, as START:PERCENT:FULL. Above START, each new connection closes a
    /// waiting one with a probability of PERCENT percent, which grows to 100 at FULL. At FULL, each new connection
    /// replaces one of the address that has most. Default: 500:30:1000
    #[arg(long, value_name = "START:PERCENT:FULL")]
    max_startups: MaxStartups => live,

    /// Addresses or blocks without penalties for failed logins. Default: none
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',')]
    penalty_exempt: Vec<ExemptBlock> => live,

    /// Wrong passwords before a connection is closed. Default: 3
    #[arg(long, value_name = "COUNT")]
    max_login_attempts: u32 => live,

    /// Seconds that a client has to log in. Default: 120
    #[arg(long, value_name = "SECONDS")]
    login_timeout: u64 => live,

    /// Seconds after which an idle session is closed. Default: 600
    #[arg(long, value_name = "SECONDS")]
    idle_timeout: u64 => live,

    /// A transfer that moves fewer than `stall-bytes` in this many seconds fails. Default: 600
    #[arg(long, value_name = "SECONDS")]
    stall_timeout: u64 => live,

    /// Bytes that a transfer must move in `stall-timeout`. Default: 64K
    #[arg(long, value_name = "BYTES")]
    stall_bytes: Bytes => live,

    /// Seconds to wait for a data connection, or for EODs that a client announced. Default: 30
    #[arg(long, value_name = "SECONDS")]
    data_timeout: u64 => restart(limits.data_timeout),

    /// Seconds that transfers have to finish after SIGTERM. Default: 60
    #[arg(long, value_name = "SECONDS")]
    grace: u64 => live,

    /// Transfers at a time, and fewer if the processors are saturated; further ones wait. Default: 500
    #[arg(long, value_name = "COUNT")]
    max_transfers: usize => live,

    /// Limits of groups of users, in the configuration file only. Default: none
    #[arg(skip)]
    limit: Vec<GroupLimit> => live,

    /// Worker threads, and so data channels, that send at a time, and as many that receive; further channels wait.
    /// Default: 1024
    #[arg(long, value_name = "COUNT")]
    movers: usize => restart(limits.movers),

    /// Threads for file work outside transfers: listings, checksums, path operations. Default: 64
    #[arg(long, value_name = "COUNT")]
    file_threads: usize => restart(limits.file_threads),

    /// Threads that compute checksums in parallel, in addition to one thread for each request. Default: the number of
    /// processors
    #[arg(long, value_name = "COUNT")]
    checksum_threads: usize => restart(limits.checksum_threads),

    /// Files whose checksums are kept in memory. Default: 100000
    #[arg(long, value_name = "COUNT")]
    remembered_checksums: usize => restart(limits.remembered_checksums),

    /// Also store checksums in the extended attribute user.gridhaul.checksums of their files, so that they survive a
    /// restart. FILE has 32 or more secret bytes that seal the attribute. Default: only in memory
    #[arg(long, value_name = "FILE")]
    checksum_key: PathBuf => restart(checksum_key),

    /// Memory for data in transit. Default: a quarter of the machine's or the control group's
    #[arg(long, value_name = "BYTES")]
    buffer_memory: Bytes => restart(limits.buffer_memory),

    /// Memory for the rings of data channels over the driver rdma. Default: a quarter of the machine's or the control
    /// group's
    #[arg(long, value_name = "BYTES")]
    rdma_memory: Bytes => live,

    /// Ports for passive data connections. Default: GLOBUS_TCP_PORT_RANGE, else any
    #[arg(long, value_name = "FIRST-LAST")]
    port_range: PortRange => live,

    /// The local address of passive data connections. Default: that of the control connection
    #[arg(long, value_name = "ADDRESS")]
    data_address: IpAddr => live,

    /// The address in PASV replies, for servers behind address translation
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: IpAddr => live,

    /// Hosts that may open data connections besides the client: addresses, blocks, or `any`. Third-party copies need
    /// it. Default: none
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    data_hosts: Vec<DataHosts> => live,

    /// Addresses in the answer to SPAS, 1 to 64. Default: 1
    #[arg(long, value_name = "COUNT")]
    stripes: usize => live,

    /// The driver stack of data channels. Default: auto
    #[arg(long, value_name = "STACK")]
    stack: String => live,

    /// The drivers that users who have logged in may request (SITE SETNETSTACK, -dcstack). Default: auto, tcp, splice
    /// and rdma
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    allowed_drivers: Vec<String> => live,

    /// The drivers that anonymous users may request. Default: auto, tcp and splice, if allowed-drivers has them
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    anonymous_drivers: Vec<String> => live,

    /// Per driver: which of its options clients may set, as an upper bound, a list of values, or unrestricted.
    /// `rdma:message<=4M;rate;qps<=8` allows messages up to 4 MiB, any rate, up to 8 queue pairs, and no other option.
    /// Once per driver. Default: the options that are documented for clients; none that selects the server's sockets or
    /// devices, or puts a load on other users (port, bind, advertise, direct, device, gid, tc, sl, ktls)
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    client_options: Vec<ClientOptions> => live,

    /// A file that gets one line for each transfer, in the format of globus-gridftp-server's `-Z`
    #[arg(long, value_name = "FILE")]
    transfer_log: PathBuf => restart(transfer_log),

    /// The address that answers `GET /metrics` of Prometheus, over plain HTTP, without authentication. Default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: SocketAddr => restart(metrics_listen),

    /// The file for the log. Default: standard error
    #[arg(long, value_name = "FILE")]
    log_file: PathBuf => restart(log.file),

    /// The format of the log: text or json. Default: text
    #[arg(long, value_name = "FORMAT")]
    log_format: LogFormat => restart(log.format),

    /// The level: error, warn, info, debug, trace, or rules like `info,gridhaul_server=debug`. Default: info
    #[arg(long, value_name = "LEVEL")]
    log_level: String => live,
}

#[cfg(test)]
mod tests;
