//! Commands and replies in the tokens of a security context: `ENC`, `MIC`, `CONF`, and 632.

use gridhaul_protocol::command::{Base64, Command};
use gridhaul_protocol::line::MAX_LINE_BYTES;
use gridhaul_security::context::{ContextError, MessageProtection};
use zeroize::Zeroizing;

use super::request::Fault;

/// Opens the command in a token. All three commands are accepted with every cipher: globus-url-copy 10.12 sends `MIC`
/// if the cipher does not encrypt.
///
/// # Errors
///
/// When the command came in clear, or its token is not the next one of the client. After a wrong token the context is lost.
pub(crate) fn open(context: &mut MessageProtection, command: Command) -> Result<Command, Fault> {
    let (Command::Enc(token) | Command::Mic(token) | Command::Conf(token)) = command else {
        return Err(Fault::Unprotected);
    };
    let broken = |reason: &str| Fault::Token(reason.to_owned());
    let token = token.decode().ok_or_else(|| broken("it is no base64"))?;
    let line = context
        .unwrap(&token)
        .map_err(|error| broken(&error.to_string()))?;
    // It may contain a password or a credential.
    let line = Zeroizing::new(line);
    if line.len() > MAX_LINE_BYTES {
        return Err(broken("it holds more than a line"));
    }
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    Ok(Command::parse(line)?)
}

/// Appends a reply, or whole lines of one, to `output`, with one token for each line, as globus-gridftp-server 13.24
/// does.
///
/// # Errors
///
/// When the context is lost.
pub(crate) fn seal(
    context: &mut MessageProtection,
    lines: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Box<ContextError>> {
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let token = context.wrap(line).map_err(Box::new)?;
        output.extend_from_slice(if ends_reply(line) { b"632 " } else { b"632-" });
        output.extend_from_slice(Base64::encode(&token).as_bytes());
        output.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// RFC 959 4.2: the last line of a reply is the one with a space after its code.
fn ends_reply(line: &[u8]) -> bool {
    matches!(line, [a, b, c, b' ', ..] if [a, b, c].iter().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::reply::Reply;

    use super::*;

    #[test]
    fn only_the_last_line_ends_a_reply() {
        let reply = Reply::spaced(211, "Extensions supported", ["SIZE", "226 x"], "End.");
        let encoded = reply.encode();
        let ends: Vec<bool> = encoded
            .split_inclusive(|&byte| byte == b'\n')
            .map(ends_reply)
            .collect();
        assert_eq!(ends, [false, false, false, true]);
    }
}
