//! URLs as globus-url-copy takes them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use gridhaul_protocol::command::Password;

use crate::location::{LocationError, Server, Url, as_text, is_url, split_password};

/// A word of the command line. A URL keeps its bytes; options and their values are text.
pub(super) fn text(word: &OsStr) -> String {
    match is_url(word.as_bytes()) {
        true => as_text(word.as_bytes()),
        false => word.to_string_lossy().into_owned(),
    }
}

/// A URL whose path begins at the home directory of the user, unless it begins with an encoded slash.
pub(super) fn relative(url: &str) -> String {
    let place = url.find("://").map(|scheme| scheme + 3);
    let slash = place.and_then(|place| url[place..].find('/').map(|slash| place + slash));
    match slash
        .filter(|_| !url.starts_with("file:"))
        .map(|slash| url.split_at(slash))
    {
        Some((server, path)) if path.to_ascii_uppercase().starts_with("/%2F") => {
            format!("{server}/{}", &path[4..])
        }
        Some((server, path)) if !path.starts_with("/~") => format!("{server}/~{path}"),
        _ => url.to_owned(),
    }
}

/// The URL without its password, which is kept for the server. Later URLs of the same server and user need not have it.
///
/// # Errors
///
/// When the password is malformed, or cannot be sent.
pub(super) fn without_password(
    url: String,
    passwords: &mut Vec<(Server, Password)>,
) -> Result<String, LocationError> {
    let Some((plain, password)) = split_password(&url)? else {
        return Ok(url);
    };
    let password = Password::new(password).ok_or(LocationError::PasswordUnsendable)?;
    // A wrong URL is reported where it is used.
    if let Ok(url) = Url::parse(&plain) {
        passwords.push((url.server, password));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_encoded_in_urls() {
        for (word, expected) in [
            (&b"file:/a\xe9b"[..], "file:/a%E9b"),
            (b"ftp://h/\xff\xfe/%41\xc3\xa9", "ftp://h/%FF%FE/%41\u{e9}"),
            (b"-vb", "-vb"),
        ] {
            assert_eq!(text(OsStr::from_bytes(word)), expected);
        }
    }

    #[test]
    fn relative_paths_begin_at_the_home_directory() {
        for (url, expected) in [
            ("ftp://h/a/b", "ftp://h/~/a/b"),
            ("ftp://h/%2Fa/b", "ftp://h/a/b"),
            ("ftp://h/~/a", "ftp://h/~/a"),
            ("file:///a", "file:///a"),
            ("a", "a"),
        ] {
            assert_eq!(relative(url), expected);
        }
    }

    #[test]
    fn passwords_are_taken_out_of_urls() {
        let mut passwords = Vec::new();
        let url = "ftp://joe:s%40cret@h/a".to_owned();
        let plain = without_password(url, &mut passwords);
        assert_eq!(plain.expect("valid"), "ftp://joe@h/a");
        assert_eq!(passwords.len(), 1);
        let (server, password) = &passwords[0];
        assert_eq!(server.user.as_deref(), Some("joe"));
        assert_eq!(password.as_bytes(), b"s@cret");
        for url in ["ftp://joe@h/a", "ftp://h/a:b@c", "file:///a:b@c"] {
            let plain = without_password(url.to_owned(), &mut passwords);
            assert_eq!(plain.expect("valid"), url);
        }
        assert_eq!(passwords.len(), 1);
    }

    #[test]
    fn a_malformed_password_is_an_error_without_it() {
        for (url, expected) in [
            ("ftp://joe:100%@h/", "%25"),
            ("ftp://joe:a%00b@h/", "%25"),
            ("ftp://joe:a%0D%0Ab@h/", "end of a line"),
        ] {
            let mut passwords = Vec::new();
            let error = without_password(url.to_owned(), &mut passwords);
            let error = error.expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
            assert!(!error.contains("joe") && passwords.is_empty(), "{error}");
        }
    }
}
