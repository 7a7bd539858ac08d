//! Certificates for tests, made by the `openssl` program, so that parsers are tested with the output of another
//! implementation.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::certificate::Certificate;

/// Extensions of a certificate authority.
pub(crate) const CA: &str =
    "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign";
/// Extensions of a user's certificate.
pub(crate) const USER: &str =
    "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment";
/// Extensions of proxies.
pub(crate) const FULL: &str = "proxyCertInfo=critical,language:id-ppl-inheritAll";
pub(crate) const INDEPENDENT: &str = "proxyCertInfo=critical,language:id-ppl-independent";
pub(crate) const LIMITED: &str = "proxyCertInfo=critical,language:1.3.6.1.4.1.3536.1.1.1.9";

/// How long certificates are valid.
pub(crate) const DAYS: u32 = 30;

/// A directory with keys and certificates.
pub(crate) struct Pki {
    directory: tempfile::TempDir,
    made: Cell<u32>,
}

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    /// In the form of the program's arguments: `/DC=org/CN=Alice`, with a backslash before slashes in values.
    pub(crate) subject: String,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

/// A certificate to be made.
pub(crate) struct Request<'a> {
    pub(crate) subject: &'a str,
    /// Lines of an extension section, which may refer to further sections after them.
    pub(crate) extensions: &'a str,
    /// Arguments of `openssl req -newkey`.
    pub(crate) key: &'a [&'a str],
    /// An existing key to be used instead of a new one.
    pub(crate) existing_key: Option<&'a Path>,
    /// Arguments of `openssl x509 -req`: digest and padding.
    pub(crate) signing: &'a [&'a str],
    pub(crate) days: u32,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self {
            subject: "/DC=test/CN=nobody",
            extensions: "",
            key: &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            existing_key: None,
            signing: &["-sha256"],
            days: DAYS,
        }
    }
}

impl Issued {
    pub(crate) fn pem(&self) -> Vec<u8> {
        fs::read(&self.certificate_file).expect("written before")
    }

    pub(crate) fn key_pem(&self) -> Vec<u8> {
        fs::read(&self.key_file).expect("written before")
    }
}

impl Pki {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            made: Cell::new(0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A self-signed certificate authority.
    pub(crate) fn root(&self, subject: &str) -> Issued {
        let request = Request {
            subject,
            extensions: CA,
            ..Request::default()
        };
        self.make(&request, None)
    }

    /// A certificate that `issuer` signs.
    pub(crate) fn issue(&self, issuer: &Issued, subject: &str, extensions: &str) -> Issued {
        let request = Request {
            subject,
            extensions,
            ..Request::default()
        };
        self.make(&request, Some(issuer))
    }

    /// A proxy, whose subject is that of the issuer with one further CN.
    pub(crate) fn proxy(&self, issuer: &Issued, extension: &str) -> Issued {
        let subject = format!("{}/CN={}", issuer.subject, self.made.get() + 1000);
        let extensions = format!("keyUsage=critical,digitalSignature\n{extension}");
        self.issue(issuer, &subject, &extensions)
    }

    /// A certificate; self-signed without an issuer.
    pub(crate) fn make(&self, request: &Request<'_>, issuer: Option<&Issued>) -> Issued {
        let number = self.made.get() + 1;
        self.made.set(number);
        let file = |extension: &str| self.path().join(format!("{number}.{extension}"));
        let (key_file, request_file) = (file("key"), file("csr"));
        let mut command = openssl(["req", "-new", "-utf8", "-multivalue-rdn", "-nodes"]);
        match request.existing_key {
            Some(key) => {
                fs::copy(key, &key_file).expect("written before");
                command.arg("-key").arg(key)
            }
            None => command
                .arg("-newkey")
                .args(request.key)
                .arg("-keyout")
                .arg(&key_file),
        };
        command
            .args(["-subj", request.subject, "-out"])
            .arg(&request_file);
        run(&mut command);
        let extensions = file("ext");
        let text = format!("extensions=main\n[main]\n{}\n", request.extensions);
        fs::write(&extensions, text).expect("written");
        let certificate_file = file("pem");
        let mut command = openssl(["x509", "-req", "-in"]);
        command
            .arg(&request_file)
            .args(["-set_serial", &number.to_string()])
            .args(["-days", &request.days.to_string()])
            .args(request.signing)
            .arg("-extfile")
            .arg(&extensions)
            .arg("-out")
            .arg(&certificate_file);
        match issuer {
            Some(issuer) => command
                .arg("-CA")
                .arg(&issuer.certificate_file)
                .arg("-CAkey")
                .arg(&issuer.key_file),
            None => command.arg("-signkey").arg(&key_file),
        };
        run(&mut command);
        let pem = fs::read(&certificate_file).expect("the program wrote it");
        let mut certificates = Certificate::all_from_pem(&pem).expect("certificates");
        Issued {
            certificate: certificates.remove(0),
            subject: request.subject.to_owned(),
            certificate_file,
            key_file,
        }
    }

    /// A revocation list in PEM, valid from now for some days, with these certificates in it.
    pub(crate) fn revocation_list(&self, issuer: &Issued, revoked: &[&Issued]) -> Vec<u8> {
        self.revocation_list_of(issuer, revoked, &["-crldays", "10"])
    }

    /// A revocation list with further arguments of `openssl ca -gencrl`.
    pub(crate) fn revocation_list_of(
        &self,
        issuer: &Issued,
        revoked: &[&Issued],
        arguments: &[&str],
    ) -> Vec<u8> {
        self.make_list(issuer, revoked, arguments, "")
    }

    /// A revocation list with extensions, as lines of a section.
    pub(crate) fn revocation_list_with(
        &self,
        issuer: &Issued,
        revoked: &[&Issued],
        extensions: &str,
    ) -> Vec<u8> {
        let arguments = ["-crldays", "10", "-crlexts", "extensions"];
        self.make_list(issuer, revoked, &arguments, extensions)
    }

    fn make_list(
        &self,
        issuer: &Issued,
        revoked: &[&Issued],
        arguments: &[&str],
        extensions: &str,
    ) -> Vec<u8> {
        let number = self.made.get() + 1;
        self.made.set(number);
        let file = |extension: &str| self.path().join(format!("{number}.{extension}"));
        let (database, configuration, list) = (file("db"), file("cnf"), file("crl"));
        let lines: String = revoked
            .iter()
            .map(|one| {
                let serial: String = one
                    .certificate
                    .serial()
                    .iter()
                    .map(|byte| format!("{byte:02X}"))
                    .collect();
                format!("R\t400101000000Z\t200101000000Z\t{serial}\tunknown\t/CN=revoked\n")
            })
            .collect();
        fs::write(&database, lines).expect("written");
        let text = format!(
            "[ca]\ndefault_ca=main\n[main]\ndatabase={}\ndefault_md=sha256\n\
             [extensions]\n{extensions}\n",
            database.display()
        );
        fs::write(&configuration, text).expect("written");
        run(openssl(["ca", "-gencrl", "-config"])
            .arg(&configuration)
            .args(arguments)
            .arg("-cert")
            .arg(&issuer.certificate_file)
            .arg("-keyfile")
            .arg(&issuer.key_file)
            .arg("-out")
            .arg(&list));
        fs::read(&list).expect("the program wrote it")
    }
}

/// A call of the program that ignores the machine's configuration.
pub(crate) fn openssl<const COUNT: usize>(arguments: [&str; COUNT]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments).env_remove("OPENSSL_CONF");
    command
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("openssl is installed");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// A time at which all new certificates are valid.
pub(crate) fn now() -> SystemTime {
    SystemTime::now() + Duration::from_secs(60)
}
