//! The first commands of README.md and docs/getting-started.md, as a new user follows them: with nothing but the two programs, a new home and
//! an empty directory. The port is any free one in place of 2811, and the home takes the place of `/tmp`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use gridhaul_interop::gridhaul_program;
use tempfile::TempDir;

use super::{page, top};

/// The address in the pages.
const ADDRESS: &str = "127.0.0.1:2811";

/// The time limit for each line of a server.
const LINE_LIMIT: Duration = Duration::from_secs(20);

/// How the pages start the programs from a checkout, and their names.
const STARTS: [(&str, &str); 2] = [
    ("cargo run --release -p gridhaul-client -- ", "gridhaul "),
    ("cargo run --release -- ", "gridhaul-server "),
];

/// A user and a directory that servers may serve.
struct NewUser {
    programs: PathBuf,
    home: TempDir,
    directory: TempDir,
}

impl NewUser {
    fn new() -> Self {
        let server = gridhaul_program().expect("the server is built");
        let programs = server.parent().expect("an absolute path").to_owned();
        let client = programs.join("gridhaul");
        assert!(client.exists(), "first cargo build -p gridhaul-client");
        let directory = tempfile::tempdir().expect("a directory");
        // The account of the server must be able to enter it.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its own");
        Self {
            programs,
            home: tempfile::tempdir().expect("a directory"),
            directory,
        }
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", script])
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.programs.display()))
            .env("HOME", self.home.path());
        shell
    }

    fn must(&self, script: &str) {
        let output = self.shell(script).output().expect("sh runs");
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        assert!(
            output.status.success(),
            "{script}\n{}{}",
            String::from_utf8_lossy(stdout),
            String::from_utf8_lossy(stderr)
        );
    }

    /// What a file of the home has, which is removed.
    fn take(&self, name: &str) -> String {
        let path = self.home.path().join(name);
        let text = fs::read_to_string(&path).expect("it was copied");
        fs::remove_file(path).expect("it was there");
        text
    }

    /// A command of a page for a server at another address.
    fn adapt(&self, command: &str, address: &str) -> String {
        let command = command.trim().replace(ADDRESS, address);
        command.replace("/tmp", &self.home.path().display().to_string())
    }
}

/// A server with what it prints. It ends when this is dropped.
struct Serving {
    process: Child,
    address: String,
    /// The commands that it suggests.
    hints: Vec<String>,
}

impl Serving {
    fn start(user: &NewUser, command: &str) -> Self {
        let mut command = command.replace(ADDRESS, "127.0.0.1:0");
        if !command.contains("--listen") {
            command.push_str(" --listen 127.0.0.1:0");
        }
        let mut process = user
            .shell(&format!("exec {}", named(&command)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut serving = Self {
            process,
            address: String::new(),
            hints: Vec::new(),
        };
        let lines = sent_lines(output);
        let next = || {
            let line = lines.recv_timeout(LINE_LIMIT);
            line.unwrap_or_else(|_| panic!("{command} prints too few lines"))
        };
        let first = next();
        let address = first.strip_prefix("Server listening at ");
        address
            .unwrap_or_else(|| panic!("{command}: {first:?}"))
            .clone_into(&mut serving.address);
        assert_eq!(next(), "Try it:", "{command}");
        serving.hints = vec![next(), next()];
        serving
    }
}

/// The lines of a server, which a thread reads until it ends.
fn sent_lines(output: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = sender.send(line);
        }
    });
    lines
}

impl Drop for Serving {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

/// A command that starts the program itself.
fn named(command: &str) -> String {
    let start = STARTS
        .iter()
        .find_map(|(start, name)| Some((command.strip_prefix(start)?, name)));
    match start {
        Some((rest, name)) => format!("{name}{rest}"),
        None => command.to_owned(),
    }
}

/// The commands of the client in a page for the first server.
fn of_client(name: &str) -> Vec<String> {
    let page = page(name);
    let commands = page.code().map(|line| named(line.trim()));
    let commands = commands.filter(|line| line.starts_with("gridhaul ") && line.contains(ADDRESS));
    commands.collect()
}

/// Runs what a page and its server suggest; each command copies `file` to the home.
fn follow(user: &NewUser, name: &str, serve: &str, file: &Path) {
    let content = fs::read_to_string(user.directory.path().join(file)).expect("it is there");
    let copied = file.file_name().and_then(|name| name.to_str());
    let copied = copied.expect("a name");
    let serving = Serving::start(user, serve);
    let commands = of_client(name);
    assert!(!commands.is_empty(), "{name} has no command for {ADDRESS}");
    for command in commands.iter().chain(&serving.hints) {
        user.must(&user.adapt(command, &serving.address));
        assert_eq!(user.take(copied), content, "{command}");
    }
}

#[test]
fn the_quick_start_of_the_readme_works() {
    let user = NewUser::new();
    let readme = user.directory.path().join("README.md");
    fs::copy(top().join("README.md"), readme).expect("it is there");
    let page = page("README.md");
    // As root or not, these say what to serve.
    let mut spans = page.spans();
    let serve = spans.find(|span| span.starts_with(STARTS[1].0));
    let serve = serve.expect("README.md says how root serves");
    follow(&user, "README.md", serve, Path::new("README.md"));
}

#[test]
fn the_first_server_of_getting_started_works() {
    let name = "docs/getting-started.md";
    let user = NewUser::new();
    let page = page(name);
    let first = page.commands().into_iter().next().expect("a block");
    user.must(&first);
    let mut code = page.code();
    let serve = code.find(|line| line.starts_with("gridhaul-server serve"));
    let serve = serve.expect("the page starts a server");
    follow(&user, name, serve, Path::new("data/hello.txt"));
}
