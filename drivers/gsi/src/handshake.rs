//! Handshakes over a channel, record by record.

use gridhaul_security::context::{Context, Step};
use gridhaul_stack::{Body, Channel, ChannelError, Operation};

use crate::engine::Engine;
use crate::record::{self, protocol};

/// The most records of a handshake: enough for a hello retry and chains of long certificates.
const MAX_RECORDS: usize = 128;

/// Whether the authenticated peer is accepted.
pub(crate) type Verdict = Result<(), ChannelError>;

/// Makes the TLS handshake on a channel.
///
/// # Errors
///
/// When the peer does not speak TLS, or the handshake fails; the peer gets an alert. When `check_peer` refuses the peer; the
/// connection is then reset before the handshake completes, so that the peer does not see an empty stream.
pub(crate) fn connect<E: Engine>(
    channel: &mut dyn Channel,
    engine: &mut E,
    driver: &'static str,
    check_peer: impl Fn(&E) -> Verdict,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut record = Vec::new();
    let mut output = Vec::new();
    for _ in 0..MAX_RECORDS {
        if let Err(reason) = engine.advance(&record, &mut output) {
            send_alert(channel, &output, operation);
            return Err(protocol(driver, reason));
        }
        let is_done = !engine.is_handshaking();
        if is_done {
            // Before our last message: without it the peer's handshake does not complete.
            check_peer(engine).inspect_err(|_| channel.abort())?;
        }
        send(channel, &mut output, operation)?;
        if is_done {
            return Ok(());
        }
        record::receive(channel, driver, &mut record, operation)?;
    }
    Err(protocol(driver, TOO_MANY))
}

/// Authenticates both ends of a channel, which then carries cleartext (`PROT C`).
///
/// # Errors
///
/// As [`connect`].
pub(crate) fn authenticate(
    channel: &mut dyn Channel,
    context: &mut Context,
    is_first: bool,
    driver: &'static str,
    check_peer: impl Fn(&Context) -> Verdict,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut token = Vec::new();
    for round in 0..MAX_RECORDS {
        if round > 0 || !is_first {
            record::receive(channel, driver, &mut token, operation)?;
        }
        let mut alert = Vec::new();
        let step = context.step(&token, &mut alert).map_err(|error| {
            send_alert(channel, &alert, operation);
            protocol(driver, error.to_string())
        })?;
        if context.peer().is_some() {
            check_peer(context).inspect_err(|_| channel.abort())?;
        }
        match step {
            Step::Continue(mut output) => send(channel, &mut output, operation)?,
            Step::Done(mut output) => return send(channel, &mut output, operation),
        }
    }
    Err(protocol(driver, TOO_MANY))
}

const TOO_MANY: &str = "the peer's handshake has too many records";

/// Sends the output of a handshake step, if any.
fn send(
    channel: &mut dyn Channel,
    output: &mut Vec<u8>,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    if !output.is_empty() {
        channel.send(&[], Body::Memory(output), operation)?;
        output.clear();
    }
    Ok(())
}

/// Sends the alert of a failed handshake. Ignores errors, because the handshake has failed anyway.
fn send_alert(channel: &mut dyn Channel, alert: &[u8], operation: &Operation<'_>) {
    if !alert.is_empty() {
        let _ = channel.send(&[], Body::Memory(alert), operation);
    }
}
