//! What a node and a control server say to each other: one request and one answer, each after its length.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// The protocol inside of TLS. Other versions get another name.
pub(super) const PROTOCOL: &[u8] = b"gridhaul-enrol/1";

/// The longest message. A request has an RSA key at most, an answer two certificates.
const LONGEST: usize = 16 * 1024;

/// From the node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request<'a> {
    /// The secret of the token.
    pub(super) secret: &'a [u8],
    /// PKCS #10, for the host of the token.
    pub(super) request: &'a [u8],
}

/// From the control server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// DER: the certificate of the node, and that of the authority.
    Issued(Vec<Vec<u8>>),
    /// The reason why there is none.
    Refused(String),
}

pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let message = Zeroizing::new(postcard::to_stdvec(message).map_err(io::Error::other)?);
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&message).await?;
    stream.flush().await
}

/// The bytes of a message, for [`decoded`].
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Zeroizing<Vec<u8>>> {
    let length = stream.read_u32().await?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
    let mut message = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) fn decoded<'a, T: Deserialize<'a>>(message: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(message).map_err(|_| io::Error::other("the message makes no sense"))
}

/// The answer in the bytes of a message.
pub(super) fn answer<T: DeserializeOwned>(message: &[u8]) -> io::Result<T> {
    decoded(message)
}
