//! What a command wants to have moved, and the plan that follows from it.

use gridhaul_protocol::command::{Checksum, Command, ListPath, RdmaCommand, Representation};
use gridhaul_protocol::negotiated::{Direction, NextTransfer, Refusal, Terms};
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{Placement, Plan, Task};
use jiff::Timestamp;

use super::listing::Form;
use super::{Session, User};
use crate::transfer_verb::TransferVerb;

/// What a command wants to have moved.
#[derive(Debug, Clone, Copy)]
pub(super) enum Motion<'a> {
    /// A file, or a part of it, to the client.
    Send {
        path: &'a PathArgument,
        offset: u64,
        length: Option<u64>,
    },
    /// A file from the client.
    Receive {
        path: &'a PathArgument,
        placement: Placement,
    },
    /// A file from the client, under a name that nothing has.
    ReceiveNew { path: Option<&'a PathArgument> },
    /// A listing to the client.
    List {
        path: Option<&'a PathArgument>,
        form: Form,
    },
}

impl<'a> Motion<'a> {
    /// The transfer that a command asks for, if it is a transfer command.
    pub(super) fn of(command: &'a Command) -> Option<(TransferVerb, Self)> {
        let list = |path: &'a Option<ListPath>, form| Self::List {
            path: path.as_ref().map(ListPath::path),
            form,
        };
        let whole = |path| Self::Send {
            path,
            offset: 0,
            length: None,
        };
        let receive = |path, placement| Self::Receive { path, placement };
        Some(match command {
            Command::Retr(path) => (TransferVerb::Retr, whole(path)),
            Command::Rdma(RdmaCommand::Retrieve(path)) => (TransferVerb::Rrtr, whole(path)),
            Command::Eret {
                offset,
                length,
                path,
            } => {
                let motion = Self::Send {
                    path,
                    offset: *offset,
                    length: Some(*length),
                };
                (TransferVerb::Eret, motion)
            }
            Command::Stor(path) => (TransferVerb::Stor, receive(path, Placement::Replace)),
            Command::Rdma(RdmaCommand::Store(path)) => {
                (TransferVerb::Rstr, receive(path, Placement::Replace))
            }
            Command::Stou(path) => {
                let path = path.as_ref();
                (TransferVerb::Stou, Self::ReceiveNew { path })
            }
            Command::Appe(path) => (TransferVerb::Appe, receive(path, Placement::Append)),
            Command::Esto { offset, path } => {
                (TransferVerb::Esto, receive(path, Placement::At(*offset)))
            }
            Command::List(path) => (TransferVerb::List, list(path, Form::Long)),
            Command::Nlst(path) => (TransferVerb::Nlst, list(path, Form::Names)),
            Command::Mlsd(path) => {
                let (path, form) = (path.as_ref(), Form::Facts);
                (TransferVerb::Mlsd, Self::List { path, form })
            }
            Command::Mlsr(path) => {
                let (path, form) = (path.as_ref(), Form::Tree);
                (TransferVerb::Mlsr, Self::List { path, form })
            }
            _ => return None,
        })
    }

    /// The files that the commands that wait will have sent, as far as it is certain what their names will mean
    /// by then.
    pub(super) fn upcoming(
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
        let sent = |command: &'a Command| match Motion::of(command) {
            Some((_, Self::Send { path, .. })) => Some(path),
            _ => None,
        };
        waiting
            .map_while(move |command| match sent(command) {
                None if !changes_nothing(command) => None,
                path => Some(path),
            })
            .flatten()
    }

    pub(super) fn direction(&self) -> Direction {
        match self {
            Self::Send { .. } | Self::List { .. } => Direction::Send,
            Self::Receive { .. } | Self::ReceiveNew { .. } => Direction::Receive,
        }
    }

    /// Whether it can be done under the terms that were negotiated.
    ///
    /// # Errors
    ///
    /// When a restart was asked for that cannot be.
    pub(super) fn check(&self, terms: &Terms) -> Result<(), Refusal> {
        match self {
            Self::Send { .. } | Self::Receive { .. } => terms.check_file(),
            Self::ReceiveNew { .. } => terms.check_new_file(),
            Self::List { .. } => Ok(()),
        }
    }
}

/// A transfer as a command describes it.
#[derive(Debug)]
pub(super) struct Order {
    /// The command.
    pub(super) verb: TransferVerb,
    /// The file or directory.
    pub(super) path: RemotePath,
    pub(super) plan: Plan,
    /// The client does not know the file's name, and is told it with the first reply.
    pub(super) tells_name: bool,
    /// What the stored file must be, and gets.
    pub(super) demands: Demands,
}

/// What a client wants of a stored file besides its bytes.
#[derive(Debug)]
pub(super) struct Demands {
    /// From `SCKS` and `SITE STORATTR`.
    pub(super) checksums: Vec<(ChecksumAlgorithm, Checksum)>,
    /// From `SITE STORATTR`.
    pub(super) modified: Option<Timestamp>,
}

impl Demands {
    /// Algorithms were known when they came.
    fn new(pending: &NextTransfer) -> Self {
        let announced = [&pending.expected, &pending.attributes.checksum];
        let checksums = announced
            .into_iter()
            .flatten()
            .filter_map(|(algorithm, checksum)| {
                Some((algorithm.as_str().parse().ok()?, checksum.clone()))
            });
        Self {
            checksums: checksums.collect(),
            modified: pending.attributes.modified,
        }
    }
}

impl Order {
    pub(super) fn receives(&self) -> bool {
        matches!(self.plan.task, Task::ReceiveFile { .. })
    }

    pub(super) fn lists(&self) -> bool {
        matches!(self.plan.task, Task::SendLines(_))
    }
}

impl Session {
    /// The transfer that a command asks for under the terms that were negotiated.
    pub(super) fn order(
        &self,
        user: &User,
        verb: TransferVerb,
        motion: &Motion<'_>,
        terms: Terms,
    ) -> Result<Order, StorageError> {
        let demands = Demands::new(&terms.pending);
        let NextTransfer {
            restart, promised, ..
        } = terms.pending;
        let (path, task) = match *motion {
            Motion::Send {
                path,
                offset,
                length,
            } => {
                let path = user.path(Some(path))?;
                let file = path.as_path().to_owned();
                (
                    path,
                    Task::SendFile {
                        path: file,
                        offset,
                        length,
                        restart,
                    },
                )
            }
            Motion::Receive { path, placement } => {
                let path = user.path(Some(path))?;
                let task = receive(&path, placement, restart, promised, terms.representation);
                (path, task)
            }
            Motion::ReceiveNew { path } => {
                let path = user.new_path(path)?;
                let placement = Placement::Replace;
                let task = receive(&path, placement, restart, promised, terms.representation);
                (path, task)
            }
            Motion::List { path: given, form } => {
                let path = user.path(given)?;
                let lines = self.lines(user, form, path.clone(), given);
                (path, Task::SendLines(lines))
            }
        };
        let mut handling = self.settings.config.handling.clone();
        for (algorithm, _) in &demands.checksums {
            if !handling.checksums.contains(algorithm) {
                handling.checksums.push(*algorithm);
            }
        }
        let settings = self.negotiated.settings();
        let plan = Plan {
            // Lines of listings end CRLF already.
            representation: match task {
                Task::SendLines(_) => Representation::Image,
                _ => terms.representation,
            },
            task,
            mode: terms.mode,
            parallelism: settings.parallelism,
            layout: settings.layout,
            handling,
        };
        Ok(Order {
            verb,
            path,
            plan,
            tells_name: matches!(motion, Motion::ReceiveNew { .. }),
            demands,
        })
    }
}

fn receive(
    path: &RemotePath,
    placement: Placement,
    restart: RangeSet,
    promised: Option<u64>,
    representation: Representation,
) -> Task {
    Task::ReceiveFile {
        path: path.as_path().to_owned(),
        placement,
        restart,
        // The lengths of converted text are not those of the file.
        promised: promised.filter(|_| representation == Representation::Image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_next_is_known_until_names_may_mean_something_else() {
        let upcoming = |lines: &[&str]| {
            let commands: Vec<Command> = lines
                .iter()
                .map(|line| Command::parse(line.as_bytes()).expect("a command"))
                .collect();
            let paths = Motion::upcoming(commands.iter());
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
