//! Administrators with certificates, over TLS.

use std::cell::RefCell;
use std::io::{self, BufReader};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use super::*;
use crate::security::{self, as_str};

/// An authority of administrators with one certificate, and a server of users with certificates whose trust directory has
/// the authority's revocation list.
struct Certified {
    site: security::Site,
    private: TempDir,
}

impl Certified {
    fn new() -> Self {
        let certified = Self {
            site: security::Site::new(),
            private: tempfile::tempdir().expect("a directory"),
        };
        let new = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let root = ["-x509", "-days", "30", "-subj", "/CN=Administrators"];
        let files = ["-keyout", "ca.key", "-out", "ca.pem"];
        certified.openssl(&[&["req"], &new[..], &root, &files].concat());
        certified.request("ada", "/CN=Ada");
        certified.write("user", "extendedKeyUsage=clientAuth");
        certified.write("ca", "basicConstraints=critical,CA:TRUE");
        certified.sign("ada", "ca", "user", "0x11");
        let configuration = "[ca]\ndefault_ca = it\n[it]\ndatabase = index\ndefault_md = sha256\npolicy = names\n\
                             new_certs_dir = .\nrand_serial = yes\n[names]\ncommonName = supplied\n";
        certified.write("ca.cnf", configuration);
        certified
    }

    /// Makes a key, and a request for a certificate.
    fn request(&self, name: &str, subject: &str) {
        let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
        let new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let to = [
            "-nodes", "-subj", subject, "-keyout", &key, "-out", &request,
        ];
        self.openssl(&[&["req", "-new"], &new[..], &to].concat());
    }

    /// Signs a request with the key of an authority, or of what claims to be one.
    fn sign(&self, name: &str, authority: &str, extensions: &str, serial: &str) {
        let [request, made] = ["csr", "pem"].map(|kind| format!("{name}.{kind}"));
        let [signer, key] = ["pem", "key"].map(|kind| format!("{authority}.{kind}"));
        let sign = ["x509", "-req", "-days", "30", "-extfile", extensions];
        let signer = ["-CA", &signer, "-CAkey", &key, "-set_serial", serial];
        self.openssl(&[&sign[..], &signer, &["-in", &request, "-out", &made]].concat());
    }

    /// Replaces the certificate by one that expires after some seconds.
    fn shorten(&self, seconds: u32) {
        let mut date = Command::new("date");
        let date = date.args(["-u", "+%Y%m%d%H%M%SZ", "-d", &format!("{seconds} seconds")]);
        let end = String::from_utf8(date.output().expect("started").stdout).expect("UTF-8");
        self.write("index", "");
        let sign = [
            "ca", "-batch", "-config", "ca.cnf", "-extfile", "user", "-notext",
        ];
        let signer = [
            "-cert",
            "ca.pem",
            "-keyfile",
            "ca.key",
            "-enddate",
            end.trim(),
        ];
        self.openssl(&[&sign[..], &signer, &["-in", "ada.csr", "-out", "ada.pem"]].concat());
    }

    /// Makes what is sent with the key of the certificate.
    fn send(&self, certificates: &[&str]) {
        let read = |name: &&str| fs::read_to_string(self.path(&format!("{name}.pem")));
        let all: Result<String, _> = certificates.iter().map(read).collect();
        self.write("sent.pem", &all.expect("read"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        let command = command.args(arguments).current_dir(self.private.path());
        let Output { status, stderr, .. } = command.output().expect("openssl is installed");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{arguments:?}: {said}");
    }

    /// Replaces the list in the trust directory, in one step.
    fn list(&self, is_revoked: bool, dates: &[&str]) {
        let entry = "R\t400101000000Z\t200101000000Z\t11\tunknown\t/CN=Ada\n";
        self.write("index", if is_revoked { entry } else { "" });
        let make = ["ca", "-gencrl", "-config", "ca.cnf", "-cert", "ca.pem"];
        let files = ["-keyfile", "ca.key", "-out", "list"];
        self.openssl(&[&make[..], &files, dates].concat());
        let list = self.site.path("certificates/administrators.r0");
        fs::copy(self.path("list"), list.with_extension("new")).expect("copied");
        fs::rename(list.with_extension("new"), list).expect("renamed");
    }

    fn serve(&self, subject: &str) -> (Running, String) {
        let mut flags = self.site.flags();
        let (host, key) = (self.site.text("host.pem"), self.site.text("host.key"));
        let ca = self.path("ca.pem");
        let named = [
            ["--admin-listen", "0.0.0.0:0"],
            ["--admin-socket", "none"],
            ["--admin-cert", &host],
            ["--admin-key", &key],
            ["--admin-clients", text(&ca)],
            ["--admin-subjects", subject],
        ];
        flags.extend(named.as_flattened().iter().map(|word| (*word).to_owned()));
        let mut server = Running::start(&self.site.path(""), &as_str(&flags));
        let mut line = String::new();
        server.stdout.read_line(&mut line).expect("a line");
        let port = line
            .trim_end()
            .strip_prefix("Administration at https://0.0.0.0:");
        let port = port.unwrap_or_else(|| panic!("{line}")).to_owned();
        (server, port)
    }

    /// A client with the certificate, that keeps sessions of TLS.
    fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.site.path("certificates/ca.pem"));
        roots
            .add(authority.expect("a certificate"))
            .expect("an authority");
        let chain = vec![CertificateDer::from_pem_file(self.path("ada.pem")).expect("one")];
        let key = PrivateKeyDer::from_pem_file(self.path("ada.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key);
        Arc::new(config.expect("a certificate with its key"))
    }

    /// The status and the text of an answer.
    fn get(&self, port: &str, path: &str, has_proof: bool) -> (String, String) {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "20", "-w", "\n%{http_code}", "--cacert"]);
        command.arg(self.site.path("certificates/ca.pem"));
        command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        if has_proof {
            let sent = Some(self.path("sent.pem")).filter(|file| file.exists());
            command
                .arg("--cert")
                .arg(sent.unwrap_or_else(|| self.path("ada.pem")));
            command.arg("--key").arg(self.path("ada.key"));
        }
        let output = command
            .arg(format!("https://localhost:{port}{path}"))
            .output();
        let output = String::from_utf8(output.expect("started").stdout).expect("UTF-8");
        let (body, code) = output.rsplit_once('\n').expect("a code");
        (code.to_owned(), body.to_owned())
    }
}

/// A connection for several requests.
struct Kept(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Kept {
    fn new(config: &Arc<ClientConfig>, port: &str) -> Self {
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a connection");
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connected");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        Self(BufReader::new(StreamOwned::new(connection, stream)))
    }

    /// The status line and the body of an answer.
    fn get(&mut self, path: &str) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut answer, mut line, mut length) = (String::new(), String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.strip_prefix("Content-Length: ") {
                Some(number) => length = number.trim().parse().expect("a number"),
                None if answer.is_empty() => answer.push_str(&line),
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(answer + &String::from_utf8(body).expect("UTF-8"))
    }
}

#[test]
fn a_certificate_of_the_right_subject_is_let_in_over_tls() {
    let certified = Certified::new();
    let (_server, port) = certified.serve("/CN=Ada");
    let code = |path: &str, has_proof| certified.get(&port, path, has_proof).0;
    assert_eq!(code("/status.json", true), "200");
    assert_eq!(code("/status.json", false), "403");
    assert_eq!(code("/healthz", false), "200");
    let (_server, port) = certified.serve("/CN=Eve");
    let (code, body) = certified.get(&port, "/status.json", true);
    assert_eq!(code, "403", "another subject");
    assert!(body.contains("admin-subjects"), "{body}");
}

#[test]
fn a_revoked_certificate_is_refused_while_the_server_runs() {
    let certified = Certified::new();
    certified.list(false, &["-crldays", "10"]);
    let (server, port) = certified.serve("/CN=Ada");
    assert_eq!(certified.get(&port, "/status.json", true).0, "200");
    certified.list(true, &["-crldays", "20"]);
    let ask = || {
        let (code, body) = certified.get(&port, "/status.json", true);
        format!("{code} {body}")
    };
    let refused = wait_for("a refusal", ask, |answer| answer.starts_with("403"));
    assert!(refused.contains("revoked"), "{refused}");
    let (_, log) = server.stop();
    assert!(log.contains("does not accept a certificate"), "{log}");
}

#[test]
fn an_expired_or_unusable_list_refuses_all_certificates_of_its_authority() {
    let certified = Certified::new();
    let past = [
        "-crl_lastupdate",
        "20200101000000Z",
        "-crl_nextupdate",
        "20200201000000Z",
    ];
    certified.list(false, &past);
    let (_server, port) = certified.serve("/CN=Ada");
    let (code, body) = certified.get(&port, "/status.json", true);
    assert_eq!(code, "403");
    assert!(body.contains("expired"), "{body}");
    let list = certified.site.path("certificates/administrators.r0");
    fs::write(list, "no list").expect("written");
    let (_server, port) = certified.serve("/CN=Ada");
    let (code, body) = certified.get(&port, "/status.json", true);
    assert_eq!(code, "403");
    assert!(body.contains("administrators.r0"), "{body}");
}

#[test]
fn a_forged_authority_does_not_hide_the_revocation_of_the_real_one() {
    let certified = Certified::new();
    for (name, subject) in [("middle", "/CN=Middle"), ("eve", "/CN=Eve")] {
        certified.request(name, subject);
    }
    certified.sign("middle", "ca", "ca", "0x11");
    certified.sign("ada", "middle", "user", "0x21");
    certified.sign("eve", "ca", "user", "0x12");
    // The name and the public key of the authority, signed by a user.
    fs::copy(certified.path("middle.csr"), certified.path("forged.csr")).expect("copied");
    certified.sign("forged", "eve", "ca", "0x99");
    let chains = [
        &["ada", "middle"][..],
        &["ada", "forged", "eve", "middle"],
        &["ada", "middle", "forged", "eve"],
    ];
    let code = |port: &str, chain| {
        certified.send(chain);
        certified.get(port, "/status.json", true).0
    };
    certified.list(false, &["-crldays", "10"]);
    let (_server, port) = certified.serve("/CN=Ada");
    for chain in chains {
        assert_eq!(code(&port, chain), "200", "{chain:?}");
    }
    certified.list(true, &["-crldays", "20"]);
    let (_server, port) = certified.serve("/CN=Ada");
    for chain in chains {
        assert_eq!(code(&port, chain), "403", "{chain:?}");
    }
}

#[test]
fn a_connection_does_not_outlive_the_certificate() {
    let certified = Certified::new();
    let (_server, port) = certified.serve("/CN=Ada");
    // On a busy machine, the shortest expires before the first request.
    let begin = |seconds| {
        certified.shorten(seconds);
        let mut kept = Kept::new(&certified.client(&TLS13), &port);
        let answer = kept.get("/status.json").unwrap_or_default();
        answer.starts_with("HTTP/1.1 200").then_some(kept)
    };
    let kept = [2, 4, 8, 16].into_iter().find_map(begin).expect("let in");
    let kept = RefCell::new(kept);
    let ask = || kept.borrow_mut().get("/status.json").expect("an answer");
    let refused = wait_for("a refusal", ask, |answer| {
        answer.starts_with("HTTP/1.1 403")
    });
    assert!(refused.contains("has expired"), "{refused}");
}

#[test]
fn each_connection_proves_its_certificate() {
    let certified = Certified::new();
    let (_server, port) = certified.serve("/CN=Ada");
    for version in [&TLS12, &TLS13] {
        let config = certified.client(version);
        for _ in 0..2 {
            let mut kept = Kept::new(&config, &port);
            let answer = kept.get("/status.json").expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let kind = kept.0.get_ref().conn.handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::Full), "{version:?}");
        }
    }
}
