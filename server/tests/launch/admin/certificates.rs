//! Administrators with certificates, over TLS.

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
        let request = ["-subj", "/CN=Ada", "-keyout", "ada.key", "-out", "ada.csr"];
        certified.openssl(&[&["req", "-new"], &new[..], &request].concat());
        certified.write("ext", "extendedKeyUsage=clientAuth");
        let sign = ["x509", "-req", "-days", "30", "-extfile", "ext"];
        let signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "0x11"];
        let files = ["-in", "ada.csr", "-out", "ada.pem"];
        certified.openssl(&[&sign[..], &signer, &files].concat());
        let configuration = "[ca]\ndefault_ca = it\n[it]\ndatabase = index\ndefault_md = sha256\n";
        certified.write("ca.cnf", configuration);
        certified
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

    /// The status and the text of an answer.
    fn get(&self, port: &str, path: &str, has_proof: bool) -> (String, String) {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "20", "-w", "\n%{http_code}", "--cacert"]);
        command.arg(self.site.path("certificates/ca.pem"));
        command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        if has_proof {
            command.arg("--cert").arg(self.path("ada.pem"));
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
