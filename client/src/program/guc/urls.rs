//! URLs as globus-url-copy takes them.

use gridhaul_protocol::command::Password;

use crate::location::{Server, Url, split_password};

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
pub(super) fn without_password(url: String, passwords: &mut Vec<(Server, Password)>) -> String {
    let Some((plain, password)) = split_password(&url) else {
        return url;
    };
    if let (Ok(url), Some(password)) = (Url::parse(&plain), Password::new(password)) {
        passwords.push((url.server, password));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(without_password(url, &mut passwords), "ftp://joe@h/a");
        assert_eq!(passwords.len(), 1);
        let (server, password) = &passwords[0];
        assert_eq!(server.user.as_deref(), Some("joe"));
        assert_eq!(password.as_bytes(), b"s@cret");
        for url in ["ftp://joe@h/a", "ftp://h/a:b@c", "file:///a:b@c"] {
            assert_eq!(without_password(url.to_owned(), &mut passwords), url);
        }
        assert_eq!(passwords.len(), 1);
    }
}
