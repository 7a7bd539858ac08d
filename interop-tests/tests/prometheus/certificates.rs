//! Certificates and revocation lists that end at a chosen time.

use std::fs;
use std::path::{Path, PathBuf};

use gridhaul_interop::Client;

/// A certificate authority.
pub(crate) struct Authority {
    directory: PathBuf,
    hash: String,
}

impl Authority {
    /// An authority that ends in this many days, with its files in a new directory.
    pub(crate) fn new(directory: PathBuf, name: &str, days: i32) -> Self {
        fs::create_dir(&directory).expect("made");
        let configuration = "[ca]\ndefault_ca = a\n[a]\ndatabase = index\ndefault_md = sha256\n";
        fs::write(directory.join("ca.cnf"), configuration).expect("written");
        fs::write(directory.join("index"), "").expect("written");
        let extensions =
            "basicConstraints = critical,CA:TRUE\nkeyUsage = critical,keyCertSign,cRLSign\n";
        fs::write(directory.join("extensions"), extensions).expect("written");
        request(&directory, "ca", name);
        let days = days.to_string();
        openssl(
            &directory,
            &[
                "x509",
                "-req",
                "-in",
                "ca.request",
                "-signkey",
                "ca.key",
                "-days",
                &days,
                "-extfile",
                "extensions",
                "-out",
                "ca.pem",
            ],
        );
        let hash = openssl(&directory, &["x509", "-noout", "-hash", "-in", "ca.pem"]);
        let hash = hash.trim().to_owned();
        Self { directory, hash }
    }

    /// Issues a certificate for `localhost` that ends in this many days, and puts it and its key in place of these files.
    pub(crate) fn issue(&self, days: u32, certificate: &Path, key: &Path) {
        request(&self.directory, "host", "localhost");
        let days = days.to_string();
        openssl(
            &self.directory,
            &[
                "x509",
                "-req",
                "-in",
                "host.request",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                &days,
                "-out",
                "host.pem",
            ],
        );
        fs::rename(self.directory.join("host.key"), key).expect("moved");
        fs::rename(self.directory.join("host.pem"), certificate).expect("moved");
    }

    /// Puts the authority into a trust directory, with a revocation list that ends in this many days.
    pub(crate) fn trust(&self, directory: &Path, list_days: u32) {
        let days = list_days.to_string();
        openssl(
            &self.directory,
            &[
                "ca", "-gencrl", "-config", "ca.cnf", "-keyfile", "ca.key", "-cert", "ca.pem",
                "-crldays", &days, "-out", "list",
            ],
        );
        for (from, suffix) in [("ca.pem", "0"), ("list", "r0")] {
            let new = directory.join("new");
            fs::copy(self.directory.join(from), &new).expect("copied");
            let name = format!("{}.{suffix}", self.hash);
            fs::rename(new, directory.join(name)).expect("moved");
        }
    }
}

fn request(directory: &Path, file: &str, name: &str) {
    let (key, request) = (format!("{file}.key"), format!("{file}.request"));
    let subject = format!("/DC=test/CN={name}");
    openssl(
        directory,
        &[
            "req",
            "-new",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-subj",
            &subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ],
    );
}

fn openssl(directory: &Path, arguments: &[&str]) -> String {
    let done = Client::new("openssl")
        .args(arguments.iter().copied())
        .directory(directory)
        .run()
        .expect("it runs");
    assert!(done.status.success(), "{done}");
    done.output()
}
