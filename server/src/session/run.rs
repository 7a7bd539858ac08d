//! The life of a session: greeting, commands, and the end.

use std::convert::Infallible;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::control::{Control, Request, Stream};
use super::end::End;
use super::parts::Session;
use super::security::HANDSHAKE_ABORTED;
use crate::handover::Handed;
use crate::status::Activity;
use crate::telemetry::Event;

/// Replies are collected while more commands wait, up to this number of bytes.
const UNSENT_BYTES: usize = 16 * 1024;

/// A session that an administrator ends has this time to finish its command, and to send the reply of a transfer.
const LAST_COMMAND: Duration = Duration::from_secs(5);

impl Session {
    /// Serves the client until the session ends.
    pub(crate) async fn run(mut self, stream: impl Into<Stream>) {
        self.control = match self.context.shared.link.get() {
            Some(_) => Control::one_by_one(stream),
            None => Control::new(stream),
        };
        self.run_from_greeting().await;
    }

    /// Serves a client that returned with `REIN`; the greeting is the reply to that.
    pub(crate) async fn run_again(mut self, stream: TcpStream, input: Vec<u8>) {
        self.control = Control::one_by_one(stream).with_input(input);
        self.run_from_greeting().await;
    }

    /// Logs in the client that the front process hands over, and serves it until the session ends.
    pub(crate) async fn run_handed(mut self, stream: TcpStream, handed: Handed) {
        let expelled = expelled(self.context.live.ended());
        let end = tokio::select! {
            Err(end) = self.take_over_and_serve(stream, handed) => end,
            () = expelled => End::Administrator,
        };
        self.finish(end).await;
    }

    async fn take_over_and_serve(
        &mut self,
        stream: TcpStream,
        handed: Handed,
    ) -> Result<Infallible, End> {
        let deadline = self.context.login_deadline();
        let taken = timeout_at(deadline, self.take_over(stream, handed)).await;
        taken.unwrap_or(Err(End::Undecided))?;
        self.serve().await
    }

    async fn run_from_greeting(mut self) {
        let displaced = self.conduct.displaced();
        let expelled = expelled(self.context.live.ended());
        let end = tokio::select! {
            Err(end) = self.greet_and_serve() => end,
            () = displaced => End::Displaced,
            () = expelled => End::Administrator,
        };
        self.finish(end).await;
    }

    async fn greet_and_serve(&mut self) -> Result<Infallible, End> {
        let greeting = self.context.greeting();
        self.send(&greeting);
        self.serve().await
    }

    async fn serve(&mut self) -> Result<Infallible, End> {
        loop {
            let request = self.next_request().await?;
            // The state of a command is on the heap while it is carried out, so that idle sessions are small.
            self.context.live.note(Activity::Command);
            self.execute_in_time(request).await?;
            self.context.live.note(Activity::Idle);
            if self.control.unsent_bytes() > UNSENT_BYTES {
                self.control.flush().await?;
            }
        }
    }

    /// Before login, the login timeout covers commands as well: the process that decides may hang.
    async fn execute_in_time(&mut self, request: Request) -> Result<(), End> {
        if self.login.is_done() {
            return Box::pin(self.execute(request)).await;
        }
        let deadline = self.context.login_deadline();
        let executed = timeout_at(deadline, Box::pin(self.execute(request))).await;
        executed.unwrap_or(Err(End::Undecided))
    }

    /// Waits for the next command, and sends the replies to those before it.
    async fn next_request(&mut self) -> Result<Request, End> {
        loop {
            if self.context.live.is_ended() {
                return Err(End::Administrator);
            }
            if let Some(request) = self.control.take() {
                return Ok(request);
            }
            // Commands that came together get their replies together.
            if self.control.unsent_bytes() < UNSENT_BYTES && self.control.look_on() {
                continue;
            }
            self.control.flush().await?;
            if self.control.is_ended() {
                return Err(End::ClosedByClient);
            }
            let deadline = if self.login.is_done() {
                Instant::now() + self.context.config().limits.idle_timeout
            } else {
                self.context.login_deadline()
            };
            tokio::select! {
                received = self.control.receive() => received?,
                () = self.context.phase.ends_idle() => return Err(self.context.end_of_phase()),
                () = self.context.live.ended() => return Err(End::Administrator),
                () = tokio::time::sleep_until(deadline) => return Err(End::Idle),
            }
        }
    }

    /// Why the session ends, for the log. A handshake that the client aborted is a failed authentication.
    fn closing_reason(&self, end: &End) -> String {
        let is_clients = matches!(end, End::ClosedByClient | End::Idle | End::Network(_));
        if !is_clients || !self.security.is_in_handshake(self.conduct.has_failures()) {
            return end.to_string();
        }
        let reason = format!("{HANDSHAKE_ABORTED}: {end}");
        self.context.publish(&Event::AuthenticationFailed {
            session: self.context.id,
            peer: self.context.peer,
            mechanism: "GSSAPI",
            reason: &reason,
        });
        reason
    }

    async fn finish(mut self, end: End) {
        let end = match end {
            End::HandedOver(arrival) => match self.hand_over(arrival).await {
                Ok(()) => return,
                Err(error) => error,
            },
            // A client closes the connection after the reply to a transfer that the administrator has ended.
            End::ClosedByClient | End::Network(_) if self.context.live.is_ended() => {
                End::Administrator
            }
            end => end,
        };
        if !self.login.is_done() {
            self.conduct.penalize_end(&end);
        }
        match (end.reply(), &end) {
            (Some(reply), End::Broken(_)) => self.control.reply_in_clear(&reply),
            (Some(reply), _) => self.send(&reply),
            (None, _) => {}
        }
        if let Some(user) = self.login.user() {
            user.node.release();
        }
        if matches!(end, End::Returned) {
            self.give_back().await;
            return;
        }
        let reason = self.closing_reason(&end);
        self.context.publish(&Event::SessionClosed {
            session: self.context.id,
            reason: &reason,
        });
        let control = self.take_control();
        if matches!(end, End::Displaced) {
            // The client that gets the place must not wait for this one to read.
            control.close_at_once().await;
        } else {
            control.close().await;
        }
    }
}

/// Completes some time after an administrator has ended the session.
async fn expelled(ended: impl Future<Output = ()>) {
    ended.await;
    tokio::time::sleep(LAST_COMMAND).await;
}
