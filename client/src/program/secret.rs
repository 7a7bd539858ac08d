//! Passwords and passphrases: from files, or asked for at the terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use zeroize::Zeroizing;

use super::output::Pause;

/// The maximum length in bytes.
const MAX_BYTES: usize = 4096;

/// The permission bits of other users. A group may be one of a few operators.
const OTHERS: u32 = 0o007;

/// The terminal of the process.
static TERMINAL: Mutex<Terminal> = Mutex::new(Terminal::Unused);

enum Terminal {
    Unused,
    /// Echo is off. What it was before.
    Quiet(File, Termios),
    /// The program ends.
    Over,
}

/// Asks at the terminal, without echo. `None` without a terminal, or in the background, where the process would be stopped.
///
/// # Errors
///
/// When the terminal fails.
pub(super) async fn ask(prompt: String) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let typed = tokio::task::spawn_blocking(move || ask_here(&prompt));
    typed.await.map_err(io::Error::other)?
}

/// As [`ask`], on this thread, which waits.
///
/// # Errors
///
/// When the terminal fails.
pub(super) fn ask_here(prompt: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let stdin = io::stdin();
    let is_in_foreground = tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp());
    if !stdin.is_terminal() || !is_in_foreground {
        return Ok(None);
    }
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    // Before the prompt, after which keys are pressed.
    hush(terminal.try_clone()?)?;
    let pause = Pause::begin();
    let typed = write!(terminal, "{prompt}").and_then(|()| first_line(&terminal));
    drop(pause);
    restore(Terminal::Unused);
    // That of the user was not echoed.
    writeln!(terminal)?;
    typed.map(Some)
}

/// Gives the terminal back as it was, because the program ends, perhaps while it asks.
pub(super) fn stop_asking() {
    if restore(Terminal::Over) {
        eprintln!();
    }
}

/// Switches echo off, unless the program ends.
fn hush(terminal: File) -> io::Result<()> {
    let mut state = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*state, Terminal::Over) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let before = tcgetattr(&terminal)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&terminal, OptionalActions::Now, &quiet)?;
    *state = Terminal::Quiet(terminal, before);
    Ok(())
}

/// Whether echo was off.
fn restore(next: Terminal) -> bool {
    let mut state = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*state, Terminal::Over) {
        return false;
    }
    let Terminal::Quiet(terminal, before) = std::mem::replace(&mut *state, next) else {
        return false;
    };
    // Fails only when the terminal has gone.
    let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
    true
}

/// The first line of a file that other users cannot read.
///
/// # Errors
///
/// When it cannot be read, is too long, or is open to other users.
pub(super) fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.mode() & OTHERS != 0 {
        return Err(io::Error::other("other users may read it: chmod 0600 it"));
    }
    first_line(&file)
}

fn first_line(file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    // Of full size, and read byte by byte: other buffers leave copies.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
    #[expect(clippy::unbuffered_bytes, reason = "one line, once")]
    for byte in file.bytes() {
        match byte? {
            b'\n' => break,
            byte if line.len() < MAX_BYTES => line.push(byte),
            _ => {
                let words = format!("the first line is longer than {MAX_BYTES} bytes");
                return Err(io::Error::other(words));
            }
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_the_first_line_of_a_private_file() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("secret");
        fs::write(&file, "one two\r\nthree\n").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our file");
        assert_eq!(read(&file).expect("private").as_slice(), b"one two");
        fs::set_permissions(&file, Permissions::from_mode(0o604)).expect("our file");
        let error = read(&file).expect_err("too open").to_string();
        assert!(error.contains("chmod 0600"), "{error}");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our file");
        fs::write(&file, vec![b'x'; MAX_BYTES + 1]).expect("written");
        let error = read(&file).expect_err("too long").to_string();
        assert!(error.contains("longer than"), "{error}");
    }
}
