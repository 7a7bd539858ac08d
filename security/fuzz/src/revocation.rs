//! An authority that has revoked one of its two users, made by `openssl`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use gridhaul_security::certificate::Certificate;

/// The content of a trust directory, and users' certificates.
pub struct Samples {
    /// The authority's certificate in PEM.
    pub authority: Vec<u8>,
    /// Its signing policy.
    pub policy: &'static str,
    /// The revoked user, and the other one.
    pub users: [Certificate; 2],
    /// The list in PEM.
    pub pem: Vec<u8>,
    /// The list in DER.
    pub der: Vec<u8>,
    /// A time at which all of it is valid.
    pub now: SystemTime,
}

const POLICY: &str = "access_id_CA X509 '/CN=Fuzz CA'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"*\"'\n";

const CONFIGURATION: &str = "[req]\ndistinguished_name=dn\n[dn]\n[ca]\ndefault_ca=it\n\
                             [it]\ndatabase=index\ndefault_md=sha256\n\
                             [v3]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n";

/// The samples of this process.
pub fn samples() -> &'static Samples {
    static SAMPLES: LazyLock<Samples> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory");
        make(directory.path())
    });
    &SAMPLES
}

fn make(top: &Path) -> Samples {
    let openssl = |arguments: &str| {
        let status = Command::new("openssl")
            .args(arguments.split('|'))
            .current_dir(top)
            .output()
            .expect("openssl is installed");
        assert!(status.status.success(), "{arguments}: {status:?}");
    };
    fs::write(top.join("cnf"), CONFIGURATION).expect("written");
    let key = "-newkey|ec|-pkeyopt|ec_paramgen_curve:P-256|-nodes|-config|cnf";
    openssl(&format!(
        "req|-x509|-subj|/CN=Fuzz CA|{key}|-extensions|v3|-days|30|-keyout|ca.key|-out|ca.pem"
    ));
    for (name, serial) in [("revoked", 77), ("good", 78)] {
        openssl(&format!(
            "req|-new|-subj|/CN={name}|{key}|-keyout|{name}.key|-out|{name}.csr"
        ));
        openssl(&format!(
            "x509|-req|-in|{name}.csr|-CA|ca.pem|-CAkey|ca.key|-set_serial|{serial}|-days|30|-out|{name}.pem"
        ));
    }
    let index = "R\t400101000000Z\t200101000000Z\t4D\tunknown\t/CN=revoked\n";
    fs::write(top.join("index"), index).expect("written");
    openssl("ca|-gencrl|-config|cnf|-crldays|20|-cert|ca.pem|-keyfile|ca.key|-out|list.pem");
    openssl("crl|-in|list.pem|-outform|DER|-out|list.der");
    let read = |name: &str| fs::read(top.join(name)).expect("the program wrote it");
    let user = |name: &str| {
        let certificates = Certificate::all_from_pem(&read(name)).expect("sound");
        certificates.into_iter().next().expect("one")
    };
    Samples {
        authority: read("ca.pem"),
        policy: POLICY,
        users: [user("revoked.pem"), user("good.pem")],
        pem: read("list.pem"),
        der: read("list.der"),
        now: SystemTime::now() + Duration::from_secs(60),
    }
}
