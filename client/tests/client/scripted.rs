//! A server whose replies are those of a test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server for any number of clients.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
    /// The commands behind which another one had come already.
    read_ahead: Arc<Mutex<Vec<String>>>,
}

/// What the server does after a command: `true` if it has replied.
type Script = dyn Fn(&str, &mut TcpStream) -> bool + Send + Sync;

impl Scripted {
    /// Replies as the script does, else as a server that accepts any password.
    pub(crate) fn start(script: Box<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let read_ahead = Arc::<Mutex<Vec<String>>>::default();
        let ahead = Arc::clone(&read_ahead);
        let (said, script) = (Arc::clone(&commands), Arc::<Script>::from(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (said, script) = (Arc::clone(&said), Arc::clone(&script));
                let ahead = Arc::clone(&ahead);
                // Clients go when they have seen enough.
                thread::spawn(move || serve(stream.unwrap(), &*script, &said, &ahead));
            }
        });
        Self {
            address,
            commands,
            read_ahead,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.address)
    }

    /// Whether a command came together with the one before.
    pub(crate) fn has_read_ahead(&self) -> bool {
        !self.read_ahead().is_empty()
    }

    /// The commands that came together with the one behind them.
    pub(crate) fn read_ahead(&self) -> Vec<String> {
        self.read_ahead.lock().unwrap().clone()
    }

    /// All commands so far.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    script: &Script,
    commands: &Mutex<Vec<String>>,
    read_ahead: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    stream.write_all(b"220 ready\r\n")?;
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if !lines.buffer().is_empty() {
            read_ahead.lock().unwrap().push(line.to_owned());
        }
        commands.lock().unwrap().push(line.to_owned());
        if script(line, &mut stream) {
            continue;
        }
        let verb = line.split(' ').next().unwrap_or_default();
        let reply: &[u8] = match verb {
            "USER" => b"331 password\r\n",
            "PASS" => b"230 welcome\r\n",
            "FEAT" => b"211-Features\r\n SIZE\r\n211 End\r\n",
            "TYPE" | "MODE" | "OPTS" | "ALLO" => b"200 yes\r\n",
            "QUIT" => b"221 bye\r\n",
            _ => b"502 no\r\n",
        };
        stream.write_all(reply)?;
    }
}

/// Runs the client without a credential.
pub(crate) fn gridhaul(arguments: &[&str]) -> Output {
    // Copies of large files keep a journal there.
    let home = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_gridhaul"))
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .output()
        .unwrap()
}

/// The error of the client, which fails.
pub(crate) fn fails(arguments: &[&str]) -> String {
    let output = gridhaul(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    error
}
