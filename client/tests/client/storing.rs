//! A scripted server that stores what it receives in stream mode.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::passive;
use super::scripted::Scripted;

/// How transfers to the server end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Complete,
    /// The data connection is closed after some bytes.
    Broken,
    /// The same, and the server does not say whether it has a file.
    Unsaid,
    /// The same, with a temporary name; another client has stored a file with the final one meanwhile.
    Beside,
    /// The upload of another client replaces this one, after some bytes with a temporary name.
    Replaced,
}

/// The server, and the sizes of its files.
pub(crate) struct Storing {
    pub(crate) server: Scripted,
    files: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Storing {
    pub(crate) fn start(ends: Ends) -> Self {
        let files = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let stored = Arc::clone(&files);
        let server = Scripted::start(Box::new(move |line, control| {
            // The client may close the connection at any time.
            talk(line, control, ends, &stored).unwrap_or(true)
        }));
        Self { server, files }
    }

    /// Adds a file.
    pub(crate) fn has(&self, path: &str, size: usize) {
        self.files.lock().unwrap().insert(path.to_owned(), size);
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }
}

fn talk(
    line: &str,
    control: &mut TcpStream,
    ends: Ends,
    files: &Mutex<BTreeMap<String, usize>>,
) -> io::Result<bool> {
    let (verb, path) = line.split_once(' ').unwrap_or((line, ""));
    let reply = match verb {
        "SIZE" if ends == Ends::Unsaid => "450 Not now.\r\n".to_owned(),
        "SIZE" => match files.lock().unwrap().get(path) {
            Some(size) => format!("213 {size}\r\n"),
            None => "550 No such file.\r\n".to_owned(),
        },
        "DELE" => match files.lock().unwrap().remove(path) {
            Some(_) => "250 Removed.\r\n".to_owned(),
            None => "550 No such file.\r\n".to_owned(),
        },
        "PASV" => passive::listen()?,
        "STOR" => {
            control.write_all(b"150 Now.\r\n")?;
            let mut data = passive::accept()?;
            let mut stored = Vec::new();
            if ends == Ends::Complete {
                data.read_to_end(&mut stored)?;
            } else {
                stored.resize(1000, 0);
                data.read_exact(&mut stored)?;
            }
            let temporary = || {
                let (directory, name) = path.rsplit_once('/').unwrap();
                format!("{directory}/.{name}.gridhaul-part")
            };
            let mut files = files.lock().unwrap();
            let reply = match ends {
                Ends::Complete => {
                    files.insert(path.to_owned(), stored.len());
                    "226 Complete.\r\n"
                }
                Ends::Broken | Ends::Unsaid => {
                    files.insert(path.to_owned(), stored.len());
                    "426 Broken.\r\n"
                }
                Ends::Beside => {
                    files.insert(temporary(), stored.len());
                    files.insert(path.to_owned(), 7);
                    "426 Broken.\r\n"
                }
                Ends::Replaced => {
                    files.insert(temporary(), stored.len());
                    "426 Command failed. : another upload of the same file has begun\r\n"
                }
            };
            reply.to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}
