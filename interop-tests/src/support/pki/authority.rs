//! Keys, certificate authorities and certificates, made with `openssl`.

use std::fs;
use std::path::{Path, PathBuf};

use super::command::{PkiError, run};
use super::files::write_private;
use super::names::ORGANISATION;
use crate::support::client::Client;

/// The configuration of `openssl ca`: its database, and a policy that accepts any subject. Names are always UTF-8, so
/// that a subject has the same encoding wherever it occurs.
const CONFIGURATION: &str = "\
[ca]
default_ca = authority
[authority]
database = index
serial = serial
rand_serial = yes
new_certs_dir = issued
policy = anything
default_md = sha256
default_days = 30
default_crl_days = 30
string_mask = utf8only
unique_subject = no
[anything]
domainComponent = optional
organizationName = optional
commonName = optional
";

/// The extensions of an authority's certificate.
pub(super) const AUTHORITY_EXTENSIONS: &str = "basicConstraints = critical,CA:TRUE\n\
    keyUsage = critical,keyCertSign,cRLSign\n";

/// The extensions of a user's certificate.
pub(super) const USER_EXTENSIONS: &str = "basicConstraints = critical,CA:FALSE\n\
    keyUsage = critical,digitalSignature,keyEncipherment\n\
    extendedKeyUsage = clientAuth\n";

/// An RSA key and a certificate request for it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) file: PathBuf,
    request: PathBuf,
}

impl Key {
    /// Makes `NAME.key` in `top`.
    pub(super) fn new(top: &Path, name: &str) -> Result<Self, PkiError> {
        let file = top.join(format!("{name}.key"));
        let request = top.join(format!("{name}.request"));
        write_private(&file, "")?;
        let make = Client::new("openssl").args(["genrsa", "-out"]).arg(&file);
        run(top, make.arg("2048"))?;
        let ask = Client::new("openssl").args(["req", "-new", "-subj", "/CN=request", "-key"]);
        run(top, ask.arg(&file).arg("-out").arg(&request))?;
        Ok(Self { file, request })
    }
}

/// A signer of certificates: an authority, or a user who makes proxies.
#[derive(Debug)]
pub(super) struct Authority {
    subject: String,
    certificate: PathBuf,
    key: Key,
    /// The database of `openssl ca`.
    database: PathBuf,
}

/// A certificate to be made.
#[derive(Debug)]
pub(super) struct Issue<'a> {
    /// The file is `NAME.pem`.
    pub(super) name: &'a str,
    /// In the form with slashes.
    pub(super) subject: &'a str,
    pub(super) key: &'a Key,
    /// Lines of an OpenSSL configuration.
    pub(super) extensions: &'a str,
    /// Begin and end as `YYYYMMDDHHMMSSZ`; 30 days from now by default.
    pub(super) validity: Option<[&'a str; 2]>,
}

impl<'a> Issue<'a> {
    /// An ordinary user's certificate.
    pub(super) fn new(name: &'a str, subject: &'a str, key: &'a Key) -> Self {
        Self {
            name,
            subject,
            key,
            extensions: USER_EXTENSIONS,
            validity: None,
        }
    }

    /// Sets the begin and the end.
    pub(super) fn valid(self, validity: [&'a str; 2]) -> Self {
        Self {
            validity: Some(validity),
            ..self
        }
    }
}

impl Authority {
    /// An authority with a self-signed certificate: `NAME.pem` in `top`.
    pub(super) fn new(top: &Path, name: &str, subject: &str, key: &Key) -> Result<Self, PkiError> {
        let itself = Self::of(top, name, subject, key)?;
        itself.sign(
            &["-selfsign"],
            &Issue {
                extensions: AUTHORITY_EXTENSIONS,
                ..Issue::new(name, subject, key)
            },
        )?;
        Ok(itself)
    }

    /// The signer whose certificate `NAME.pem` is in `top` already.
    pub(super) fn of(top: &Path, name: &str, subject: &str, key: &Key) -> Result<Self, PkiError> {
        let database = top.join(format!("{name}.database"));
        fs::create_dir_all(database.join("issued"))?;
        fs::write(database.join("configuration"), CONFIGURATION)?;
        fs::write(database.join("index"), "")?;
        Ok(Self {
            subject: subject.to_owned(),
            certificate: top.join(format!("{name}.pem")),
            key: key.clone(),
            database,
        })
    }

    /// A subordinate authority with a name constraint: it may only issue certificates for the test organisation, though
    /// its signing policy allows more.
    pub(super) fn narrow(&self, top: &Path) -> Result<Self, PkiError> {
        let subject = format!("{ORGANISATION}/CN=Narrow Authority");
        let key = Key::new(top, "narrow")?;
        let extensions = format!(
            "{AUTHORITY_EXTENSIONS}nameConstraints = critical,permitted;dirName:permitted\n\
             [permitted]\nDC = test\nO = Grid\n"
        );
        self.issue(&Issue {
            extensions: &extensions,
            ..Issue::new("narrow", &subject, &key)
        })?;
        let narrow = Self::of(top, "narrow", &subject, &key)?;
        narrow.trust(top, &["/DC=test/*"])?;
        Ok(narrow)
    }

    pub(super) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Signs a certificate and returns its path, beside the authority's own.
    pub(super) fn issue(&self, issue: &Issue<'_>) -> Result<PathBuf, PkiError> {
        self.sign(&[], issue)
    }

    fn sign(&self, options: &[&str], issue: &Issue<'_>) -> Result<PathBuf, PkiError> {
        let file = self
            .certificate
            .with_file_name(format!("{}.pem", issue.name));
        let extensions = self.database.join("extensions");
        fs::write(&extensions, issue.extensions)?;
        let mut sign = self
            .ca()
            .args(["-notext", "-preserveDN", "-utf8"])
            .args(options)
            .args(["-subj", issue.subject])
            .arg("-in")
            .arg(&issue.key.request)
            .arg("-extfile")
            .arg(&extensions)
            .arg("-out")
            .arg(&file);
        if let Some([from, until]) = issue.validity {
            sign = sign.args(["-startdate", from, "-enddate", until]);
        }
        run(&self.database, sign)?;
        Ok(file)
    }

    /// Revokes a certificate.
    pub(super) fn revoke(&self, certificate: &Path) -> Result<(), PkiError> {
        run(&self.database, self.ca().arg("-revoke").arg(certificate))?;
        Ok(())
    }

    /// Writes its revocation list to the trust directory of `top`.
    pub(super) fn revocations(&self, top: &Path) -> Result<(), PkiError> {
        self.revocations_as_of(top, &[])
    }

    /// Writes a revocation list there whose `nextUpdate` is long past.
    pub(super) fn stale_revocations(&self, top: &Path) -> Result<(), PkiError> {
        let times = [
            "-crl_lastupdate",
            "20200101000000Z",
            "-crl_nextupdate",
            "20200201000000Z",
        ];
        self.revocations_as_of(top, &times)
    }

    fn revocations_as_of(&self, top: &Path, times: &[&str]) -> Result<(), PkiError> {
        let file = top
            .join("certificates")
            .join(format!("{}.r0", self.hash()?));
        let list = self.ca().arg("-gencrl").args(times).arg("-out").arg(file);
        run(&self.database, list)?;
        Ok(())
    }

    /// Adds it to the trust directory, with a signing policy for subjects that match one of the patterns.
    ///
    /// Without patterns there is no signing policy.
    pub(super) fn trust(&self, top: &Path, patterns: &[&str]) -> Result<(), PkiError> {
        let directory = top.join("certificates");
        let hash = self.hash()?;
        fs::copy(&self.certificate, directory.join(format!("{hash}.0")))?;
        if !patterns.is_empty() {
            let quoted: Vec<_> = patterns.iter().map(|it| format!("\"{it}\"")).collect();
            let policy = format!(
                "access_id_CA X509 '{}'\npos_rights globus CA:sign\ncond_subjects globus '{}'\n",
                self.subject,
                quoted.join(" ")
            );
            fs::write(directory.join(format!("{hash}.signing_policy")), policy)?;
        }
        Ok(())
    }

    /// The hash of its subject, which names its files in a trust directory.
    fn hash(&self) -> Result<String, PkiError> {
        let ask = Client::new("openssl").args(["x509", "-noout", "-hash", "-in"]);
        let printed = run(&self.database, ask.arg(&self.certificate))?;
        Ok(printed.output().trim_end().to_owned())
    }

    /// `openssl ca` with its certificate and key.
    fn ca(&self) -> Client {
        Client::new("openssl")
            .args(["ca", "-batch", "-config", "configuration", "-cert"])
            .arg(&self.certificate)
            .arg("-keyfile")
            .arg(&self.key.file)
    }
}
