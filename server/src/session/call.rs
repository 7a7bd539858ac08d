//! The arguments that every command gets: the control channel and the state that several parts share.

use gridhaul_protocol::negotiated::Negotiated;
use gridhaul_protocol::reply::Reply;
use gridhaul_storage::StorageError;

use super::conduct::Conduct;
use super::context::Context;
use super::control::Control;
use super::end::End;
use super::replies;
use super::user::User;

/// A command of a client that has not logged in.
pub(super) struct LoginCall<'a> {
    pub(super) context: &'a Context,
    pub(super) control: &'a mut Control,
    pub(super) conduct: &'a mut Conduct,
}

/// A command of a client that has logged in.
pub(super) struct Call<'a> {
    pub(super) context: &'a mut Context,
    pub(super) control: &'a mut Control,
    pub(super) negotiated: &'a mut Negotiated,
    pub(super) user: &'a mut User,
}

impl LoginCall<'_> {
    /// Ends the session of a client that was refused too often.
    pub(super) fn check_failures(&self) -> Result<(), End> {
        let most = self.context.config().limits.login_attempts;
        self.conduct.check_failures(most)
    }

    /// Appends a reply to the output of the control channel.
    pub(super) fn send(&mut self, reply: &Reply) {
        self.context.send(self.control, reply);
    }
}

impl Call<'_> {
    /// The reply to a command that failed, whose reason the audit record gets.
    pub(super) fn fail(&mut self, error: &StorageError) -> Reply {
        self.context.failure = Some(error.into());
        replies::storage_error(error)
    }

    /// Appends a reply to the output of the control channel.
    pub(super) fn send(&mut self, reply: &Reply) {
        self.context.send(self.control, reply);
    }
}
