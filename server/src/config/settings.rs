//! Every setting, once: a flag of `gridhaul-server serve`, a key of the configuration file, and whether SIGHUP applies a
//! change of it.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::as_node::ControlServer;
use super::authorization::Rule;
use super::configuration::Config;
use super::group_limits::GroupLimit;
use super::keys::{KeyInForce, Keys, Reload, Source};
use super::listen::ListenAddress;
use super::log_level::LogLevel;
use super::max_startups::MaxStartups;
use super::name_server::NameServer;
use super::nodes::NodeSource;
use super::reload::{is_clustering_switched, is_gsi_switched, keep, reload};
use super::seconds::Seconds;
use super::shown::Shown;
use super::texts::list;
use super::tls_range::TlsRange;
use super::values::{
    ArrivalChecksums, AtomicRoot, Bytes, Callout, ClientOptions, DataHosts, ExemptBlock, FileMode,
    KeyKind, LogFormat, PortRange, SyncFiles,
};

/// Defines [`Settings`], how two of them are merged, and what a reload keeps, so that no setting can be forgotten.
///
/// A heading in brackets is that of the flags after it in the help, and of a section in `docs/reference/options.md`. Keys
/// after empty brackets are in the file only.
///
/// `restart` names the fields of [`Config`] that follow from the setting. `restart(A if B)` keeps the field A where the
/// function B tells that the setting has changed.
macro_rules! settings {
    ([] $($(#[$file_meta:meta])* $file_name:ident: $file_kind:ty => live,)*
     $([$heading:literal] $($(#[$meta:meta])* $name:ident: $kind:ty => $reload:ident $(($($kept:tt)+))?,)*)+) => {
        /// What an administrator may set. Each is `None` unless it is given.
        #[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Settings {
            $($(#[$file_meta])* #[arg(skip)] pub $file_name: Option<$file_kind>,)*
            $($($(#[$meta])* #[arg(help_heading = $heading, hide_possible_values = true)] pub $name: Option<$kind>,)*)*
        }

        impl Settings {
            /// These settings, and those of `other` where these have none.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self {
                    $($file_name: self.$file_name.or(other.$file_name),)*
                    $($($name: self.$name.or(other.$name),)*)*
                }
            }

            /// Only the settings whose keys `keeps` names.
            #[must_use]
            pub(super) fn only(self, keeps: impl Fn(&str) -> bool) -> Self {
                Self {
                    $($file_name: self.$file_name.filter(|_| keeps(&key_of(stringify!($file_name)))),)*
                    $($($name: self.$name.filter(|_| keeps(&key_of(stringify!($name)))),)*)*
                }
            }

            /// The keys of the settings that are given.
            pub(super) fn given(&self) -> Vec<String> {
                let mut given = Vec::new();
                $(if self.$file_name.is_some() {
                    given.push(key_of(stringify!($file_name)));
                })*
                $($(if self.$name.is_some() {
                    given.push(key_of(stringify!($name)));
                })*)*
                given
            }

            /// The keys with their values. `source` tells where a setting is from, and `default` has the words for its default.
            pub(super) fn in_force(&self, source: &dyn Fn(&str) -> Source, default: &dyn Fn(&str) -> String) -> Keys {
                let keys = [
                    $((stringify!($file_name), Reload::Live, self.$file_name.as_ref().map(Shown::shown)),)*
                    $($((stringify!($name), reload!($reload), self.$name.as_ref().map(Shown::shown)),)*)*
                ];
                Keys::new(keys.into_iter().map(|(name, reload, value)| {
                    let key = key_of(name);
                    KeyInForce {
                        value: value.unwrap_or_else(|| default(name)),
                        source: source(&key),
                        reload,
                        key,
                    }
                }))
            }

            /// Every setting by the name of its field, and when a change of it takes effect.
            pub const ALL: &[(&str, Reload)] = &[
                $((stringify!($file_name), Reload::Live),)*
                $($((stringify!($name), reload!($reload)),)*)*
            ];
        }

        impl Config {
            /// This configuration for a server that runs with `running`: settings that need a restart keep their values.
            /// Also names those of them that have changed.
            #[must_use]
            pub fn reloaded(mut self, running: &Self) -> (Self, Vec<String>) {
                let mut changed = Vec::new();
                $($($(
                    if keep!(self, running, $($kept)+) {
                        changed.push(key_of(stringify!($name)));
                    }
                )?)*)*
                self.keys.keep(&changed, &running.keys);
                (self, changed)
            }
        }
    };
}

settings! {
    []

    /// The rules for identities, in the configuration file only. Default: the grid-mapfile decides
    authorize: Vec<Rule> => live,

    /// Limits of groups of users, in the configuration file only. Default: none
    limit: Vec<GroupLimit> => live,

    ["What to serve"]

    /// The directory to serve: `ftp://HOST:PORT/a/b` is DIR/a/b. Default: the current directory
    #[arg(long, value_name = "DIR")]
    root: PathBuf => live,

    /// The text of the greeting after `220 `. Default: the host's name and this program's
    #[arg(long, value_name = "TEXT")]
    banner: String => live,

    ["Where to listen, and as which account"]

    /// The address of control connections; may be given several times. Default: 127.0.0.1:2811
    ///
    /// A port alone, like 2811, means all addresses, IPv4 and IPv6. localhost:2811 means 127.0.0.1 and ::1. Port 0 takes a
    /// free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(deserialize_with = "list")]
    listen: Vec<ListenAddress> => restart(listen),

    /// The account to run as when started as root. Default: `nobody`
    #[arg(long, value_name = "NAME")]
    user: String => restart(user),

    ["Who may log in"]

    /// Admit anonymous users, read-only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous: bool => live,

    /// Anonymous users may also write, rename and delete
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_write: bool => live,

    /// User names of anonymous users; `*` matches any name. Default: anonymous,ftp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    anonymous_names: Vec<String> => live,

    /// The file of users with passwords, as `gridhaul-server passwd` makes it
    #[arg(long, value_name = "FILE")]
    passwords: PathBuf => live,

    /// Admit users with certificates (`AUTH GSSAPI`)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gsi: bool => restart(security if is_gsi_switched),

    /// Offer AUTH TLS to anonymous users and users with passwords. Default: true if there is a certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tls: bool => live,

    /// Wrong passwords before a connection is closed. Default: 3
    #[arg(long, value_name = "COUNT")]
    max_login_attempts: u32 => live,

    ["Certificates and trust"]

    /// The server's certificate, with the certificates of its issuers. Default: X509_USER_CERT, else hostcert.pem in
    /// /etc/grid-security or ~/.globus, else X509_USER_PROXY
    #[arg(long, value_name = "FILE")]
    cert: PathBuf => live,

    /// The private key of the certificate. Default: X509_USER_KEY, else hostkey.pem beside hostcert.pem; with --cert,
    /// the same file
    #[arg(long, value_name = "FILE")]
    key: PathBuf => live,

    /// The file with the passphrase of an encrypted private key. Default: key-passphrase in CREDENTIALS_DIRECTORY of
    /// systemd; else it is asked for at the terminal when the server starts
    #[arg(long, value_name = "FILE")]
    key_passphrase: PathBuf => live,

    /// The certificate authorities, signing policies and revocation lists. Default: X509_CERT_DIR, else
    /// ~/.globus/certificates, else /etc/grid-security/certificates
    #[arg(long, value_name = "DIR")]
    trust: PathBuf => live,

    /// The grid-mapfile: the accounts of each identity. Default: GRIDMAP, else ~/.gridmap when not started as root,
    /// else /etc/grid-security/grid-mapfile
    #[arg(long, value_name = "FILE")]
    gridmap: PathBuf => live,

    /// Users, groups and virtual organizations that are refused, in the format of ban_users.db of LCAS; may be given
    /// several times
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "list")]
    ban_list: Vec<PathBuf> => live,

    /// The leases of pool accounts, which the grid-mapfile names with a dot (`.atlas`). Default: GRIDMAPDIR, else
    /// /etc/grid-security/gridmapdir if it exists
    #[arg(long, value_name = "DIR")]
    gridmapdir: PathBuf => restart(accounts.monitor.gridmapdir),

    /// A program, or the socket of one (`unix:PATH`), that is asked about every login with a certificate
    #[arg(long, value_name = "PROGRAM")]
    authz_callout: Callout => restart(authz_callout),

    /// The time within which the callout must answer. Default: 10s
    #[arg(long, value_name = "TIME")]
    authz_callout_timeout: Seconds => restart(authz_callout_timeout),

    /// Start although gsi-authz.conf names callouts, which this server does not load
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ignore_gsi_authz: bool => live,

    /// The trusted VOMS servers. Default: X509_VOMS_DIR, else /etc/grid-security/vomsdir
    #[arg(long, value_name = "DIR")]
    vomsdir: PathBuf => live,

    /// Accept independent proxies (RFC 3820 id-ppl-independent), which are separate identities
    ///
    /// Rules or the grid-mapfile must name them; rules that deny their user apply to them too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_independent_proxies: bool => live,

    /// The versions of TLS in GSI sessions: 1.2, 1.3 or 1.2-1.3. Default: from GLOBUS_GSSAPI_MIN_TLS_PROTOCOL,
    /// GLOBUS_GSSAPI_MAX_TLS_PROTOCOL and /etc/grid-security/gsi.conf, else 1.2-1.3
    #[arg(long, value_name = "VERSIONS")]
    tls_versions: TlsRange => live,

    /// The keys of delegated credentials: rsa, as globus-gridftp-server uses, or ec, which need less processor time.
    /// Default: rsa
    #[arg(long, value_name = "KIND")]
    delegation_keys: KeyKind => live,

    ["Local accounts"]

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

    /// The time without work after which a broker ends. Default: 5m
    #[arg(long, value_name = "TIME")]
    broker_idle_timeout: Seconds => restart(accounts.brokers.idle),

    ["Protection of data channels"]

    /// Refuse transfers over data channels that are not encrypted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    encrypt_data: bool => live,

    /// Refuse DCAU N in GSI sessions: data channels without a handshake, which gfal2 uses by default
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    require_dcau: bool => live,

    ["Data connections"]

    /// Ports for passive data connections. Default: GLOBUS_TCP_PORT_RANGE, else any
    #[arg(long, value_name = "FIRST-LAST")]
    port_range: PortRange => live,

    /// The local address of passive data connections; a data node may have several. Default: that of the control connection
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    data_address: Vec<IpAddr> => live,

    /// The address of data ports that clients are told, for servers and data nodes behind address translation
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: IpAddr => live,

    /// Hosts that may open data connections besides the client: addresses, blocks, or `any`. Default: none
    ///
    /// Third-party copies need it
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    data_hosts: Vec<DataHosts> => live,

    /// Addresses in the answer to SPAS, 1 to 64. Default: 1, or the number of data nodes
    #[arg(long, value_name = "COUNT")]
    stripes: usize => live,

    ["Drivers"]

    /// The driver stack of data channels. Default: auto
    #[arg(long, value_name = "STACK")]
    stack: String => live,

    /// The drivers that users who have logged in may request (SITE SETNETSTACK, -dcstack). Default: auto, tcp, splice
    /// and rdma
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    allowed_drivers: Vec<String> => live,

    /// The drivers that anonymous users may request. Default: auto, tcp and splice, if allowed-drivers has them
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    anonymous_drivers: Vec<String> => live,

    /// Per driver: which of its options clients may set. Default: the options that are documented for clients
    ///
    /// Each with an upper bound, a list of values, or unrestricted: `rdma:message<=4M;rate;qps<=8` allows messages up to 4 MiB,
    /// any rate, up to 8 queue pairs, and no other option. Once per driver. By default clients set none that selects the
    /// server's sockets or devices, or puts a load on other users (port, bind, advertise, direct, device, gid, tc, sl, pkey, ktls)
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    client_options: Vec<ClientOptions> => live,

    ["Data nodes"]

    /// The data nodes that store and send the files of this server. Default: none
    ///
    /// At most 256: hosts as their certificates name them, with a port other than 7512 after a colon. dns:HOST and
    /// dns:HOST:PORT are a node at each address of a host, dns+srv:_SERVICE._tcp.DOMAIN the targets of a service within the
    /// domain; these names are looked up again while the server runs
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    nodes: Vec<NodeSource> => live(nodes if is_clustering_switched),

    /// The name servers for the names of data nodes, as addresses with a port other than 53 after a colon. Default: the resolver
    /// of this machine
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    nodes_resolver: Vec<NameServer> => restart(nodes_resolver),

    /// In `gridhaul-server node` only: the control servers that the node obeys, as hosts or as subjects of their certificates.
    /// Default: those with a certificate of the same subject or host as the node
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    control_servers: Vec<ControlServer> => restart(node),

    /// The directory of the authority that `gridhaul-server nodes invite` has made: connections to data nodes use its certificate
    /// instead of that of cert, and all nodes must be enrolled. Default: none
    #[arg(long, value_name = "DIR")]
    node_authority: PathBuf => restart(node_authority),

    /// In `gridhaul-server node` only: the file with the certificate and the key of an enrolled node. Default:
    /// /etc/gridhaul/node-identity.pem, if it exists
    #[arg(long, value_name = "FILE")]
    node_identity: PathBuf => restart(node),

    ["Limits on connections and logins"]

    /// Control connections at a time. Default: 2000
    #[arg(long, value_name = "COUNT")]
    max_connections: usize => live,

    /// Control connections at a time from one address; the addresses of an IPv6 network of 64 bits count as one.
    /// Default: 1000
    #[arg(long, value_name = "COUNT")]
    max_connections_per_address: usize => live,

    /// Connections at a time that have not logged in, as START:PERCENT:FULL. Default: 500:30:1000
    ///
    /// Above START, each new connection closes a waiting one with a probability of PERCENT percent, which grows to 100
    /// at FULL. At FULL, each new connection replaces one of the address that has most
    #[arg(long, value_name = "START:PERCENT:FULL")]
    max_startups: MaxStartups => live,

    /// Addresses or blocks without penalties for failed logins. Default: none
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    penalty_exempt: Vec<ExemptBlock> => live,

    /// Security handshakes at a time with one address. Default: 200
    #[arg(long, value_name = "COUNT")]
    max_handshakes_per_address: usize => live,

    /// Failed security handshakes with one address in a minute, above which further ones are refused. Default: 100
    #[arg(long, value_name = "COUNT")]
    max_failed_handshakes: usize => live,

    ["Limits on transfers and memory"]

    /// Transfers at a time, and fewer if the processors are saturated; further ones wait. Default: 500
    #[arg(long, value_name = "COUNT")]
    max_transfers: usize => live,

    /// Worker threads, and so data channels, that send at a time, and as many that receive; further channels wait.
    /// Default: 1024
    #[arg(long, value_name = "COUNT")]
    movers: usize => restart(limits.movers),

    /// Threads for file work outside transfers: listings, checksums, path operations. Default: 64
    #[arg(long, value_name = "COUNT")]
    file_threads: usize => restart(limits.file_threads),

    /// Memory for data in transit. Default: a quarter of the machine's or the control group's
    #[arg(long, value_name = "SIZE")]
    buffer_memory: Bytes => restart(limits.buffer_memory),

    /// Memory for the rings of data channels over the driver rdma. Default: a quarter of the machine's or the control
    /// group's
    #[arg(long, value_name = "SIZE")]
    rdma_memory: Bytes => live,

    ["Times"]

    /// The time that a client has to log in. Default: 2m
    #[arg(long, value_name = "TIME")]
    login_timeout: Seconds => live,

    /// The time after which an idle session is closed. Default: 10m
    #[arg(long, value_name = "TIME")]
    idle_timeout: Seconds => live,

    /// The time to wait for a data connection, or for EODs that a client announced. Default: 30s
    #[arg(long, value_name = "TIME")]
    data_timeout: Seconds => restart(limits.data_timeout),

    /// A transfer that moves fewer than `stall-bytes` in this time fails. Default: 10m
    #[arg(long, value_name = "TIME")]
    stall_timeout: Seconds => live,

    /// Bytes that a transfer must move in `stall-timeout`. Default: 64K
    #[arg(long, value_name = "SIZE")]
    stall_bytes: Bytes => live,

    /// The time that transfers have to finish after SIGTERM. Default: 1m
    #[arg(long, value_name = "TIME")]
    grace: Seconds => live,

    /// The time that transfers have to finish after an upgrade, in the version before. Default: 1d
    #[arg(long, value_name = "TIME")]
    upgrade_grace: Seconds => live,

    ["Storing files"]

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
    #[serde(deserialize_with = "list")]
    atomic_uploads: Vec<AtomicRoot> => live,

    ["Checksums"]

    /// The checksums that are computed while files arrive, besides those that clients announce. Default: asked
    ///
    /// Names separated by commas, none, or asked: the kinds that clients requested in the last 15 minutes for files just
    /// stored. They slow down receiving
    #[arg(long, value_name = "CHECKSUMS")]
    arrival_checksums: ArrivalChecksums => live,

    /// Threads that compute checksums in parallel, in addition to one thread for each request. Default: the number of
    /// processors
    #[arg(long, value_name = "COUNT")]
    checksum_threads: usize => restart(limits.checksum_threads),

    /// Files whose checksums are kept in memory. Default: 100000
    #[arg(long, value_name = "COUNT")]
    remembered_checksums: usize => restart(limits.remembered_checksums),

    /// Also store checksums with their files, so that they survive a restart. Default: only in memory
    ///
    /// They are in the extended attribute user.gridhaul.checksums. FILE has 32 or more secret bytes that seal the attribute
    #[arg(long, value_name = "FILE")]
    checksum_key: PathBuf => restart(checksum_key),

    ["Log and metrics"]

    /// The file for the log. Default: standard error
    #[arg(long, value_name = "FILE")]
    log_file: PathBuf => restart(log.file),

    /// The format of the log: text, json, journald, or auto: the journal of systemd if standard error leads there and there
    /// is no log-file, else text. Default: auto
    #[arg(long, value_name = "FORMAT")]
    log_format: LogFormat => restart(log.format),

    /// The level: error, warn, info, debug, trace, or rules like `info,gridhaul_server=debug`. Default: info
    #[arg(long, value_name = "LEVEL")]
    log_level: LogLevel => live,

    /// A file that gets one line for each transfer, in the format of globus-gridftp-server's `-Z`
    #[arg(long, value_name = "FILE")]
    transfer_log: PathBuf => restart(transfer_log),

    /// A file that gets a JSON object for each login, refused login, transfer and change of a file. Default: these are in the
    /// log only
    #[arg(long, value_name = "FILE")]
    audit_log: PathBuf => restart(log.audit),

    /// The address that answers `GET /metrics` of Prometheus. Default: none
    ///
    /// Over plain HTTP, without authentication. A port alone, like 9281, and localhost:9281 mean 127.0.0.1
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: ListenAddress => restart(metrics_listen),

    ["Administration"]

    /// The address of the administration page and interface, over HTTP. Default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: ListenAddress => restart(admin.listen),

    /// The Unix socket of the administration interface, or none. Default: /run/gridhaul/admin.sock when started as root,
    /// else gridhaul/PORT.sock in XDG_RUNTIME_DIR, else none
    #[arg(long, value_name = "PATH")]
    admin_socket: PathBuf => restart(admin.socket),

    /// A file with the secret that administrators show, of at least 16 bytes. Default: none; the account of a client on this
    /// machine decides
    #[arg(long, value_name = "FILE")]
    admin_token: PathBuf => restart(admin.token),

    /// The certificate of the administration page, for HTTPS. Default: none
    #[arg(long, value_name = "FILE")]
    admin_cert: PathBuf => restart(admin.certificate),

    /// The private key of admin-cert. Default: the same file
    #[arg(long, value_name = "FILE")]
    admin_key: PathBuf => restart(admin.key),

    /// The authorities of administrators' certificates, as a PEM file. Default: none; certificates are not asked for
    #[arg(long, value_name = "FILE")]
    admin_clients: PathBuf => restart(admin.clients),

    /// The subjects of administrators' certificates, as /DC=org/CN=Name; may be given several times. Default: all that
    /// admin-clients has issued
    #[arg(long, value_name = "SUBJECT")]
    #[serde(deserialize_with = "list")]
    admin_subjects: Vec<String> => restart(admin.subjects),

    /// Names of this machine that browsers use for the administration page. Default: localhost and the host's name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    admin_names: Vec<String> => restart(admin.names),
}

impl Settings {
    /// The keys of the file, which are the flags without the leading dashes.
    pub(super) fn keys() -> impl Iterator<Item = String> {
        Self::ALL.iter().map(|(name, _)| key_of(name))
    }

    pub(super) fn is_key(key: &str) -> bool {
        Self::keys().any(|known| known == key)
    }
}

/// The key of a field.
fn key_of(field: &str) -> String {
    field.replace('_', "-")
}

#[cfg(test)]
mod tests;
