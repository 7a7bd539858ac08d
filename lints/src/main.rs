//! Checks of this workspace's own sources, for `make lint`.
//!
//! ```text
//! gridhaul-lints modules                      circles between modules that modules.toml does not allow
//! gridhaul-lints modules edges PACKAGE FROM TO   the lines that make module FROM depend on module TO
//! gridhaul-lints words                        phrases of words.toml in comments and Markdown pages
//! ```
//!
//! Both run in the top directory of the workspace and fail when they find something. `modules` reads the library of each member,
//! or its program when it has none, without code for tests. `words` reads line comments of Rust sources, and Markdown pages.
//!
//! ```text
//! main --> circles --> graph     strongly connected components
//!     |        |-----> scope     the module that defines the item of a path
//!     |        `-----> modules   reads a crate: its modules, and the paths that each uses
//!     `--> words                 reads comments and pages
//!     `--> workspace             the members of the workspace and their files
//! ```

mod circles;
mod graph;
mod modules;
mod scope;
mod words;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "usage: gridhaul-lints modules [edges PACKAGE FROM TO] | words";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let findings = match arguments.as_slice() {
        ["modules"] => circles::check(),
        ["modules", "edges", package, from, to] => circles::edges(package, from, to),
        ["words"] => words::check(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match findings {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
