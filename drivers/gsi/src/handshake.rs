//! Handshakes over a channel, record by record.

use gridhaul_security::context::{Context, Step};
use gridhaul_stack::{Body, Channel, ChannelError, Operation};

use crate::channel::Engine;
use crate::record::{self, protocol};

/// The longest handshake: a hello that is asked for again, and chains of long certificates.
const MAX_RECORDS: usize = 128;

/// Whether the peer of a finished handshake is let in.
pub(crate) type Verdict = Result<(), ChannelError>;

/// Makes a TLS connection of a channel.
///
/// # Errors
///
/// When the peer does not speak TLS, or does not agree with us; it is told why by an alert. When `judge`
/// is against the peer; then it notices that the connection is thrown away, before it could take it
/// for an empty stream.
pub(crate) fn connect<E: Engine>(
    channel: &mut dyn Channel,
    engine: &mut E,
    driver: &'static str,
    judge: impl Fn(&E) -> Verdict,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut record = Vec::new();
    let mut output = Vec::new();
    for _ in 0..MAX_RECORDS {
        if let Err(reason) = engine.advance(&record, &mut output) {
            tell(channel, &output, operation);
            return Err(protocol(driver, reason));
        }
        let is_done = !engine.is_handshaking();
        if is_done {
            // Before our last words: without them the peer has no connection.
            judge(engine).inspect_err(|_| channel.abort())?;
        }
        send(channel, &mut output, operation)?;
        if is_done {
            return Ok(());
        }
        record::receive(channel, driver, &mut record, operation)?;
    }
    Err(protocol(driver, TOO_MANY))
}

/// Lets both ends of a channel prove who they are, after which it carries clear data (`PROT C`).
///
/// # Errors
///
/// As [`connect`].
pub(crate) fn authenticate(
    channel: &mut dyn Channel,
    context: &mut Context,
    is_first: bool,
    driver: &'static str,
    judge: impl Fn(&Context) -> Verdict,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut token = Vec::new();
    for turn in 0..MAX_RECORDS {
        if turn > 0 || !is_first {
            record::receive(channel, driver, &mut token, operation)?;
        }
        let mut alert = Vec::new();
        let step = context.step(&token, &mut alert).map_err(|error| {
            tell(channel, &alert, operation);
            protocol(driver, error.to_string())
        })?;
        if context.peer().is_some() {
            judge(context).inspect_err(|_| channel.abort())?;
        }
        match step {
            Step::Continue(mut output) => send(channel, &mut output, operation)?,
            Step::Done(mut output) => return send(channel, &mut output, operation),
        }
    }
    Err(protocol(driver, TOO_MANY))
}

const TOO_MANY: &str = "the peer's handshake does not come to an end";

/// Sends what a handshake has to say, if anything.
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

/// Sends the alert of a handshake that failed; the failure is what counts.
fn tell(channel: &mut dyn Channel, alert: &[u8], operation: &Operation<'_>) {
    if !alert.is_empty() {
        let _ = channel.send(&[], Body::Memory(alert), operation);
    }
}
