//! What `--verbose` says about sessions, on standard error.

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;

use super::output::{shown_lines, warn, write_plain};
use crate::control::{DialogueObserver, Spoken};
use crate::location::Server;
use crate::session::Session;

/// The longest line of a reply that is shown, in bytes.
const LONGEST: usize = 1000;

/// What is said about sessions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Telling {
    /// A line for each session.
    has_sessions: bool,
    dialogue: Option<DialogueObserver>,
}

impl Telling {
    /// For `-v` or `-vv`.
    pub(super) fn at(verbosity: u8) -> Self {
        Self {
            has_sessions: verbosity > 0,
            dialogue: (verbosity > 1).then_some(own),
        }
    }

    /// For `-dbg` of globus-url-copy.
    pub(super) fn as_globus() -> Self {
        Self {
            has_sessions: false,
            dialogue: Some(globus),
        }
    }

    /// Sees the dialogues.
    pub(super) fn observer(self) -> Option<DialogueObserver> {
        self.dialogue
    }

    /// Tells a session that was opened.
    pub(super) fn opened(self, session: &Session) {
        if self.has_sessions {
            let (welcome, peer) = (session.welcome(), session.peer());
            let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
            let user = session.login().identity().map_or_else(
                || "without a certificate".to_owned(),
                |identity| format!("as {}", identity.credential.identity().one_line()),
            );
            warn(format_args!(
                "{}: connected to {peer} from {} in {:.1} ms, logged in {user} in {:.1} ms: {}",
                session.server(),
                session.local(),
                milliseconds(welcome.connected),
                milliseconds(welcome.logged_in),
                welcome.greeting
            ));
        }
    }
}

/// A line for each line of the dialogue.
fn own(server: &Server, spoken: Spoken<'_>) {
    match spoken {
        Spoken::Command(command) => warn(format_args!("{server} > {command}")),
        Spoken::Reply(reply) => {
            for line in lines(reply) {
                warn(format_args!("{server} < {line}"));
            }
        }
    }
}

/// In the form of globus-url-copy 10.12, which scripts read.
fn globus(server: &Server, spoken: Spoken<'_>) {
    write_plain(&match spoken {
        Spoken::Command(command) => sent(server, command),
        Spoken::Reply(reply) => {
            let lines: Vec<String> = lines(reply).collect();
            format!("debug: response from {server}/:\n{}\n", lines.join("\n"))
        }
    });
}

fn sent(server: &Server, command: &Command) -> String {
    format!("debug: sending command to {server}/:\n{command}\n")
}

/// The lines of a reply, without tokens of the security exchange (RFC 2228 5.3), which are long and not readable.
fn lines(reply: &Reply) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(&reply.encode()).into_owned();
    let lines: Vec<String> = text.lines().map(shown).collect();
    lines.into_iter()
}

fn shown(line: &str) -> String {
    const TOKEN: &str = "ADAT=";

    let line = match line.find(TOKEN) {
        Some(token) => format!("{}***", &line[..token + TOKEN.len()]),
        None => line.to_owned(),
    };
    let end = line.floor_char_boundary(LONGEST);
    shown_lines(&line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_shown_line_by_line_without_tokens() {
        let reply = Reply::spaced(211, "Features", ["SIZE", "SPAS"], "End");
        let all: Vec<String> = lines(&reply).collect();
        assert_eq!(all, ["211-Features", " SIZE", " SPAS", "211 End"]);
        let reply = Reply::new(335, "ADAT=c2VjcmV0");
        assert_eq!(lines(&reply).collect::<Vec<_>>(), ["335 ADAT=***"]);
        let long = "\u{e4}".repeat(LONGEST);
        let reply = Reply::new(220, long);
        assert!(lines(&reply).all(|line| line.len() <= LONGEST));
        let reply = Reply::new(220, "a\u{9b}2J");
        let all: Vec<String> = lines(&reply).collect();
        assert!(!all.concat().contains(char::is_control), "{all:?}");
    }
}
