//! The configuration files that the packages install. A key that the package does not set is a comment, after the help of its
//! option.
//!
//! ```text
//!   server      gridhaul.toml, with every option of `serve`
//!   client      client.toml, with the options of `copy` that such a file may set
//! ```

mod client;
mod server;

use clap::Arg;

use crate::program::Program;

/// The widest line.
const WIDTH: usize = 100;

/// The text of the file of a program.
pub(crate) fn text(program: Program) -> String {
    match program {
        Program::Server => server::text(),
        Program::Client => client::text(),
    }
}

/// The help of an option as comments.
fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut comment = String::new();
    for paragraph in help.lines().filter(|line| !line.is_empty()) {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                comment.push_str(&line);
                comment.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        comment.push_str(&line);
        comment.push('\n');
    }
    comment
}

/// The commented keys of a file as settings that count.
#[cfg(test)]
fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}
