//! `gridhaul-server check`: what it says of sound sites and of broken ones.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a site has: certificates made with the `openssl` program, and files of maps.
struct Site(tempfile::TempDir);

/// What the program said.
struct Said {
    status: i32,
    lines: Vec<String>,
}

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(site.path("root")).expect("made");
        fs::create_dir(site.path("certificates")).expect("made");
        site.authority("certificates/ca.pem", "/O=Grid/CN=Test CA", 3650);
        site.write(
            "certificates/ca.signing_policy",
            "access_id_CA X509 '/O=Grid/CN=Test CA'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"/O=Grid/*\"'\n",
        );
        site.issue("host", "DNS:localhost,DNS:*.example.org", 365);
        let map = format!("\"/O=Grid/CN=Alice Smith\" {}\n", account());
        site.write("grid-mapfile", &map);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).expect("written");
    }

    fn mode(&self, name: &str, mode: u32) {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.path(name), permissions).expect("set");
    }

    fn openssl(&self, arguments: &[&str]) {
        let done = Command::new("openssl")
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .expect("openssl is installed");
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {words}");
    }

    /// A certificate authority that signs itself; its key is `ca.key`.
    fn authority(&self, file: &str, subject: &str, days: i32) {
        self.openssl(
            &[
                &["req", "-x509", "-nodes", "-newkey", "ec"][..],
                &["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", "ca.key"],
                &["-out", file, "-subj", subject, "-days", &days.to_string()],
                &["-addext", "basicConstraints=critical,CA:TRUE"],
                &["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
            ]
            .concat(),
        );
    }

    /// `NAME.pem` and `NAME.key`, for hosts with these names.
    fn issue(&self, name: &str, names: &str, days: i32) {
        let [certificate, key] = ["pem", "key"].map(|ending| format!("{name}.{ending}"));
        self.openssl(
            &[
                &["req", "-nodes", "-newkey", "ec"][..],
                &["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key],
                &["-out", "request", "-subj", "/O=Grid/CN=localhost"],
            ]
            .concat(),
        );
        self.write("extensions", &format!("subjectAltName={names}\n"));
        self.openssl(
            &[
                &["x509", "-req", "-in", "request", "-out", &certificate][..],
                &["-CA", "certificates/ca.pem", "-CAkey", "ca.key"],
                &["-set_serial", "5", "-days", &days.to_string()],
                &["-extfile", "extensions"],
            ]
            .concat(),
        );
        self.mode(&key, 0o600);
    }

    /// A revocation list of the authority that is valid from and until these times.
    fn revocations(&self, from: &str, until: &str) {
        self.write("index", "");
        self.write(
            "ca.conf",
            "[ca]\ndefault_ca = a\n[a]\ndatabase = index\ndefault_md = sha256\n",
        );
        self.openssl(
            &[
                &["ca", "-config", "ca.conf", "-gencrl"][..],
                &["-cert", "certificates/ca.pem", "-keyfile", "ca.key"],
                &["-crl_lastupdate", from, "-crl_nextupdate", until],
                &["-out", "certificates/ca.crl"],
            ]
            .concat(),
        );
    }

    /// Checks the site as a server with GSI.
    fn check(&self, flags: &[&str]) -> Said {
        let file = |name: &str| self.path(name).to_str().expect("UTF-8").to_owned();
        let site = [
            ("--cert", file("host.pem")),
            ("--key", file("host.key")),
            ("--trust", file("certificates")),
            ("--gridmap", file("grid-mapfile")),
            ("--root", file("root")),
        ];
        let mut arguments = vec!["--gsi", "--listen", "127.0.0.1:0"];
        for (flag, value) in &site {
            if !flags.contains(flag) {
                arguments.extend([*flag, value.as_str()]);
            }
        }
        check(&[&arguments, flags].concat())
    }
}

/// An account that a server of this process may use.
fn account() -> String {
    let own = nix::unistd::Uid::effective();
    if own.is_root() {
        // The one account that every machine has and that is none of its services.
        return "nobody".to_owned();
    }
    let user = nix::unistd::User::from_uid(own).expect("asked");
    user.expect("the account has a name").name
}

fn check(arguments: &[&str]) -> Said {
    check_with(arguments, None)
}

/// With another directory in the place of `/sys` for RDMA.
fn check_with(arguments: &[&str], sysfs: Option<&Path>) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul-server"));
    command.arg("check").args(arguments).env_clear();
    if let Some(sysfs) = sysfs {
        command.env("SYSFS_PATH", sysfs);
    }
    let done = command.stdin(Stdio::null()).output().expect("started");
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    Said {
        status: done.status.code().expect("an exit status"),
        lines: text.lines().map(str::to_owned).collect(),
    }
}

impl Said {
    /// Fails unless there is a line that begins and continues so.
    #[track_caller]
    fn says(&self, beginning: &str, words: &str) -> &Self {
        let mut lines = self.lines.iter();
        let found = lines.any(|line| {
            // The verdicts are padded.
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            line.starts_with(beginning) && line.contains(words)
        });
        assert!(found, "{beginning} ... {words} is not in {:#?}", self.lines);
        self
    }

    #[track_caller]
    fn fails(&self) -> &Self {
        assert_eq!(self.status, 1, "{:#?}", self.lines);
        self
    }

    #[track_caller]
    fn passes(&self) -> &Self {
        assert_eq!(self.status, 0, "{:#?}", self.lines);
        assert!(!self.lines.iter().any(|line| line.starts_with("error")));
        self
    }
}

#[test]
fn a_sound_site_passes() {
    let site = Site::new();
    let said = site.check(&[]);
    said.passes()
        .says("ok certificate:", "is /O=Grid/CN=localhost, with its key")
        .says("ok certificate:", "is valid until")
        .says("ok certificate:", "its chain leads to /O=Grid/CN=Test CA")
        .says("ok trust:", "1 authority")
        .says("ok gridmap:", "maps 1 subject")
        .says("ok root:", "can be opened")
        .says("ok stack:", "auto")
        .says("0 errors", "warning");
    for line in &said.lines[..said.lines.len() - 1] {
        assert!(
            ["ok ", "warning "]
                .iter()
                .any(|word| line.starts_with(word)),
            "{line}"
        );
    }
}

#[test]
fn what_is_wrong_with_the_certificate_is_named() {
    let site = Site::new();
    site.mode("host.key", 0o644);
    site.check(&[])
        .fails()
        .says("error key: --key:", "chmod 0600");
    site.mode("host.key", 0o600);

    site.issue("other", "DNS:localhost", 365);
    let other = site.path("other.key");
    let said = site.check(&["--key", other.to_str().expect("UTF-8")]);
    said.fails()
        .says("error key: --key:", "does not belong to the certificate");
    let said = site.check(&["--cert", "/nonexistent/host.pem"]);
    said.fails()
        .says("error cert: --cert:", "/nonexistent/host.pem: No such file");

    site.issue("host", "DNS:localhost", 10);
    site.check(&[])
        .says("warning certificate:", "expires in 9 days");
    site.issue("host", "DNS:elsewhere.example.org", 365);
    site.check(&[])
        .says("warning certificate:", "is for elsewhere.example.org");
    site.issue("host", "email:a@b.org", 365);
    site.check(&[]).says(
        "warning certificate:",
        "clients may connect to 'localhost', its CN",
    );
    site.issue("host", "DNS:localhost", -1);
    site.check(&[])
        .fails()
        .says("error certificate:", "has expired on");
}

#[test]
fn what_is_wrong_with_the_trust_directory_is_named() {
    let site = Site::new();
    site.revocations("20200101000000Z", "20200201000000Z");
    site.check(&[])
        .fails()
        .says("error revocation:", "has expired on 2020-02-01");
    site.revocations("20200101000000Z", "20990101000000Z");
    site.check(&[])
        .says("ok trust:", "1 authority and 1 revocation list");

    let list = fs::read_to_string(site.path("certificates/ca.crl")).expect("it was made");
    for unusable in ["", &list[..list.len() / 2]] {
        site.write("certificates/ca.crl", unusable);
        let said = site.check(&[]);
        said.fails()
            .says("error revocation:", "ca.crl")
            .says("error revocation:", "fetch-crl")
            .says(
                "error revocation:",
                "no certificate of /O=Grid/CN=Test CA is accepted",
            );
    }
    site.write("certificates/ca.crl", &list);

    fs::remove_file(site.path("certificates/ca.signing_policy")).expect("removed");
    let said = site.check(&[]);
    said.fails()
        .says("warning trust:", "/O=Grid/CN=Test CA has no signing policy")
        .says(
            "error certificate:",
            "does not hold against the trust directory",
        );
    site.write("certificates/broken.pem", "nothing");
    site.check(&[]).says("warning trust:", "broken.pem");

    site.authority("certificates/ca.pem", "/O=Grid/CN=Other CA", 10);
    let said = site.check(&[]);
    said.fails()
        .says("warning trust:", "/O=Grid/CN=Other CA expires in 9 days")
        .says("error certificate:", "issued by /O=Grid/CN=Test CA");

    let empty = tempfile::tempdir().expect("a directory");
    let said = site.check(&["--trust", empty.path().to_str().expect("UTF-8")]);
    said.fails().says("error trust:", "0 authorities");
    let missing = site.path("missing");
    let said = site.check(&["--trust", missing.to_str().expect("UTF-8")]);
    said.fails().says("error trust:", "missing: No such file");
}

#[test]
fn what_is_wrong_with_maps_and_accounts_is_named() {
    let site = Site::new();
    let account = account();
    let lines = [
        "\"/O=Grid/CN=a\" no-such-account".to_owned(),
        format!("/O=Grid/CN=Al Smith {account}"),
        format!("\"/O=Grid/CN=b\" root,{account}"),
    ];
    site.write("grid-mapfile", &lines.join("\n"));
    let said = site.check(&["--allow-disabled-login"]);
    said.fails()
        .says("error gridmap:", "line 2: the subject seems to have spaces")
        .says("ok gridmap:", "maps 2 subjects")
        .says("ok accounts:", "1 of 3 accounts can be used")
        .says("warning accounts: line 1 of", "no-such-account")
        .says("warning accounts: line 3 of", "root");
    if nix::unistd::Uid::effective().is_root() {
        site.write("grid-mapfile", "\"/O=Grid/CN=a\" daemon\n");
        site.check(&[])
            .fails()
            .says("warning accounts:", "lower least-uid");
        site.check(&["--least-uid", "1"]).passes();
    }
    site.write("grid-mapfile", "\"/O=Grid/CN=a\" no-such-account\n");
    let said = site.check(&[]);
    said.fails()
        .says("error accounts:", "0 of 1 account can be used");
    site.write("grid-mapfile", "# nobody\n");
    site.check(&[])
        .passes()
        .says("warning gridmap:", "maps no users");
    site.mode("grid-mapfile", 0o666);
    site.check(&[])
        .fails()
        .says("error gridmap:", "can be written by all users");
    if nix::unistd::Uid::effective().is_root() {
        site.mode("grid-mapfile", 0o600);
        site.check(&[]).passes();
        // Others could exchange it.
        site.mode(".", 0o777);
        site.check(&[])
            .fails()
            .says("error gridmap:", "cannot be read again by nobody");
        site.mode(".", 0o755);
    }

    let vomsdir = site.path("vomsdir");
    fs::create_dir_all(vomsdir.join("atlas")).expect("made");
    let flags = ["--vomsdir", vomsdir.to_str().expect("UTF-8")];
    site.check(&flags).says("ok vomsdir:", "names no server");
    site.write("vomsdir/atlas/voms.lsc", "/CN=voms\n");
    site.check(&flags)
        .says("error vomsdir:", "a chain has no issuer");
    site.write("vomsdir/atlas/voms.lsc", "/CN=voms\n/CN=ca\n");
    site.check(&flags)
        .says("ok vomsdir:", "names servers of atlas");
}

#[test]
fn what_is_wrong_with_directories_and_ports_is_named() {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name).to_str().expect("UTF-8").to_owned();
    // Of no other server on this machine.
    let socket = path("admin.sock");
    let own = ["--anonymous", "--admin-socket", &socket];
    let anonymous = |flags: &[&str]| check(&[&own, flags].concat());

    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let said = anonymous(&["--root", &path(""), "--listen", &address]);
    said.passes()
        .says("warning listen:", &format!("{address} is in use"));
    let said = anonymous(&["--root", &path(""), "--listen", "192.0.2.1:2811"]);
    said.fails()
        .says("error listen:", "cannot listen at 192.0.2.1:2811");

    let free = ["--listen", "127.0.0.1:0"];
    let with = |flags: &[&str]| anonymous(&[&free, flags].concat());
    with(&["--root", &path("none")])
        .fails()
        .says("error root:", "No such file");
    let said = with(&["--root", &path(""), "--port-range", "50000-50009"]);
    said.passes()
        .says("warning port-range:", "has 10 ports, and there may be 500");
    let said = with(&["--root", &path(""), "--transfer-log", &path("none/log")]);
    said.fails().says("error transfer-log:", "No such file");
    let said = with(&["--root", &path(""), "--transfer-log", &path("log")]);
    said.passes().says("ok transfer-log:", "can be written");
    assert!(!Path::new(&path("log")).exists(), "nothing is made");
    let with_key = || with(&["--root", &path(""), "--checksum-key", &path("key")]);
    with_key()
        .fails()
        .says("error checksum-key:", "No such file");
    fs::write(path("key"), [7; 32]).expect("written");
    let set_mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(path("key"), permissions).expect("ours");
    };
    set_mode(0o644);
    with_key().fails().says("error checksum-key:", "chmod 600");
    set_mode(0o600);
    with_key().passes();
    let said = with(&["--root", &path(""), "--stack", "udt"]);
    said.fails().says("error stack:", "udt");
    let said = with(&["--root", &path(""), "--buffer-memory", "1000000G"]);
    said.fails().says("error buffer-memory:", "lower it");
    let said = with(&["--root", &path(""), "--passwords", &path("users")]);
    said.fails().says("error passwords:", "No such file");
}

#[test]
fn a_configuration_that_does_not_fit_together_is_an_error() {
    check(&["--anonymous-write"])
        .fails()
        .says("error anonymous-write:", "--anonymous");
    let said = check(&["--config", "/nonexistent/config.toml"]);
    said.fails()
        .says("error configuration:", "/nonexistent/config.toml");
}

#[test]
fn client_options_are_compared_with_what_drivers_have() {
    let rules = |rules| check(&["--anonymous", "--client-options", rules]);
    rules("tcp:buffer<=4M;cc=bbr|cubic").passes();
    let said = rules("gsi:ktls");
    said.passes();
    assert!(
        !said
            .lines
            .iter()
            .any(|line| line.contains("without effect"))
    );
    rules("tcp:buffer,tcp:cc")
        .fails()
        .says("error client-options:", "tcp has two rules");
    rules("tcp:size<=4M")
        .fails()
        .says("error client-options:", "tcp has no option \"size\"");
    rules("tcp:cc<=4M")
        .fails()
        .says("error client-options:", "it is no bound");
    rules("null:bytes")
        .fails()
        .says("error client-options:", "there is no driver \"null\"");
    let said = check(
        &[
            &["--anonymous", "--allowed-drivers", "tcp"],
            &["--client-options", "auto:rate"][..],
        ]
        .concat(),
    );
    said.passes()
        .says("warning client-options:", "lets clients have auto");
}

#[test]
#[cfg(feature = "rdma")]
fn rdma_is_looked_at_where_it_may_be_used() {
    let allowed = ["--anonymous-drivers", "tcp,rdma"];
    let said = check(&[&["--anonymous", "--rdma"], &allowed[..]].concat());
    said.passes()
        .says(
            "ok rdma:",
            "anonymous users may have data channels over rdma",
        )
        .says("ok rdma:", "provider soft");
    for part in ["descriptors", "logged in"] {
        assert!(!said.lines.iter().any(|line| line.contains(part)), "{part}");
    }
    let said = check(&["--anonymous", "--rdma"]);
    said.passes()
        .says("warning rdma:", "name it in anonymous-drivers");
    let site = Site::new();
    let said = site.check(&["--anonymous", "--rdma"]);
    said.passes()
        .says("ok rdma:", "users who have logged in may have")
        .says("warning rdma:", "anonymous users may not have");
    let said = site.check(&["--stack", "rdma"]);
    said.passes()
        .says("ok rdma:", "data channels of all users run over rdma");
    let said = check(&["--anonymous", "--rdma", "--rdma-memory", "1000000G"]);
    said.fails().says("error rdma-memory:", "lower one of them");
}

/// A directory in the place of sysfs, with an adapter whose port is down, and which shows little.
#[test]
#[cfg(feature = "rdma")]
fn adapters_are_examined_with_a_verdict_for_each_topic() {
    let sysfs = tempfile::tempdir().expect("a directory");
    let put = |path: &str, text: &str| {
        let path = sysfs.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
    };
    let device = "class/infiniband/test_0";
    put(&format!("{device}/node_type"), "1: CA");
    put(&format!("{device}/device/numa_node"), "0");
    for (name, text) in [
        ("state", "1: DOWN"),
        ("link_layer", "Ethernet"),
        ("rate", "100 Gb/sec (4X EDR)"),
        ("gids/0", "0000:0000:0000:0000:0000:ffff:c000:0201"),
        ("gid_attrs/types/0", "RoCE v2"),
        ("gid_attrs/ndevs/0", "eth9"),
        ("hw_counters/packet_seq_err", "0"),
    ] {
        put(&format!("{device}/ports/1/{name}"), text);
    }
    put("class/net/eth9/mtu", "1500");
    let flags = ["--anonymous", "--rdma"];
    let said = check_with(&flags, Some(sysfs.path()));
    said.passes()
        .says("warning rdma: test_0/1: link:", "it is DOWN: plug in")
        .says(
            "warning rdma: test_0/1: mtu: eth9 has 1500 bytes",
            "set 4192 or more",
        )
        .says(
            "ok rdma: test_0/1: addresses:",
            "gid 0 192.0.2.1 of eth9 (RoCE v2)",
        )
        .says(
            "ok rdma: test_0/1: losses:",
            "rate=auto works: packet_seq_err 0",
        )
        .says("unknown rdma: test_0/1: slot:", "lspci")
        .says("unknown rdma: machine: huge pages:", "");
    // Only `--rdma` examines adapters.
    let said = check_with(&["--anonymous"], Some(sysfs.path()));
    assert!(
        !said
            .lines
            .iter()
            .any(|line| line.contains("test_0/1: link"))
    );
}
