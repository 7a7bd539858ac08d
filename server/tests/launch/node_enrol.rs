//! Nodes without certificates: how they get one, what it is good for, and who tries to get one as well.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use gridhaul_protocol::command::Base64;
use gridhaul_security::context::{Context, Step};
use gridhaul_security::files::{TrustDirectory, read_credential};
use gridhaul_security::tls::TlsSettings;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::node::Nodes;
use crate::program::{Running, has_root, program, public_directory, text, wait_for};

/// A machine with an authority, and the places of nodes.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(public_directory());
        fs::create_dir(site.path("root")).expect("made");
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(site.path("root"), all).expect("set");
        fs::write(site.path("root/file"), "content").expect("written");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn invite(&self, nodes: &[&str], flags: &[&str]) -> Inviting {
        let mut child = program()
            .args(["nodes", "invite", "--listen", "127.0.0.1:0"])
            .arg("--node-authority")
            .arg(self.path("authority"))
            .args(flags)
            .args(nodes)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = Vec::new();
        let mut tokens = Vec::new();
        while tokens.len() < nodes.len() {
            let mut line = String::new();
            let bytes = stdout.read_line(&mut line).expect("a line");
            assert!(bytes > 0, "{said:?}");
            let token = line
                .split(' ')
                .nth(1)
                .filter(|word| word.starts_with("gh1/"));
            tokens.extend(token.map(|token| token.trim().to_owned()));
            said.push(line);
        }
        let address = said[0].split(' ').nth(3).expect("an address");
        Inviting {
            address: address.parse().expect("an address"),
            tokens,
            child,
            stdout,
        }
    }

    /// `node --enroll` for one identity.
    fn enrolling(&self, control: SocketAddr, identity: &str, flags: &[&str]) -> Command {
        let mut command = program();
        command
            .args(["node", "--listen", "127.0.0.1:0", "--root"])
            .arg(self.path("root"))
            .arg("--node-identity")
            .arg(self.path(identity))
            .args(["--enroll", &control.to_string()])
            .args(flags);
        command
    }

    /// Enrols without serving.
    fn enrol(&self, inviting: &Inviting, token: &str, identity: &str, flags: &[&str]) -> Said {
        let mut command = self.enrolling(inviting.address, identity, flags);
        said(command.arg("--enroll-only"), token)
    }

    fn node(&self, identity: &str, flags: &[&str]) -> Running {
        Running::of(self.node_command(identity).args(flags))
    }

    fn node_command(&self, identity: &str) -> Command {
        let mut command = program();
        command
            .args(["node", "--listen", "127.0.0.1:0", "--root"])
            .arg(self.path("root"))
            .arg("--node-identity")
            .arg(self.path(identity));
        command
    }

    fn server(&self, node: &Running, flags: &[&str]) -> Running {
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
            .arg(self.path("root"))
            .args(["--nodes", &format!("localhost:{}", node.address.port())])
            .args(flags);
        Running::of(&mut command)
    }

    fn authority(&self) -> String {
        text(&self.path("authority")).to_owned()
    }
}

/// A running `nodes invite`, killed when the value is dropped.
struct Inviting {
    address: SocketAddr,
    tokens: Vec<String>,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Inviting {
    /// The exit status, and what it has printed since the tokens.
    fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("ended");
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).expect("UTF-8");
        let stderr = self.child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut said).expect("UTF-8");
        (status.code(), said)
    }

    fn terminate(self) -> (Option<i32>, String) {
        let id = i32::try_from(self.child.id()).expect("a process number");
        kill_process(Pid::from_raw(id).expect("not zero"), Signal::TERM).expect("sent");
        self.ended()
    }
}

impl Drop for Inviting {
    fn drop(&mut self) {
        // It has ended in tests that passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command has said on standard error.
#[derive(Debug)]
struct Said {
    status: Option<i32>,
    text: String,
}

impl Said {
    #[track_caller]
    fn fails_with(&self, words: &str) {
        assert_eq!(self.status, Some(1), "{self:?}");
        assert!(self.text.contains(words), "{words}: {self:?}");
    }

    #[track_caller]
    fn succeeds(&self) {
        assert_eq!(self.status, Some(0), "{self:?}");
    }
}

/// Runs a command with a token on standard input.
fn said(command: &mut Command, token: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that needs no token closes the pipe.
    let _ = stdin.write_all(format!("{token}\n").as_bytes());
    drop(stdin);
    let Output { status, stderr, .. } = child.wait_with_output().expect("ended");
    Said {
        status: status.code(),
        text: String::from_utf8(stderr).expect("UTF-8"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o7777
}

#[test]
fn nodes_without_certificates_enrol_and_serve_their_control_server() {
    let site = Site::new();
    let inviting = site.invite(&["localhost", "dtn2.example.org"], &[]);
    let [first, second] = [0, 1].map(|place| inviting.tokens[place].clone());
    // The first serves at once.
    fs::write(site.path("token"), format!("{first}\n")).expect("written");
    fs::set_permissions(site.path("token"), fs::Permissions::from_mode(0o600)).expect("set");
    let token = site.path("token");
    let flags = ["--token-file", text(&token)];
    let node = Running::of(&mut site.enrolling(inviting.address, "node.pem", &flags));
    site.enrol(&inviting, &second, "second.pem", &[]).succeeds();
    let (status, told) = inviting.ended();
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("localhost is enrolled"), "{told}");
    assert!(told.contains("dtn2.example.org is enrolled"), "{told}");
    for file in [
        "authority/authority.pem",
        "authority/control.pem",
        "node.pem",
    ] {
        assert_eq!(mode(&site.path(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&site.path("authority")), 0o700);

    let authority = ["--node-authority", &site.authority()];
    let mut server = site.server(&node, &authority);
    server.log_until("a data node can be used");
    let replies = server.dialogue(&["USER ftp", "PASS me@example.org", "TYPE I", "SIZE /file"]);
    assert_eq!(
        replies.last().map(String::as_str),
        Some("213 7"),
        "{replies:?}"
    );
    drop((server, node));
    // And without the token after a restart.
    let node = site.node("node.pem", &[]);
    site.server(&node, &authority)
        .log_until("a data node can be used");

    // The certificate of the second is for another host.
    let node = site.node("second.pem", &[]);
    let log = site.server(&node, &authority).log_until("not of localhost");
    assert!(log.contains("dtn2.example.org"), "{log}");
}

#[test]
fn a_token_counts_once_and_guesses_get_nothing() {
    let site = Site::new();
    let inviting = site.invite(&["dtn1"], &[]);
    let token = inviting.tokens[0].clone();
    // The right fingerprint, and another secret.
    let (known, _) = token.rsplit_once('/').expect("parts");
    let guess = format!("{known}/{}", "A".repeat(43));
    let guessed = site.enrol(&inviting, &guess, "guess.pem", &[]);
    guessed.fails_with("the token is wrong");
    assert!(!site.path("guess.pem").exists());
    let not_one = site.enrol(&inviting, "a token", "guess.pem", &[]);
    not_one.fails_with("this is no token");
    // The node asks for the name in its copy of the token; the control server has another one. It is used then.
    let other = token.replace("/dtn1/", "/ctl.example.org/");
    let misused = site.enrol(&inviting, &other, "guess.pem", &[]);
    misused.fails_with("the token for dtn1");
    assert!(!site.path("guess.pem").exists());
    let (status, told) = inviting.ended();
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("dtn1 is not enrolled"), "{told}");

    // A used one, at an invitation that waits for another node.
    let inviting = site.invite(&["dtn1", "dtn2"], &[]);
    site.enrol(&inviting, &inviting.tokens[0], "dtn1.pem", &[])
        .succeeds();
    let again = site.enrol(&inviting, &inviting.tokens[0], "again.pem", &[]);
    again.fails_with("was used before");
    site.enrol(&inviting, &token, "again.pem", &[])
        .fails_with("earlier invitation");
    let left = inviting.tokens[1].clone();
    let (status, told) = inviting.terminate();
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("not enrolled: dtn2"), "{told}");
    // Its tokens end with it.
    let inviting = site.invite(&["dtn2"], &[]);
    site.enrol(&inviting, &left, "dtn2.pem", &[])
        .fails_with("earlier invitation");
}

#[test]
fn an_invitation_ends_after_its_time() {
    let site = Site::new();
    let inviting = site.invite(&["dtn1"], &["--valid", "1s"]);
    let address = inviting.address;
    let (status, told) = inviting.ended();
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("not enrolled: dtn1"), "{told}");
    TcpStream::connect(address).expect_err("nothing listens");
}

#[test]
fn a_node_sends_its_token_to_its_control_server_only() {
    let (site, stranger) = (Site::new(), Site::new());
    let token = site.invite(&["dtn1"], &[]).tokens[0].clone();
    // Another machine that invites nodes, and has the address of the control server.
    let other = stranger.invite(&["dtn1"], &[]);
    let fooled = site.enrol(&other, &token, "dtn1.pem", &[]);
    fooled.fails_with("another authority than the one of the token; the token was not sent");
    // Something that is no control server at all.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.write_all(b"220 ready\r\n").expect("sent");
        let mut received = Vec::new();
        // A reset is as good as an end.
        let _ = stream.read_to_end(&mut received);
        received
    });
    let mut command = site.enrolling(address, "dtn1.pem", &["--enroll-only"]);
    said(&mut command, &token).fails_with("the token was not sent");
    let received = sink.join().expect("no panic");
    let secret = token.rsplit('/').next().expect("parts");
    let is_there = |text: &[u8]| received.windows(text.len()).any(|part| part == text);
    assert!(!received.is_empty() && !is_there(secret.as_bytes()));
    assert!(!site.path("dtn1.pem").exists());
    assert_eq!(other.terminate().0, Some(1), "its token is not used");
}

#[test]
fn a_crowd_of_silent_connections_does_not_keep_a_node_out() {
    let site = Site::new();
    let inviting = site.invite(&["dtn1"], &[]);
    // More than there is room for. Some are closed by the server.
    let crowd: Vec<_> = (0..300)
        .map_while(|_| TcpStream::connect(inviting.address).ok())
        .collect();
    assert!(crowd.len() > 100);
    let token = inviting.tokens[0].clone();
    // Each try may be refused for lack of room, which does not use the token.
    wait_for(
        "enrolled",
        || site.enrol(&inviting, &token, "dtn1.pem", &[]).text,
        |said| said.contains("enrolled as dtn1"),
    );
    drop(crowd);
    assert_eq!(inviting.ended().0, Some(0));
}

#[test]
fn an_identity_is_replaced_only_if_that_is_said() {
    let site = Site::new();
    let inviting = site.invite(&["dtn1"], &[]);
    let token = inviting.tokens[0].clone();
    fs::write(site.path("other.pem"), "something else").expect("written");
    for flags in [&[][..], &["--again"]] {
        let refused = site.enrol(&inviting, &token, "other.pem", flags);
        refused.fails_with("it was not replaced");
    }
    assert_eq!(
        fs::read(site.path("other.pem")).expect("read"),
        b"something else"
    );
    site.enrol(&inviting, &token, "dtn1.pem", &[]).succeeds();
    assert_eq!(inviting.ended().0, Some(0));
    let before = fs::read(site.path("dtn1.pem")).expect("read");
    let inviting = site.invite(&["dtn1"], &[]);
    let token = inviting.tokens[0].clone();
    let refused = site.enrol(&inviting, &token, "dtn1.pem", &[]);
    refused.fails_with("OU=data node/CN=dtn1, until ");
    assert_eq!(fs::read(site.path("dtn1.pem")).expect("read"), before);
    site.enrol(&inviting, &token, "dtn1.pem", &["--again"])
        .succeeds();
    assert_ne!(fs::read(site.path("dtn1.pem")).expect("read"), before);
}

#[test]
fn keys_go_to_no_place_that_other_accounts_can_change() {
    let site = Site::new();
    let inviting = site.invite(&["dtn1"], &[]);
    let token = inviting.tokens[0].clone();
    symlink(site.path("root"), site.path("link")).expect("made");
    let linked = site.enrol(&inviting, &token, "link/dtn1.pem", &[]);
    linked.fails_with("symbolic link");
    let open = site.enrol(&inviting, &token, "root/dtn1.pem", &[]);
    open.fails_with("can be changed by other accounts");
    // The token in a file that others read, or in the list of processes.
    fs::write(site.path("token"), &token).expect("written");
    fs::set_permissions(site.path("token"), fs::Permissions::from_mode(0o644)).expect("set");
    let file = site.path("token");
    let flags = ["--token-file", text(&file)];
    site.enrol(&inviting, "", "dtn1.pem", &flags)
        .fails_with("chmod 0600");
    let left: Vec<_> = fs::read_dir(site.path("root")).expect("listed").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // None of them has used the token.
    site.enrol(&inviting, &token, "dtn1.pem", &[]).succeeds();

    let mut command = program();
    command.args([
        "nodes",
        "invite",
        "--listen",
        "127.0.0.1:0",
        "dtn1",
        "--node-authority",
    ]);
    said(command.arg(site.path("link")), "").fails_with("symbolic link");
    // A key that others may read is not used.
    let key = site.path("authority/authority.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set");
    let mut command = program();
    command.args([
        "nodes",
        "invite",
        "--listen",
        "127.0.0.1:0",
        "dtn1",
        "--node-authority",
    ]);
    said(command.arg(site.path("authority")), "").fails_with("chmod 0600");
}

#[test]
fn host_certificates_and_identities_do_not_mix() {
    let site = Site::new();
    let inviting = site.invite(&["localhost", "dtn2"], &[]);
    for (token, file) in inviting.tokens.iter().zip(["node.pem", "second.pem"]) {
        site.enrol(&inviting, token, file, &[]).succeeds();
    }
    assert_eq!(inviting.ended().0, Some(0));
    let authority = ["--node-authority", &site.authority()];
    let hosts = Nodes::new();

    // A control server with a host certificate, at an enrolled node.
    let node = site.node("node.pem", &[]);
    let [certificate, key, trust] = ["control.pem", "control.key", "certificates"]
        .map(|name| text(&hosts.path(name)).to_owned());
    let gridmap = hosts.path("gridmap");
    fs::write(&gridmap, "").expect("written");
    let gsi = [
        "--gsi",
        "--cert",
        &certificate,
        "--key",
        &key,
        "--trust",
        &trust,
        "--gridmap",
        text(&gridmap),
    ];
    site.server(&node, &gsi)
        .log_until("presents a certificate that is not accepted");
    // One with the identity of the authority, at a node with a host certificate.
    let of_host = Running::of(&mut hosts.command(&["--control-servers", "ctl.example.org"]));
    site.server(&of_host, &authority)
        .log_until("presents a certificate that is not accepted");
    // The identity of a node, in place of that of the control server.
    let stolen = site.path("stolen");
    fs::create_dir(&stolen).expect("made");
    fs::copy(site.path("second.pem"), stolen.join("control.pem")).expect("copied");
    let mut command = program();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
        .arg(site.path("root"))
        .args(["--nodes", "localhost", "--node-authority", text(&stolen)]);
    said(&mut command, "").fails_with("is not the certificate of a control server");
    // An identity that others may read, and another file.
    let open = fs::Permissions::from_mode(0o644);
    fs::copy(site.path("second.pem"), site.path("open.pem")).expect("copied");
    fs::set_permissions(site.path("open.pem"), open).expect("set");
    said(&mut site.node_command("open.pem"), "").fails_with("chmod 0600");
    let mut listed = site.node_command("node.pem");
    listed.args(["--control-servers", "ctl.example.org"]);
    said(&mut listed, "").fails_with("this node is enrolled");
}

/// What the authority issues is for control servers and nodes: also a user with its certificate does not log in.
#[test]
fn what_the_authority_issues_is_accepted_by_no_login() {
    let site = Site::new();
    let inviting = site.invite(&["localhost"], &[]);
    site.enrol(&inviting, &inviting.tokens[0], "node.pem", &[])
        .succeeds();
    let hosts = Nodes::new();
    let gridmap = hosts.path("gridmap");
    let line = "\"/O=gridhaul node authority/OU=data node/CN=localhost\" nobody\n";
    fs::write(&gridmap, line).expect("written");
    let node = site.node("node.pem", &[]);
    let [certificate, key, trust] =
        ["control.pem", "control.key", "certificates"].map(|name| hosts.path(name));
    let authority = site.authority();
    let flags = [
        "--gsi",
        "--node-authority",
        &authority,
        "--cert",
        text(&certificate),
        "--key",
        text(&key),
        "--trust",
        text(&trust),
        "--gridmap",
        text(&gridmap),
    ];
    let mut server = site.server(&node, &flags);
    server.log_until("a data node can be used");
    let server_trust = TrustDirectory::open(&trust).expect("trust").current();
    let log_in = |chain: &Path, key: &Path| {
        let credential = read_credential(chain, key).expect("a credential");
        let settings = TlsSettings::new(Arc::new(credential), Arc::clone(&server_trust));
        adat(&server, &settings)
    };
    let known = log_in(&certificate, &key);
    assert!(known.starts_with("235 "), "{known}");
    for file in [
        "node.pem",
        "authority/control.pem",
        "authority/authority.pem",
    ] {
        let refused = log_in(&site.path(file), &site.path(file));
        assert!(refused.starts_with("535"), "{file}: {refused}");
    }
}

/// The last reply to the exchange of tokens (`ADAT`) of a client.
fn adat(server: &Running, settings: &TlsSettings) -> String {
    let mut context = Context::initiator(settings, false).expect("an initiator");
    let mut stream = TcpStream::connect(server.address).expect("connected");
    let mut replies = BufReader::new(stream.try_clone().expect("a handle"));
    let mut ask = |line: Option<String>| {
        let line = line.map_or(String::new(), |line| format!("{line}\r\n"));
        stream.write_all(line.as_bytes()).expect("sent");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("a reply");
        reply.trim_end().to_owned()
    };
    assert!(ask(None).starts_with("220 "));
    assert!(ask(Some("AUTH GSSAPI".to_owned())).starts_with("334 "));
    let mut token = Vec::new();
    loop {
        let stepped = context.step(&token, &mut Vec::new());
        let (Step::Continue(answer) | Step::Done(answer)) = stepped.expect("trusted");
        let reply = ask(Some(format!("ADAT {}", Base64::encode(&answer))));
        let Some(text) = reply.strip_prefix("335 ADAT=") else {
            return reply;
        };
        let decoded = Base64::new(text).and_then(|token| token.decode());
        token = decoded.expect("base64").to_vec();
    }
}

#[test]
fn started_as_root_the_identities_are_read_again_with_its_rights() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let inviting = site.invite(&["localhost"], &[]);
    site.enrol(&inviting, &inviting.tokens[0], "node.pem", &[])
        .succeeds();
    drop(inviting);
    let log = site.path("log");
    let node = site.node("node.pem", &["--user", "nobody", "--log-file", text(&log)]);
    let authority = ["--node-authority", &site.authority(), "--user", "nobody"];
    let mut server = site.server(&node, &authority);
    server.log_until("a data node can be used");
    // Renewed while both run, and readable for root only.
    let inviting = site.invite(&["localhost"], &[]);
    let token = inviting.tokens[0].clone();
    site.enrol(&inviting, &token, "node.pem", &["--again"])
        .succeeds();
    drop(server);
    // It looks at the file when a peer connects, at most once a second.
    wait_for(
        "read again",
        || {
            drop(TcpStream::connect(node.address).expect("connected"));
            fs::read_to_string(&log).expect("a log")
        },
        |log| log.contains("the server's certificate was read again"),
    );
    let mut server = site.server(&node, &authority);
    server.log_until("a data node can be used");
}
