//! What a command moves.

use gridhaul_protocol::command::{Command, RdmaCommand};
use gridhaul_protocol::negotiated::{Direction, Refusal, Terms};
use gridhaul_protocol::path::PathArgument;
use gridhaul_transfer::Placement;

use crate::session::listing::Form;

#[derive(Debug)]
pub(crate) enum Motion {
    /// A file, or a part of it, to the client.
    Send {
        path: PathArgument,
        offset: u64,
        length: Option<u64>,
    },
    /// A file from the client.
    Receive {
        path: PathArgument,
        placement: Placement,
    },
    /// A file from the client, under an unused name.
    ReceiveNew { path: Option<PathArgument> },
    /// A listing to the client.
    List {
        path: Option<PathArgument>,
        form: Form,
    },
}

impl Motion {
    /// A whole file to the client.
    pub(crate) fn whole(path: PathArgument) -> Self {
        Self::Send {
            path,
            offset: 0,
            length: None,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self {
            Self::Send { .. } | Self::List { .. } => Direction::Send,
            Self::Receive { .. } | Self::ReceiveNew { .. } => Direction::Receive,
        }
    }

    /// Whether it is possible under the negotiated terms.
    ///
    /// # Errors
    ///
    /// When the client asked for a restart that is impossible.
    pub(super) fn check(&self, terms: &Terms) -> Result<(), Refusal> {
        match self {
            Self::Send { .. } | Self::Receive { .. } => terms.check_file(),
            Self::ReceiveNew { .. } => terms.check_new_file(),
            Self::List { .. } => Ok(()),
        }
    }
}

/// The files that the waiting commands will send, up to the first command that may change the meaning of names.
pub(super) fn upcoming<'a>(
    waiting: impl Iterator<Item = &'a Command>,
) -> impl Iterator<Item = &'a PathArgument> {
    let changes_nothing = |command: &Command| {
        matches!(
            command,
            Command::Noop
                | Command::Size(_)
                | Command::Mdtm(_)
                | Command::Mlst(_)
                | Command::Stat(_)
                | Command::Cksm { .. }
        )
    };
    waiting
        .map_while(move |command| match sent_file(command) {
            None if !changes_nothing(command) => None,
            path => Some(path),
        })
        .flatten()
}

fn sent_file(command: &Command) -> Option<&PathArgument> {
    match command {
        Command::Retr(path)
        | Command::Rdma(RdmaCommand::Retrieve(path))
        | Command::Eret { path, .. } => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_looked_ahead_for_until_names_may_change_their_meaning() {
        let upcoming = |lines: &[&str]| {
            let commands: Vec<Command> = lines
                .iter()
                .map(|line| Command::parse(line.as_bytes()).expect("a command"))
                .collect();
            let paths = upcoming(commands.iter());
            paths.map(|path| format!("{path:?}")).collect::<Vec<_>>()
        };
        let one = |line| upcoming(&[line]);
        assert_eq!(
            upcoming(&["RETR a", "SIZE x", "NOOP", "ERET P 5 7 b", "RETR c"]),
            [one("RETR a"), one("RETR b"), one("RETR c")].concat()
        );
        for change in ["CWD d", "STOR b", "DELE b", "RNTO b", "MLSD d", "TYPE A"] {
            assert_eq!(upcoming(&["RETR a", change, "RETR b"]), one("RETR a"));
        }
    }
}
