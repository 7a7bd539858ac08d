//! The sessions of a walk, and those that look at what the command names.
//!
//! A walk waits while files are copied, and servers end sessions that are idle for some minutes. So a session that has ended is replaced
//! by a new one, and what failed with a connection or a server is tried again, as files are.

use tokio::time::sleep;

use super::error::CopyError;
use super::job::Place;
use super::shared::Shared;
use super::worker::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::control::ControlError;
use crate::location::{Server, Url};
use crate::session::{Facts, Session};

/// A session that is replaced when it has ended.
pub(super) struct Renewed<'a> {
    shared: &'a Shared,
    server: Server,
    session: Option<Session>,
}

impl<'a> Renewed<'a> {
    /// Opens nothing yet.
    pub(super) fn new(shared: &'a Shared, server: &Server) -> Self {
        Self {
            shared,
            server: server.clone(),
            session: None,
        }
    }

    /// The session: the one before, if it has not ended.
    ///
    /// # Errors
    ///
    /// When another one is needed and cannot be opened.
    pub(super) async fn session(&mut self) -> Result<&mut Session, CopyError> {
        let mut kept = self.session.take();
        if let Some(session) = &mut kept
            && session.has_ended().await
        {
            kept = None;
        }
        let session = match kept {
            Some(session) => session,
            None => self.shared.session(&self.server).await?,
        };
        Ok(self.session.insert(session))
    }

    /// Runs a command about `place` that may be carried out twice. It is tried again after failures that pass, unless the server has
    /// never answered.
    ///
    /// # Errors
    ///
    /// Those of the last attempt.
    pub(super) async fn retried<T>(
        &mut self,
        place: &Place,
        command: impl AsyncFn(&mut Session) -> Result<T, CopyError>,
    ) -> Result<T, CopyError> {
        let mut left = self.shared.arguments.retry;
        let mut pause = FIRST_PAUSE;
        loop {
            let done = match self.session().await {
                Ok(session) => command(session).await,
                Err(error) => Err(error),
            };
            let error = match done {
                Err(error) if error.is_transient(false) => error,
                done => return done,
            };
            if !self.shared.has_answered(&self.server) {
                return Err(error);
            }
            if left == 0 || self.shared.gives_up().is_some() {
                self.shared.note(false);
                return Err(error);
            }
            let (words, seconds) = (place.words(), pause.as_secs());
            let words = format!("{words}: {error}; tried again in {seconds} s");
            self.shared.report.notes(&words);
            // The connections may be what has failed.
            self.session = None;
            self.shared.forget_idle([place, place]);
            sleep(pause).await;
            left -= 1;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// What the server says about `place`, which is at `url`; `None` if the server has no such entry, or no facts. `failed` says
    /// which end has failed.
    ///
    /// # Errors
    ///
    /// As [`Self::retried`].
    pub(super) async fn facts(
        &mut self,
        place: &Place,
        url: &Url,
        failed: fn(ControlError) -> CopyError,
    ) -> Result<Option<Facts>, CopyError> {
        let path = url.argument()?;
        let ask = async |session: &mut Session| session.facts(&path).await.map_err(failed);
        self.retried(place, ask).await
    }

    /// Whether the server answers.
    pub(super) fn is_usable(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_usable)
    }

    /// Gives the session back.
    pub(super) fn end(self) {
        if let Some(session) = self.session {
            self.shared.give_back(session);
        }
    }
}

/// As [`Renewed::facts`], with a session for this question.
pub(super) async fn facts_of(
    shared: &Shared,
    place: &Place,
    url: &Url,
    failed: fn(ControlError) -> CopyError,
) -> Result<Option<Facts>, CopyError> {
    let mut session = Renewed::new(shared, &url.server);
    let facts = session.facts(place, url, failed).await;
    session.end();
    facts
}
