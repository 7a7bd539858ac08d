//! Reads a password from the terminal.

use std::io::{self, BufRead, IsTerminal};

use super::PasswordsError;

/// Reads a password: twice and without echo from the terminal, or the first line of standard input if that is none. A typed
/// password must be UTF-8; one from standard input may have any bytes.
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
    let first = rpassword::prompt_password("Password: ").map_err(unreadable)?;
    let second = rpassword::prompt_password("The same again: ").map_err(unreadable)?;
    if first != second {
        return Err(PasswordsError::Password(
            "the two passwords are not the same",
        ));
    }
    Ok(first.into_bytes())
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let end = line.iter().rposition(|byte| !b"\r\n".contains(byte));
    line.truncate(end.map_or(0, |last| last + 1));
    Ok(line)
}
