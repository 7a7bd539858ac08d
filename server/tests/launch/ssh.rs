//! `gridhaul-server ssh`: a session over pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::program::{fails, program, public_directory};
use gridhaul_skip::skipped;

/// A session, as sshd would have started it.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
        }
    }

    /// Logged in, in the directory `root`.
    fn logged_in(root: &Path) -> Self {
        Self::logged_in_from(root, "127.0.0.1 50000 127.0.0.1 22", &[])
    }

    /// The same, over a connection between these addresses.
    fn logged_in_from(root: &Path, connection: &str, arguments: &[&str]) -> Self {
        Self::logged_in_to(
            program()
                .args(["ssh", "--root"])
                .arg(root)
                .args(arguments)
                .env("SSH_CONNECTION", connection),
        )
    }

    /// A session that this command starts, logged in.
    fn logged_in_to(command: &mut Command) -> Self {
        let mut session = Self::start(command);
        assert!(session.line().starts_with("220 "));
        assert!(session.ask("USER anybody").starts_with("331 "));
        assert!(session.ask("PASS anything").starts_with("230 User "));
        assert!(session.ask("TYPE I").starts_with("200 "));
        session
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.input
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("sent");
        self.line()
    }

    /// Opens a passive data connection.
    fn passive(&mut self) -> TcpStream {
        let reply = self.ask("EPSV");
        let port = reply.trim_end_matches("|)").rsplit('|').next();
        let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
        TcpStream::connect(("127.0.0.1", port)).expect("connected")
    }

    /// What the program said on standard error until its end, which was in order.
    fn finish(mut self) -> String {
        drop(self.input);
        assert!(self.child.wait().expect("ended").success());
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut text).expect("UTF-8");
        text
    }
}

#[test]
fn files_are_stored_and_fetched_over_clear_data_channels() {
    let root = public_directory();
    let mut session = Session::logged_in(root.path());
    let mut data = session.passive();
    assert!(session.ask("STOR new").starts_with("150 "));
    data.write_all(b"over ssh").expect("sent");
    drop(data);
    assert!(session.line().starts_with("226 "));
    let stored = std::fs::read(root.path().join("new")).expect("stored");
    assert_eq!(stored, b"over ssh");

    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let SocketAddr::V4(address) = listener.local_addr().expect("bound") else {
        panic!("not asked for");
    };
    let port = format!("EPRT |1|127.0.0.1|{}|", address.port());
    assert!(session.ask(&port).starts_with("200 "));
    assert!(session.ask("RETR new").starts_with("150 "));
    let mut text = String::new();
    let (mut data, _) = listener.accept().expect("connected");
    data.read_to_string(&mut text).expect("received");
    assert_eq!(text, "over ssh");
    assert!(session.line().starts_with("226 "));
    assert_eq!(session.finish(), "");
}

#[test]
fn a_client_on_another_host_reaches_no_service_of_this_machine() {
    const CONNECTION: &str = "192.0.2.99 50000 198.51.100.7 22";
    let root = public_directory();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let mut session = Session::logged_in_from(root.path(), CONNECTION, &[]);
    for (host, words) in [
        (
            "1|127.0.0.1",
            "127.0.0.1 is a loopback address of the server",
        ),
        (
            "1|127.0.0.2",
            "127.0.0.2 is a loopback address of the server",
        ),
        ("2|::1", "::1 is a loopback address of the server"),
        ("2|::ffff:127.0.0.1", "is a loopback address of the server"),
        (
            "1|198.51.100.7",
            "198.51.100.7 is an address of the server's own machine",
        ),
        ("1|203.0.113.1", "200 "),
        ("1|192.0.2.99", "200 "),
    ] {
        let reply = session.ask(&format!("EPRT |{host}|{port}|"));
        assert!(reply.contains(words), "{reply}");
        if !words.starts_with("200") {
            assert!(
                reply.starts_with("501 ") && reply.contains("data-hosts"),
                "{reply}"
            );
            assert!(!session.ask("NLST").starts_with('1'), "{reply}");
        }
    }
    let advertised = ["--advertise-address", "203.0.113.1"];
    let mut session = Session::logged_in_from(root.path(), CONNECTION, &advertised);
    assert!(session.ask("EPRT |1|203.0.113.1|5000|").starts_with("501 "));
    let advertised = ["--stack", "tcp:advertise=203.0.113.1"];
    let mut session = Session::logged_in_from(root.path(), CONNECTION, &advertised);
    assert!(session.ask("EPRT |1|203.0.113.1|5000|").starts_with("501 "));

    // A copy within the server: the port of PASV, and no other one.
    let translated = [
        "--advertise-address",
        "203.0.113.1",
        "--data-address",
        "127.0.0.1",
    ];
    let mut session = Session::logged_in_from(root.path(), CONNECTION, &translated);
    let told = session.ask("SPAS 1");
    assert!(told.starts_with("229"), "{told}");
    let told = session.line();
    let port_of_session = told.trim_end_matches('|').rsplit('|').next();
    let port_of_session: u16 = port_of_session
        .and_then(|port| port.parse().ok())
        .expect("a port");
    session.line();
    let eprt = |host, port| format!("EPRT |1|{host}|{port}|");
    for (host, port) in [("203.0.113.1", port), ("127.0.0.1", port_of_session)] {
        let reply = session.ask(&eprt(host, port));
        assert!(reply.starts_with("501 "), "{reply}");
    }
    let own = eprt("203.0.113.1", port_of_session);
    assert!(session.ask(&own).starts_with("200 "));
    // From then on the port is closed.
    assert!(session.ask(&own).starts_with("501 "));

    listener.set_nonblocking(true).expect("set");
    let nobody = listener.accept().expect_err("nobody came");
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);

    let named = ["--data-hosts", "127.0.0.0/8,198.51.100.7"];
    let mut session = Session::logged_in_from(root.path(), CONNECTION, &named);
    for host in ["127.0.0.1", "198.51.100.7"] {
        let reply = session.ask(&format!("EPRT |1|{host}|{port}|"));
        assert!(reply.starts_with("200 "), "{reply}");
    }
}

/// In a network of its own, which only root may make, and which has a route of the type `local`.
#[test]
fn what_the_kernel_routes_to_this_machine_is_refused_as_its_own() {
    const NETWORK: &str = "ip link set lo up && ip route add local 10.9.0.0/16 dev lo";

    let in_network = |work: &str| {
        let mut command = Command::new("unshare");
        let script = format!("{NETWORK} && {work}");
        command.args(["--net", "sh", "-c", &script, "sh"]);
        command
    };
    let output = in_network("true").output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        skipped(&format!(
            "no network of its own can be made here: {output:?}"
        ));
        return;
    }
    let root = public_directory();
    let session = |arguments: &[&str]| {
        let mut command = in_network("exec \"$@\"");
        command
            .arg(program().get_program())
            .args(["ssh", "--root"])
            .arg(root.path())
            .args(arguments)
            .env("SSH_CONNECTION", "192.0.2.99 50000 198.51.100.7 22");
        Session::logged_in_to(&mut command)
    };
    let mut stranger = session(&[]);
    for (peer, words) in [
        ("1|10.9.1.1", "own machine"),
        ("2|::ffff:10.9.1.1", "own machine"),
        ("2|64:ff9b::10.9.1.1", "own machine"),
        ("1|10.8.1.1", "200 "),
        ("2|2001:db8::1", "200 "),
    ] {
        let reply = stranger.ask(&format!("EPRT |{peer}|5000|"));
        assert!(reply.contains(words), "{peer}: {reply}");
    }
    let reply = session(&["--data-hosts", "10.9.1.1"]).ask("EPRT |1|10.9.1.1|5000|");
    assert!(reply.starts_with("200 "), "{reply}");
}

#[test]
fn the_program_ends_with_its_session() {
    let root = public_directory();
    let mut session = Session::logged_in(root.path());
    assert!(session.ask("QUIT").starts_with("221 "));
    assert_eq!(session.line(), "");
    assert!(session.child.wait().expect("ended").success());
    Session::logged_in(root.path()).finish();
}

#[test]
fn the_whole_machine_is_there_and_the_session_begins_at_home() {
    let mut session = Session::start(&mut {
        let mut command = program();
        command.arg("ssh");
        command
    });
    assert!(session.line().starts_with("220 "));
    assert!(session.ask("USER x").starts_with("331 "));
    assert!(session.ask("PASS x").starts_with("230 "));
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective())
        .expect("asked")
        .expect("this account has a name");
    let home = user.dir.display();
    assert_eq!(
        session.ask("PWD"),
        format!("257 \"{home}\" is current directory.")
    );
    assert!(session.ask("CWD /etc").starts_with("250 "));
    assert!(session.ask("TYPE I").starts_with("200 "));
    assert!(session.ask("SIZE passwd").starts_with("213 "));
}

#[test]
fn settings_about_logging_in_mean_nothing_to_it() {
    let root = public_directory();
    let file = root.path().join("config.toml");
    let text =
        "gsi = true\ncert = \"/nonexistent\"\npasswords = \"/nonexistent\"\nperms = \"0600\"\n";
    std::fs::write(&file, text).expect("written");
    let mut session = Session::start(program().args(["ssh", "--config"]).arg(&file));
    assert!(session.line().starts_with("220 "));
    assert!(session.ask("AUTH GSSAPI").starts_with("504 "));
    assert!(session.ask("USER x").starts_with("331 "));
    assert!(session.ask("PASS x").starts_with("230 "));
    assert_eq!(session.finish(), "");
}

#[test]
fn a_configuration_with_data_nodes_is_refused() {
    let directory = public_directory();
    let file = directory.path().join("gridhaul.toml");
    std::fs::write(&file, "idle-timeout = 5\nnodes = ['dtn1.example.org']\n").expect("written");
    let errors = fails(program().args(["ssh", "--config"]).arg(&file));
    for words in [
        "gridhaul.toml, line 2: nodes: sessions of ssh cannot use data nodes",
        "a configuration without nodes",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

#[test]
fn the_recipe_of_the_documentation_works_when_it_is_pasted() {
    let page = include_str!("../../../docs/operators/accounts.md");
    let section = page.split("\n## sshftp\n").nth(1).expect("a section");
    let recipe = section.split("```sh\n").nth(1).expect("a block");
    let recipe = recipe.split("```").next().expect("its end");
    let home = public_directory();
    let program = Path::new(env!("CARGO_BIN_EXE_gridhaul-server"));
    let programs = program.parent().expect("absolute").display();
    let pasted = Command::new("sh")
        .args(["-c", recipe])
        .env("HOME", home.path())
        .env("PATH", format!("{programs}:/usr/bin:/bin"))
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&pasted.stdout);
    assert!(
        said.starts_with("220 ") && said.contains("\n221 "),
        "{pasted:?}"
    );
    // sshd gives the script neither the directory nor the PATH of the person who installed it.
    let script = home.path().join(".globus/sshftp");
    let mut session = Session::logged_in_to(
        Command::new(script)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
            .current_dir("/"),
    );
    assert!(session.ask("PWD").starts_with("257 "));
    assert!(session.ask("QUIT").starts_with("221 "));
}
