//! Asking for a password.

use std::io::{self, BufRead, IsTerminal};

use rustix::termios::{LocalModes, OptionalActions};

use super::PasswordsError;

/// Reads a password: twice and unseen from a terminal, else the first line of standard input.
///
/// # Errors
///
/// When the two are not the same, or nothing can be read.
pub fn read_password() -> Result<Vec<u8>, PasswordsError> {
    let unreadable = |_| PasswordsError::Password("cannot read the password");
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return read_line(&mut stdin.lock()).map_err(unreadable);
    }
    let echo = EchoOff::new().map_err(unreadable)?;
    let read = |prompt: &str| {
        eprint!("{prompt}");
        let line = read_line(&mut stdin.lock());
        eprintln!();
        line
    };
    let first = read("Password: ").map_err(unreadable)?;
    let second = read("The same again: ").map_err(unreadable)?;
    drop(echo);
    if first != second {
        return Err(PasswordsError::Password(
            "the two passwords are not the same",
        ));
    }
    Ok(first)
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    while line
        .last()
        .is_some_and(|byte| *byte == b'\n' || *byte == b'\r')
    {
        line.pop();
    }
    Ok(line)
}

/// The terminal does not show what is typed until this is dropped.
struct EchoOff(rustix::termios::Termios);

impl EchoOff {
    fn new() -> io::Result<Self> {
        let shown = rustix::termios::tcgetattr(io::stdin())?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(shown))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Nothing more can be done for a terminal that is gone.
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
