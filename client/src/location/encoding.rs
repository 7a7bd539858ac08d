//! Encoded characters in URLs, and passwords.

use super::LocationError;

/// RFC 3986 2.1. `None`: malformed, or with a NUL, which no path has.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        };
        if byte == 0 {
            return None;
        }
        decoded.push(byte);
    }
    Some(decoded)
}

/// A path as URLs have it.
pub(super) fn encoded(path: &[u8]) -> String {
    path.iter().fold(String::new(), |mut text, &byte| {
        let is_plain = byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#' | b'"');
        match is_plain {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// A user as URLs have it.
pub(super) fn encoded_user(user: &str) -> String {
    user.bytes().fold(String::new(), |mut text, byte| {
        match byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// A text for messages, without what may be a password. A slash in a password, which should be `%2F`, ends the host for all other
/// purposes.
pub(super) fn without_secret(text: &str) -> String {
    let place = text.find(":/").map_or(0, |scheme| scheme + 1);
    let (scheme, rest) = text.split_at(place);
    match (rest.find(':'), rest.rfind('@')) {
        (Some(start), Some(end)) if start < end => {
            format!("{scheme}{}:...{}", &rest[..start], &rest[end..])
        }
        _ => text.to_owned(),
    }
}

/// A URL with a password, in two parts: the URL without it, and the decoded password. `None`: it has none.
///
/// # Errors
///
/// When the password is not encoded as URLs have it.
pub(crate) fn split_password(text: &str) -> Result<Option<(String, Vec<u8>)>, LocationError> {
    let Some((plain, password)) = parts(text) else {
        return Ok(None);
    };
    let password = decoded(password).ok_or(LocationError::PasswordEncoding)?;
    Ok(Some((plain, password)))
}

/// The URL without its password, and the password as it is written.
fn parts(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@')?;
    let (user, password) = user.split_once(':')?;
    Some((format!("{scheme}://{user}@{host}{path}"), password))
}
