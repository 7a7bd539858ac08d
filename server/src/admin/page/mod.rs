//! The files of the page, which are part of the program.

/// The page.
pub(super) const INDEX: &str = include_str!("index.html");

/// Its style.
pub(super) const STYLE: &str = include_str!("page.css");

/// Its script.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// The modules that the script imports.
const MODULES: [(&str, &str); 6] = [
    ("/dom.js", include_str!("dom.js")),
    ("/format.js", include_str!("format.js")),
    ("/plot.js", include_str!("plot.js")),
    ("/secret.js", include_str!("secret.js")),
    ("/sections.js", include_str!("sections.js")),
    ("/table.js", include_str!("table.js")),
];

/// The module of the script with this path.
pub(super) fn module(path: &str) -> Option<&'static str> {
    let found = MODULES.iter().find(|(name, _)| *name == path);
    found.map(|(_, content)| *content)
}
