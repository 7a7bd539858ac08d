//! What is said on control channels, for programs that show it.

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;

use super::Control;
use crate::location::Server;

/// A part of the dialogue with a server, as it is inside the protection of the channel.
#[derive(Debug, Clone, Copy)]
pub enum Spoken<'a> {
    /// This machine sends a command. Its `Display` hides passwords, tokens and credentials.
    Command(&'a Command),
    /// The server has replied.
    Reply(&'a Reply),
}

/// Sees the commands that a server is sent, and its replies, from its greeting on.
pub type DialogueObserver = fn(&Server, Spoken<'_>);

impl Control {
    /// Has the dialogue observed. It begins with the greeting, which has come already.
    pub(crate) fn observe(&mut self, server: &Server, observer: DialogueObserver) {
        observer(server, Spoken::Reply(&self.greeting));
        self.observer = Some((server.clone(), observer));
    }

    pub(super) fn tell(&self, spoken: Spoken<'_>) {
        if let Some((server, observer)) = &self.observer {
            observer(server, spoken);
        }
    }
}
