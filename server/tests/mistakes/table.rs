//! The mistakes, each with the setting and the words of the remedy.

/// A mistake in a file, of which one line is marked with `#!`, or in a flag.
pub(crate) struct Mistake {
    pub(crate) file: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// The setting, and the words of the remedy.
    pub(crate) key: &'static str,
    pub(crate) remedy: &'static str,
}

/// A file with a mistake. `ROOT` is a directory that can be served, `HERE` the directory of the file.
pub(crate) const fn in_file(
    file: &'static str,
    key: &'static str,
    remedy: &'static str,
) -> Mistake {
    Mistake {
        file,
        flags: &[],
        key,
        remedy,
    }
}

/// Flags with a mistake, with an anonymous server.
pub(crate) const fn in_flags(
    flags: &'static [&'static str],
    key: &'static str,
    remedy: &'static str,
) -> Mistake {
    Mistake {
        file: "",
        flags,
        key,
        remedy,
    }
}

/// A server for users with certificates, with these further lines.
macro_rules! with_gsi {
    ($lines:literal) => {
        concat!(
            "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/map'\n",
            $lines
        )
    };
}

pub(crate) const MISTAKES: &[Mistake] = &[
    in_file(
        "anonymus = true #!",
        "anonymus",
        "did you mean 'anonymous'?",
    ),
    in_file(
        "max_connections = 10 #!",
        "max_connections",
        "did you mean 'max-connections'?",
    ),
    in_file(
        "[limits] #!\nmovers = 5",
        "limits",
        "keys are not in tables",
    ),
    in_file(
        "log-level = 'verbose' #!",
        "log-level",
        "use error, warn, info",
    ),
    in_file(
        "log-level = 'info,gridhaul_server=loud' #!",
        "log-level",
        "use error, warn, info",
    ),
    in_file(
        "allowed-drivers = ['tpc'] #!",
        "allowed-drivers",
        "did you mean 'tcp'?",
    ),
    in_file(
        "anonymous-drivers = 'udt' #!",
        "anonymous-drivers",
        "it has tcp",
    ),
    in_file(
        "client-options = ['tcp:buffer=<64M'] #!",
        "client-options",
        "with <= for an upper bound",
    ),
    in_file(
        "client-options = ['tcp:bufer<=64M'] #!",
        "client-options",
        "its options are",
    ),
    in_file(
        "client-options = ['udt:rate'] #!",
        "client-options",
        "the drivers are",
    ),
    in_file("stack = 'tpc' #!", "stack", "the drivers are"),
    in_file(
        "data-address = '198.51.100.1' #!",
        "data-address",
        "name an address of this machine",
    ),
    in_file(
        "data-address = 'here' #!",
        "data-address",
        "write it like data-address =",
    ),
    in_file("listen = '0.0.0.0' #!", "listen", "like 0.0.0.0:2811"),
    in_file(
        "listen = ['127.0.0.1:0', 'host.example.org:2811'] #!",
        "listen",
        "like 0.0.0.0:2811",
    ),
    in_file(
        "listen = '198.51.100.1:2811' #!",
        "listen",
        "name an address of this machine",
    ),
    in_file("listen = [] #!", "listen", "leave it out for its default"),
    in_file(
        "metrics-listen = 'localhost' #!",
        "metrics-listen",
        "or localhost:2811",
    ),
    in_file(
        "port-range = '51000-50000' #!",
        "port-range",
        "like 50000-51000",
    ),
    in_file(
        "data-hosts = 'host.example.org' #!",
        "data-hosts",
        "like 192.0.2.7",
    ),
    in_file("idle-timeout = '10 minutes' #!", "idle-timeout", "10m"),
    in_file("grace = -1 #!", "grace", "like 600"),
    in_file("buffer-memory = 'lots' #!", "buffer-memory", "like 65536"),
    in_file(
        "max-connections = 0 #!",
        "max-connections",
        "between 1 and 1000000",
    ),
    in_file(
        "max-transfers = 'many' #!",
        "max-transfers",
        "write it like max-transfers = 100",
    ),
    in_file("perms = 0644 #!", "perms", "write it like perms = \"0644\""),
    in_file("perms = 644 #!", "perms", "write it in quotes: \"644\""),
    in_file(
        "user = nobody #!",
        "user",
        "write it like user = \"nobody\"",
    ),
    in_file(
        "banner = 'one' \nbanner = 'two' #!",
        "banner",
        "delete one of the lines",
    ),
    in_file(
        "anonymous = 'yes' #!",
        "anonymous",
        "write it like anonymous = true",
    ),
    in_file(
        "root = '/nonexistent' #!",
        "root",
        "name a directory that exists",
    ),
    in_file(
        "passwords = '/nonexistent/users' #!",
        "passwords",
        "gridhaul-server passwd FILE NAME",
    ),
    in_file(
        "passwords = 'HERE/broken-users' #!",
        "passwords",
        "line 1: no hash",
    ),
    in_file(
        "checksum-key = 'HERE/open-key' #!",
        "checksum-key",
        "chmod 600",
    ),
    in_file(
        "transfer-log = '/nonexistent/log' #!",
        "transfer-log",
        "the directory must exist",
    ),
    in_file(
        "log-file = '/nonexistent/log' #!",
        "log-file",
        "the directory must exist",
    ),
    in_file(
        "cert = '/nonexistent/cert.pem' #!",
        "cert",
        "name another one with --cert",
    ),
    in_file(
        "gridmap = '/etc/grid-security/grid-mapfile' #!",
        "gridmap",
        "needs --gsi",
    ),
    in_file("least-uid = 500 #!", "least-uid", "needs --gsi"),
    in_file(
        "encrypt-data = true #!",
        "encrypt-data",
        "needs --gsi or --tls",
    ),
    in_file(
        "tls-versions = '1.1' #!",
        "tls-versions",
        "1.2, 1.3 or 1.2-1.3",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nmap = true\nanonymous-write = true #!",
        "authorize",
        "before the first [[authorize]]",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nacount = 'grid' #!",
        "authorize",
        "(did you mean 'account'?)",
    ),
    in_file(
        "audit-log = '/nonexistent/log' #!",
        "audit-log",
        "the directory must exist",
    ),
    in_file("ban-list = '/etc/banned' #!", "ban-list", "needs --gsi"),
    in_file(
        "admin-listen = '198.51.100.1:8443' #!",
        "admin-listen",
        "admin-token",
    ),
    in_file(
        "admin-listen = 0\nadmin-token = '/nonexistent/token' #!",
        "admin-token",
        "name another one with --admin-token",
    ),
    in_file(
        "metrics-listen = 23999\nadmin-listen = 23999 #!",
        "admin-listen",
        "take another port",
    ),
    in_file(
        "log-file = 'HERE/log'\ntransfer-log = 'HERE/log' #!",
        "transfer-log",
        "give each log its own",
    ),
    in_file(
        "[[limit]] #!\nname = 'atlas'\nvo = 'atlas'\nmax-transfers = 5",
        "limit",
        "need --gsi",
    ),
    in_file(
        "admin-names = 'dtn.example.org' #!",
        "admin-names",
        "needs admin-listen",
    ),
    in_file(
        "admin-names = [5] #!",
        "admin-names",
        "write it like admin-names =",
    ),
    in_file(
        "admin-socket = '/nonexistent/admin.sock' #!",
        "admin-socket",
        "make the directory",
    ),
    in_file(
        "admin-socket = 'HERE/open/admin.sock' #!",
        "admin-socket",
        "only root or the account of the server may write",
    ),
    in_file(
        "admin-socket = 'HERE/broken-users' #!",
        "admin-socket",
        "remove it, or name another path",
    ),
    in_file(
        "admin-listen = 0\nadmin-token = 'HERE/broken-users' #!",
        "admin-token",
        "chmod 600",
    ),
    in_file(
        "admin-listen = 0\nadmin-cert = 'HERE/broken-users' #!",
        "admin-cert",
        "there is no certificate in PEM form",
    ),
    in_file(
        "listen = ['0.0.0.0:23998', '127.0.0.1:23998'] #!",
        "listen",
        "exclude each other: delete one of them",
    ),
    in_file(
        "listen = '127.0.0.1:23998'\nmetrics-listen = '0.0.0.0:23998' #!",
        "metrics-listen",
        "take another port",
    ),
    in_file("buffer-memory = '1000000G' #!", "buffer-memory", "lower it"),
    in_file(
        "rdma-memory = '1000000G' #!",
        "rdma-memory",
        "lower one of them",
    ),
    in_file(
        "atomic-uploads = ['/nonexistent'] #!",
        "atomic-uploads",
        "name one as the configuration writes it",
    ),
    in_file(
        "atomic-uploads = ['HERE/root/below'] #!",
        "atomic-uploads",
        "or * for all of them",
    ),
    in_file(
        "log-level = 'info,gridhaul_sevrer=debug' #!",
        "log-level",
        "did you mean 'gridhaul_server'?",
    ),
    in_file(
        "log-level = 'info,gridhaul_server::loginn=debug' #!",
        "log-level",
        "as the log names it",
    ),
    in_file(
        "log-level = 'info,[session]=debug' #!",
        "log-level",
        "this program has no spans",
    ),
    in_file(
        "idle-timeout = [5] #!",
        "idle-timeout",
        "write it like idle-timeout = \"10m\"",
    ),
    in_file("limit = 5 #!", "limit", "write [[limit]]"),
    in_file("[limit] #!\nname = 'a'", "limit", "write [[limit]]"),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 'many' #!",
        "[[limit]] table 1: max-transfers",
        "write it like max-transfers = 10",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\n[[limit]]\nname = 'b'\nmax-connections = -1 #!",
        "[[limit]] table 2: max-connections",
        "write it like max-connections = 10",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nbandwidth = true #!",
        "[[limit]] table 1: bandwidth",
        "like 65536",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\nnetwork = 5 #!",
        "[[limit]] table 1: network",
        "like 192.0.2.7",
    ),
    in_file(
        "[[limit]] #!\nmax-transfers = 1",
        "[[limit]] table 1",
        "write it like name =",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfers = 1\n[[limit]] #!\nname = 'a'\nmax-transfers = 1",
        "[[limit]] table 2",
        "give one of them another name",
    ),
    in_file(
        "[[limit]]\nname = 'a'\nmax-transfer = 1 #!",
        "[[limit]] table 1: max-transfer",
        "did you mean 'max-transfers'?",
    ),
    in_file(
        "[[authorize]]\nidentity = true #!\nmap = true",
        "[[authorize]] table 1: identity",
        "write it like identity =",
    ),
    in_file(
        "[[authorize]]\nidentity = '*'\nread-only = 'yes' #!",
        "[[authorize]] table 1: read-only",
        "write it like read-only = true",
    ),
    in_file(
        with_gsi!("[[authorize]] #!\nidentity = '*'\nmap = true\nroot = '/nonexistent'"),
        "[[authorize]] table 1: root",
        "make the directory, or name another one",
    ),
    in_file(
        with_gsi!(
            "[[authorize]]\nidentity = '*'\naccount = 'grid'\n[[authorize]] #!\nidentity = '/CN=a'\ndeny = true"
        ),
        "[[authorize]] table 2",
        "put this one first",
    ),
    in_file(
        with_gsi!("pam-service = 'no-such-service' #!"),
        "pam-service",
        "make /etc/pam.d/no-such-service",
    ),
    in_file(
        "cert = 'HERE/host.key' #!\nkey = 'HERE/host.pem'",
        "cert",
        "they are swapped; name them the other way around",
    ),
    in_file(
        "cert = 'HERE/host.pem'\nkey = 'HERE/open-host.key' #!",
        "key",
        "chmod 0600",
    ),
    in_file(
        "cert = 'HERE/host.pem'\nkey = 'HERE/other.key' #!",
        "key",
        "name the key of this certificate with --key",
    ),
    in_file(
        "cert = 'HERE/host.pem' #!",
        "cert",
        "there is no private key in it; name the file with the private key with --key",
    ),
    in_file(
        with_gsi!("[[authorize]]\nidentity = 'CN=Alice,DC=trial,DC=org' #!\ndeny = true"),
        "identity",
        "matches no user: write /DC=org/DC=trial/CN=Alice",
    ),
    in_file(
        with_gsi!("[[authorize]]\nfqan = 'atlas/Role=production' #!\nmap = true"),
        "fqan",
        "matches no VOMS attribute: write /atlas/Role=production",
    ),
    in_file(
        with_gsi!("[[limit]]\nname = 'a'\nidentity = 'CN=Alice' #!\nmax-transfers = 1"),
        "identity",
        "matches no user: write /CN=Alice",
    ),
    in_file(
        with_gsi!("[[limit]]\nname = 'a'\nvo = '/atlas' #!\nmax-transfers = 1"),
        "vo",
        "write atlas",
    ),
    in_file(
        "admin-listen = '127.0.0.1:0'\nadmin-cert = 'HERE/host.pem'\nadmin-key = 'HERE/host.key'\n\
         admin-clients = 'HERE/host.pem'\nadmin-subjects = ['CN=Alice'] #!",
        "admin-subjects",
        "matches no user: write /CN=Alice",
    ),
    in_file(
        "admin-listen = '127.0.0.1:0'\nadmin-cert = 'HERE/host.pem'\nadmin-key = 'HERE/host.key'\n\
         admin-clients = 'HERE/host.pem'\nadmin-subjects = ['/DC=org/*'] #!",
        "admin-subjects",
        "name each subject",
    ),
    in_file(
        with_gsi!(
            "[[authorize]]\nidentity = '/DC=org/CN=*'\naccount = 'nobody'\n[[authorize]] #!\n\
             identity = '/DC=org/CN=Alice'\ndeny = true"
        ),
        "authorize",
        "table 1 decides about all its clients before it",
    ),
    in_file("anonymous-names = '' #!", "anonymous-names", "such as ftp"),
    in_file("grace = '1000d' #!", "grace", "seconds, not 86400000"),
    in_file(
        "buffer-memory = 1 #!",
        "buffer-memory",
        "between 8 MiB and 1024 TiB, not 1 bytes",
    ),
    in_flags(&["--port", "2811"], "port", "in its place here is --listen"),
    in_flags(
        &["--log-level", "verbose"],
        "log-level",
        "use error, warn, info",
    ),
    in_flags(
        &["--max-connections", "many"],
        "max-connections",
        "--max-connections=100",
    ),
    in_flags(
        &["--idle-timeout", "soon"],
        "idle-timeout",
        "30s, 10m, 2h or 1d",
    ),
    in_flags(&["--stack", "tpc"], "stack", "the drivers are"),
    in_file(
        with_gsi!("nodes = ['dtn1', 'dtn2', 'DTN1:7512'] #!"),
        "nodes",
        "dtn1:7512 is named twice: delete one of them",
    ),
    in_file("nodes = ['dtn1:7512'] #!", "nodes", "needs --gsi"),
    in_file(
        with_gsi!("nodes = ['dtn1:7512:1'] #!"),
        "nodes",
        "dtn1.example.org:7512 or [2001:db8::1]:7512",
    ),
    in_file(
        "control-servers = ['ctl.example.org'] #!",
        "control-servers",
        "delete it here",
    ),
    in_flags(
        &["--control-servers", "not a host"],
        "control-servers",
        "like dtn1.example.org",
    ),
    in_flags(&["--nodes", "dtn1:0"], "nodes", "like dtn1.example.org"),
    in_flags(
        &["--anonymous-drivers", "tcp,tpc"],
        "anonymous-drivers",
        "did you mean 'tcp'?",
    ),
    in_flags(
        &["--data-address", "198.51.100.1"],
        "data-address",
        "name an address of this machine",
    ),
    in_flags(
        &["--root", "/nonexistent"],
        "root",
        "name a directory that exists",
    ),
];

/// Mistakes that only root can make.
pub(crate) const OF_ROOT: &[Mistake] = &[
    in_file("root = 'HERE/private' #!", "root", "chmod o+rx"),
    in_file(
        "user = 'no-such-account' #!",
        "user",
        "name one with --user",
    ),
];

/// Files with a part that does not work and may be repaired while the server runs: an error of `check`, and a warning in the log
/// of `serve`, with the same words.
pub(crate) const DEFECTS: &[(&str, &str)] = &[
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/root'\ngridmap = 'HERE/map'",
        "0 authorities and 0 revocation lists: no user can log in with a certificate",
    ),
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/bad-map'",
        "line 1: the subject seems to have spaces",
    ),
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/map'\n\
         [[authorize]]\nidentity = '*'\naccount = 'nosuch'",
        "gridhaul.toml, line 9: [[authorize]] table 1: there is no local account 'nosuch'",
    ),
    (
        "gsi = true\ncert = 'HERE/host.pem'\nkey = 'HERE/host.key'\ntrust = 'HERE/trust'\ngridmap = 'HERE/map'\n\
         [[authorize]]\nidentity = '*'\naccount = 'root'",
        "gridhaul.toml, line 9: [[authorize]] table 1: 'root' is root",
    ),
];
