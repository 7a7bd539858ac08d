//! Certificates for the tests, made by the `openssl` program: an authority, a host, users, and an
//! authority that is not trusted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use gridhaul_security::certificate::Certificate;
use gridhaul_security::credential::Credential;
use gridhaul_security::trust::{TrustBuilder, TrustStore};
use gridhaul_server::config::Settings;
use tempfile::TempDir;

/// All users with a certificate of the authority.
const USERS: [(&str, &str); 3] = [
    ("alice", "/DC=test/CN=Alice Smith 12345"),
    ("bob", "/DC=test/CN=bob"),
    ("carol", "/DC=test/CN=carol"),
];

const POLICY: &str = "access_id_CA X509 '/DC=test/CN=Authority'\n\
                      pos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=test/*\"'\n";

/// Files of certificates. Keys are elliptic, which takes no time.
pub(crate) struct Pki {
    directory: TempDir,
}

impl Pki {
    /// The one of this program.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Pki> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path();
        for authority in ["ca", "unknown-ca"] {
            let subject = if authority == "ca" {
                "/DC=test/CN=Authority"
            } else {
                "/DC=test/CN=Unknown Authority"
            };
            make_key(top, authority);
            let (key, out) = (format!("{authority}.key"), format!("{authority}.pem"));
            let subject = ["-subj", subject, "-key", &key, "-out", &out];
            openssl(
                top,
                &[&["req", "-x509", "-days", "30"], &subject[..]].concat(),
            );
        }
        issue(
            top,
            "host",
            "/DC=test/CN=localhost",
            "ca",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        );
        for (name, subject) in USERS {
            issue(top, name, subject, "ca", "keyUsage=digitalSignature");
        }
        let subject = USERS[0].1;
        issue(
            top,
            "stranger",
            subject,
            "unknown-ca",
            "keyUsage=digitalSignature",
        );
        make_key(top, "self");
        let arguments = [
            "-subj",
            "/C=XX/CN=Self",
            "-key",
            "self.key",
            "-out",
            "self.pem",
        ];
        openssl(
            top,
            &[&["req", "-x509", "-days", "1"], &arguments[..]].concat(),
        );
        make_expired(top);
        let trust = top.join("certificates");
        fs::create_dir(&trust).expect("made");
        fs::copy(top.join("ca.pem"), trust.join("ca.pem")).expect("copied");
        fs::write(trust.join("ca.signing_policy"), POLICY).expect("written");
        let me = account();
        let map = format!(
            "\"{}\" {me}\n\"{}\" nosuchaccount,{me}\n",
            USERS[0].1, USERS[1].1
        );
        fs::write(top.join("grid-mapfile"), map).expect("written");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("read")
    }

    /// Lets a server accept GSI and TLS.
    pub(crate) fn configure(&self, settings: &mut Settings) {
        settings.gsi = Some(true);
        settings.cert = Some(self.path("host.pem"));
        settings.key = Some(self.path("host.key"));
        settings.trust = Some(self.path("certificates"));
        settings.gridmap = Some(self.path("grid-mapfile"));
        settings.delegation_keys = Some("ec".parse().expect("a kind"));
    }

    /// Certificate and key in PEM.
    pub(crate) fn pem(&self, name: &str) -> Vec<u8> {
        [
            self.read(&format!("{name}.pem")),
            self.read(&format!("{name}.key")),
        ]
        .concat()
    }

    pub(crate) fn credential(&self, name: &str) -> Arc<Credential> {
        Arc::new(Credential::from_pem(&self.pem(name)).expect("a credential"))
    }

    /// What clients trust.
    pub(crate) fn trust(&self) -> Arc<TrustStore> {
        let mut builder = TrustBuilder::default();
        builder.add("ca.pem", &self.read("ca.pem"));
        builder.add("ca.signing_policy", POLICY.as_bytes());
        let (store, problems) = builder.build();
        assert!(problems.is_empty(), "{problems:?}");
        Arc::new(store)
    }

    /// A trust directory like that of [`Self::configure`], to be changed, with a revocation list of the
    /// authority.
    pub(crate) fn own_trust(&self, revoked: &[&str]) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["ca.pem", "ca.signing_policy"] {
            let from = self.path("certificates").join(name);
            fs::copy(from, directory.path().join(name)).expect("copied");
        }
        let list = self.revocation_list(revoked);
        fs::write(directory.path().join("ca.r0"), list).expect("written");
        directory
    }

    /// A revocation list of the authority in PEM.
    pub(crate) fn revocation_list(&self, revoked: &[&str]) -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path();
        let entries = revoked.iter().map(|name| {
            let file = self.path(&format!("{name}.pem"));
            let file = file.to_str().expect("UTF-8");
            let printed = openssl(top, &["x509", "-noout", "-serial", "-in", file]);
            let serial = printed
                .trim_end()
                .strip_prefix("serial=")
                .expect("a number");
            format!("R\t400101000000Z\t200101000000Z\t{serial}\tunknown\t/CN={name}\n")
        });
        fs::write(top.join("index.txt"), entries.collect::<String>()).expect("written");
        let configuration =
            "[ca]\ndefault_ca = it\n[it]\ndatabase = index.txt\ndefault_md = sha256\n";
        fs::write(top.join("ca.cnf"), configuration).expect("written");
        let (certificate, key) = (self.path("ca.pem"), self.path("ca.key"));
        let signer = [
            "-cert",
            certificate.to_str().expect("UTF-8"),
            "-keyfile",
            key.to_str().expect("UTF-8"),
        ];
        let list = ["ca", "-gencrl", "-config", "ca.cnf", "-crldays", "10"];
        openssl(
            top,
            &[&list[..], &signer[..], &["-out", "list.pem"]].concat(),
        );
        fs::read(top.join("list.pem")).expect("the program wrote it")
    }

    /// A proxy of a user, made by `openssl`, with this policy language.
    pub(crate) fn proxy(&self, user: &str, language: &str) -> Arc<Credential> {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path();
        for kind in ["pem", "key"] {
            let name = format!("{user}.{kind}");
            fs::copy(self.path(&name), top.join(&name)).expect("copied");
        }
        let (_, subject) = USERS.iter().find(|(name, _)| *name == user).expect(user);
        let extensions = format!(
            "keyUsage=critical,digitalSignature\nproxyCertInfo=critical,language:{language}"
        );
        issue(
            top,
            "proxy",
            &format!("{subject}/CN=777"),
            user,
            &extensions,
        );
        let files = ["proxy.pem", "proxy.key", &format!("{user}.pem")];
        let files = files.map(|name| fs::read(top.join(name)).expect("read"));
        Arc::new(Credential::from_pem(&files.concat()).expect("a credential"))
    }

    /// The certificate of the authority that is not trusted, in PEM.
    pub(crate) fn unknown_authority(&self) -> Vec<u8> {
        self.read("unknown-ca.pem")
    }

    /// The authority itself.
    pub(crate) fn authority(&self) -> Certificate {
        let found = Certificate::all_from_pem(&self.read("ca.pem")).expect("certificates");
        found.into_iter().next().expect("one")
    }
}

/// The account that runs the tests, which is the only one that a server without a monitor has.
pub(crate) fn account() -> String {
    let me = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    me.expect("looked up").expect("known").name
}

fn make_key(directory: &Path, name: &str) {
    let file = directory.join(format!("{name}.key"));
    let curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let out = ["-out", &format!("{name}.key")];
    openssl(directory, &[&["genpkey"], &curve[..], &out[..]].concat());
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(file, private).expect("set");
}

fn issue(directory: &Path, name: &str, subject: &str, authority: &str, extension: &str) {
    make_key(directory, name);
    let file = |kind: &str| format!("{name}.{kind}");
    let request = ["-subj", subject, "-key", &file("key"), "-out", &file("csr")];
    openssl(directory, &[&["req", "-new"], &request[..]].concat());
    fs::write(directory.join(file("ext")), extension).expect("written");
    let (issuer, key) = (format!("{authority}.pem"), format!("{authority}.key"));
    let signer = ["-CA", &issuer, "-CAkey", &key, "-CAcreateserial"];
    let files = [
        "-in",
        &file("csr"),
        "-out",
        &file("pem"),
        "-extfile",
        &file("ext"),
    ];
    let sign = ["x509", "-req", "-days", "30"];
    openssl(directory, &[&sign[..], &signer[..], &files[..]].concat());
}

/// A certificate of last year; only `openssl ca` takes dates.
fn make_expired(directory: &Path) {
    const CONFIGURATION: &str = "[ca]\ndefault_ca = it\n[it]\ndatabase = index.txt\n\
        new_certs_dir = .\nserial = serial\ndefault_md = sha256\npolicy = any\n\
        [any]\ncountryName = optional\ncommonName = supplied\n";

    make_key(directory, "expired");
    for (name, content) in [
        ("ca.cnf", CONFIGURATION),
        ("index.txt", ""),
        ("serial", "01\n"),
    ] {
        fs::write(directory.join(name), content).expect("written");
    }
    let request = [
        "-subj",
        "/C=XX/CN=Old",
        "-key",
        "expired.key",
        "-out",
        "expired.csr",
    ];
    openssl(directory, &[&["req", "-new"], &request[..]].concat());
    let sign = [
        "ca",
        "-batch",
        "-notext",
        "-config",
        "ca.cnf",
        "-selfsign",
        "-keyfile",
    ];
    let files = ["expired.key", "-in", "expired.csr", "-out", "expired.pem"];
    let dates = ["-startdate", "200101000000Z", "-enddate", "200201000000Z"];
    openssl(directory, &[&sign[..], &files[..], &dates[..]].concat());
}

/// What the program printed.
fn openssl(directory: &Path, arguments: &[&str]) -> String {
    let done = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("openssl is installed");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "openssl {arguments:?}: {said}");
    String::from_utf8(done.stdout).expect("UTF-8")
}
