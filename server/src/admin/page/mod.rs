//! The files of the page, which are part of the program.

/// The page.
pub(super) const INDEX: &str = include_str!("index.html");

/// Its style.
pub(super) const STYLE: &str = include_str!("page.css");

/// Its script.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// The form for the secret of administrators.
pub(super) const LOGIN: &str = include_str!("login.html");
