//! What a node tells of itself when it is asked.

use std::time::{Instant, SystemTime};

use tokio::time::timeout;
use tonic::transport::Channel;

use super::dial::Dial;
use super::link::reason_of;
use crate::generated as message;
use crate::generated::data_node_client::DataNodeClient;
use crate::limits::{MESSAGE_BYTES, SILENCE};
use crate::version::{MAJOR, MINOR};

/// The longest text of a node that is kept, in characters.
const TEXT: usize = 256;

/// The length of `instance`, in bytes.
const INSTANCE: usize = 16;

/// What a node tells of itself. Texts are as the node sent them, cut after 256 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDescription {
    /// The name of its machine.
    pub host: String,
    /// The version of its program.
    pub program: String,
    /// Chosen at random when its program started: two names of one node have the same value. Empty if the node has sent no
    /// such value.
    pub instance: Vec<u8>,
    /// How far its clock is ahead of that of this machine, in milliseconds.
    pub clock_ahead: i64,
    /// It finishes its transfers, and wants no new ones.
    pub draining: bool,
}

/// Why a node does not describe itself, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DescribeError(String);

/// Connects to a node, and asks what it is.
///
/// # Errors
///
/// When the node cannot be reached, does not answer, or speaks another version of the protocol.
pub async fn describe_node(dial: &Dial) -> Result<NodeDescription, DescribeError> {
    let mut client = DataNodeClient::new(dial.channel()).max_decoding_message_size(MESSAGE_BYTES);
    let described = describe(&mut client).await;
    described.map(NodeDescription::from).map_err(DescribeError)
}

impl From<Described> for NodeDescription {
    fn from(Described { sent, clock_ahead }: Described) -> Self {
        Self {
            host: cut(&sent.host),
            program: cut(&sent.program),
            instance: match sent.instance.len() {
                INSTANCE => sent.instance,
                _ => Vec::new(),
            },
            clock_ahead,
            draining: sent.load.is_some_and(|load| load.draining),
        }
    }
}

/// A reply, and how far the clock of the node is ahead of that of this machine, in milliseconds.
pub(super) struct Described {
    pub(super) sent: message::Description,
    pub(super) clock_ahead: i64,
}

/// Asks a node what it is. The error is the reason why it cannot be used.
pub(super) async fn describe(client: &mut DataNodeClient<Channel>) -> Result<Described, String> {
    let request = message::DescribeRequest {
        major: MAJOR,
        minor: MINOR,
    };
    let began = Instant::now();
    let sent = match timeout(SILENCE, client.describe(request)).await {
        Ok(Ok(sent)) => sent.into_inner(),
        Ok(Err(status)) => return Err(reason_of(&status).to_string()),
        Err(_) => return Err(silent()),
    };
    if sent.major != MAJOR {
        return Err(format!(
            "it speaks version {} of the protocol between nodes, and this server version {MAJOR}: install the same version of \
             gridhaul on both",
            sent.major
        ));
    }
    let clock_ahead = (sent.now / 1000).saturating_sub(middle_since(began));
    Ok(Described { sent, clock_ahead })
}

/// Why a node that sends no answer cannot be used.
pub(super) fn silent() -> String {
    format!("it has not answered for {} s", SILENCE.as_secs())
}

/// The time in the middle of a call that ends now, in milliseconds since 1970: about when the node has answered.
fn middle_since(began: Instant) -> i64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let middle = now.saturating_sub(began.elapsed() / 2);
    i64::try_from(middle.as_millis()).unwrap_or(i64::MAX)
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT).collect()
}
