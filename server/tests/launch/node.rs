//! A data node: who may connect, and how it starts and ends.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_security::files::{TrustDirectory, read_credential};
use gridhaul_security::tls::{HostSettings, PeerFault, PeerIdentity, TlsSettings};
use gridhaul_server::mutual_tls::{MutualTlsError, connect};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::program::{Running, fails, has_root, program, public_directory, text, wait_for};

const POLICY: &str = "access_id_CA X509 '/DC=test/CN=Authority'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=test/*\"'\n";

/// Arguments for a new key.
const NEW: &[&str] = &[
    "-nodes",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
];

/// An authority with the certificates of a node and a control server.
pub(crate) struct Nodes(TempDir);

/// How a control server finds a node.
struct Met {
    node: Result<PeerIdentity, MutualTlsError>,
    /// The node's refusal, which comes after the handshake.
    refusal: Option<String>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let site = Self(public_directory());
        fs::create_dir(site.path("certificates")).expect("made");
        fs::create_dir(site.path("root")).expect("made");
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(site.path("root"), all).expect("set");
        fs::write(site.path("certificates/ca.signing_policy"), POLICY).expect("written");
        let root = ["-subj", "/DC=test/CN=Authority", "-keyout", "ca.key"];
        let root = [&root[..], &["-out", "certificates/ca.pem"]].concat();
        site.openssl(&[&["req", "-x509", "-days", "30"], NEW, &root].concat());
        for (name, host) in [("node", "localhost"), ("control", "ctl.example.org")] {
            let subject = format!("/DC=test/CN={host}");
            let extension = format!("subjectAltName=DNS:{host}");
            let by = ["-CA", "certificates/ca.pem", "-CAkey", "ca.key"];
            site.issue(name, &subject, &extension, &by);
        }
        // As a user makes one, with the certificate that it is of.
        let proxy = "proxyCertInfo=critical,language:id-ppl-inheritAll";
        let by = ["-CA", "node.pem", "-CAkey", "node.key"];
        site.issue("proxy", "/DC=test/CN=localhost/CN=1000", proxy, &by);
        let chain = ["proxy.pem", "node.pem"].map(|name| fs::read(site.path(name)).expect("read"));
        fs::write(site.path("proxy.pem"), chain.concat()).expect("written");
        site
    }

    pub(crate) fn issue(&self, name: &str, subject: &str, extension: &str, by: &[&str]) {
        let [key, request, out] = ["key", "csr", "pem"].map(|end| format!("{name}.{end}"));
        let named = ["-subj", subject, "-keyout", &key, "-out", &request];
        self.openssl(&[&["req"], NEW, &named].concat());
        fs::write(self.path("extensions"), extension).expect("written");
        let made = ["-days", "30", "-extfile", "extensions", "-in", &request];
        self.openssl(&[&["x509", "-req"], by, &made, &["-out", &out]].concat());
        fs::set_permissions(self.path(&key), fs::Permissions::from_mode(0o600)).expect("set");
    }

    fn openssl(&self, arguments: &[&str]) {
        let done = Command::new("openssl")
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("openssl is installed");
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {errors}");
    }

    /// Has the authority revoke a certificate.
    pub(crate) fn revoke(&self, name: &str) {
        fs::write(self.path("index.txt"), "").expect("written");
        let ca = "[ca]\ndefault_ca=main\n[main]\ndatabase=index.txt\ndefault_md=sha256\n\
                        default_crl_days=10\n";
        fs::write(self.path("ca.cnf"), ca).expect("written");
        let by = ["-keyfile", "ca.key", "-cert", "certificates/ca.pem"];
        let with = ["ca", "-config", "ca.cnf"];
        self.openssl(&[&with[..], &by, &["-revoke", &format!("{name}.pem")]].concat());
        let made = ["-gencrl", "-out", "crl"];
        self.openssl(&[&with[..], &by, &made].concat());
        fs::rename(self.path("crl"), self.path("certificates/ca.r0")).expect("renamed");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        self.with_certificate("node", flags)
    }

    /// A node with another certificate.
    pub(crate) fn with_certificate(&self, name: &str, flags: &[&str]) -> Command {
        let mut command = program();
        command
            .args(["node", "--listen", "127.0.0.1:0", "--root"])
            .arg(self.path("root"))
            .arg("--cert")
            .arg(self.path(&format!("{name}.pem")))
            .arg("--key")
            .arg(self.path(&format!("{name}.key")))
            .arg("--trust")
            .arg(self.path("certificates"))
            .args(flags);
        command
    }

    fn settings(&self, name: &str) -> HostSettings {
        let [certificate, key] = ["pem", "key"].map(|end| self.path(&format!("{name}.{end}")));
        let credential = read_credential(&certificate, &key).expect("a credential");
        let trust = TrustDirectory::open(&self.path("certificates")).expect("trust");
        let settings = TlsSettings::new(Arc::new(credential), trust.current());
        HostSettings::try_from(&settings).expect("a host's")
    }

    /// Connects as a control server with this certificate, to a node that should be `host`.
    fn meet(&self, node: &Running, name: &str, host: &str) -> Met {
        let settings = self.settings(name);
        let peer = format!("{host}:{}", node.address.port());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(node.address).await;
            let stream = stream.expect("connected");
            let host = host.parse().expect("a name");
            let within = Duration::from_secs(60);
            match connect(stream, &peer, host, &settings, within).await {
                Ok((mut stream, identity)) => {
                    // A control server that has no request; with a refusal, reading fails.
                    let _ = stream.shutdown().await;
                    let read = stream.read_to_end(&mut Vec::new()).await.err();
                    let own = settings.certificate.certificate().subject();
                    let refusal = read.and_then(|read| PeerFault::in_error(&read, own));
                    Met {
                        node: Ok(identity),
                        refusal: refusal.map(|fault| fault.to_string()),
                    }
                }
                Err(error) => Met {
                    node: Err(error),
                    refusal: None,
                },
            }
        })
    }
}

#[test]
fn a_node_serves_its_control_servers_and_tells_others_apart() {
    let site = Nodes::new();
    let mut node = Running::of(&mut site.command(&["--control-servers", "ctl.example.org"]));
    let met = site.meet(&node, "control", "localhost");
    assert_eq!(met.node.expect("accepted").hosts, ["localhost"]);
    assert_eq!(met.refusal, None);
    let log = node.log_until("a control server has connected");
    assert!(log.contains("/DC=test/CN=ctl.example.org"), "{log}");

    let met = site.meet(&node, "node", "localhost");
    let refusal = met.refusal.expect("refused");
    assert!(refusal.contains("access denied"), "{refusal}");
    let log = node.log_until("a connection is refused");
    for words in [
        "127.0.0.1:",
        "/DC=test/CN=localhost",
        "name it in control-servers",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }

    let met = site.meet(&node, "control", "dtn2.example.org");
    let error = met.node.expect_err("another host").to_string();
    let begin = format!(
        "dtn2.example.org:{} presents the certificate of localhost",
        node.address.port()
    );
    assert!(error.starts_with(&begin), "{error}");
    node.log_until("refuses the certificate /DC=test/CN=localhost of this host");

    let mut stream = TcpStream::connect(node.address).expect("connected");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    stream
        .read_to_end(&mut Vec::new())
        .expect("the node ends it");
    node.log_until("does not speak TLS");
    let no_certificate = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-alpn", "h2", "-connect"])
        .arg(node.address.to_string())
        .output()
        .expect("openssl is installed");
    let alert = String::from_utf8_lossy(&no_certificate.stderr);
    assert!(alert.contains("certificate required"), "{alert}");
    node.log_until("presents no certificate");

    let (status, log) = node.stop();
    assert_eq!(status, 0, "{log}");
    assert!(log.contains("shutting down"), "{log}");
}

#[test]
fn without_a_list_the_certificate_of_the_node_is_that_of_its_control_server() {
    let site = Nodes::new();
    let mut node = Running::of(&mut site.command(&[]));
    let met = site.meet(&node, "node", "localhost");
    assert!(met.node.is_ok() && met.refusal.is_none());
    let met = site.meet(&node, "control", "localhost");
    assert!(met.refusal.is_some());
    node.log_until("/DC=test/CN=ctl.example.org");
}

#[test]
fn a_revoked_control_server_is_refused_without_a_restart() {
    let site = Nodes::new();
    let mut node = Running::of(&mut site.command(&["--control-servers", "ctl.example.org"]));
    assert!(site.meet(&node, "control", "localhost").refusal.is_none());
    site.revoke("control");
    // The node looks at the directory once a second or less often.
    wait_for(
        "refused",
        || {
            let met = site.meet(&node, "control", "localhost");
            met.refusal.unwrap_or_default()
        },
        |refusal| refusal.contains("revoked"),
    );
    node.log_until("was revoked by its issuer");
}

#[test]
fn silent_connections_do_not_keep_a_control_server_out() {
    /// More than may shake hands at a time.
    const SILENT: usize = 300;
    let site = Nodes::new();
    let mut node = Running::of(&mut site.command(&["--control-servers", "ctl.example.org"]));
    let from_elsewhere = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let other = SocketAddr::from(([127, 0, 0, 2], 0));
        socket.bind(&other.into()).expect("an address of loopback");
        socket.connect(&node.address.into()).expect("connected");
        socket
    };
    let silent: Vec<_> = (0..SILENT).map(|_| from_elsewhere()).collect();
    for _ in 0..10 {
        let met = site.meet(&node, "control", "localhost");
        assert_eq!(met.refusal, None);
        met.node.expect("accepted");
    }
    let log = node.log_until("a control server has connected");
    assert!(log.contains("there are too many"), "{log}");
    // Those that were kept end with the time for a handshake.
    for mut socket in silent {
        let end = Duration::from_secs(60);
        socket.set_read_timeout(Some(end)).expect("set");
        match socket.read(&mut [0]) {
            Ok(read) => assert_eq!(read, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn mistakes_of_a_node_are_named_with_their_remedy() {
    let site = Nodes::new();
    let file = site.path("node.toml");
    fs::write(
        &file,
        "idle-timeout = '5m'\ncontrol-servers = 'ctl example'\n",
    )
    .expect("written");
    let flags = ["--gsi", "--nodes", "dtn1", "--config", text(&file)];
    let errors = fails(&mut site.command(&flags));
    for words in [
        "--gsi: gsi is of no effect in a data node",
        "--nodes: nodes is of no effect in a data node",
        "node.toml, line 1: idle-timeout is of no effect",
        "node.toml, line 2: control-servers: 'ctl example' is no name of a host",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    let errors = fails(program().args(["node", "--listen", "127.0.0.1:0"]));
    for words in ["--root DIR", "node needs --cert", "node needs --trust"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    let errors = fails(&mut site.with_certificate("nonexistent", &[]));
    for words in ["--cert: ", "No such file"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    let errors = fails(&mut site.with_certificate("proxy", &[]));
    for words in ["--cert: ", "/CN=1000 is a proxy", "name a host certificate"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    let errors = fails(&mut site.command(&["--movers", "0", "--stack", "tpc"]));
    for words in ["--movers", "the drivers are"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

#[test]
fn a_node_of_root_gives_root_up_and_opens_its_log_again() {
    if !has_root() {
        return;
    }
    let site = Nodes::new();
    // Accounts of users may be allowed to enter it, where the account of the node is not.
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(site.path("root"), closed).expect("set");
    // Only root may write there; the monitor opens the log again.
    let log = site.path("log");
    let mut node = Running::of(&mut site.command(&["--log-file", text(&log)]));
    let status = fs::read_to_string(format!("/proc/{}/status", node.id())).expect("it runs");
    let uids = status.lines().find(|line| line.starts_with("Uid:"));
    assert!(!uids.expect("a line").contains("\t0"), "{status}");
    fs::rename(&log, site.path("log.1")).expect("renamed");
    node.signal(Signal::HUP);
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("reopened", read, |text| text.contains("was reopened"));
    node.signal(Signal::TERM);
    assert_eq!(node.wait(), 0);
    assert!(read().contains("shutting down"));
}
