//! Certificates of the peers of open connections between control servers and data nodes.
//!
//! A connection lasts as long as both programs run. Its peer is therefore validated again from time to time, so that a host whose
//! certificate is revoked, or that is not listed any more, is not served for months.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use gridhaul_security::tls::PeerFault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// The time between two checks.
const EVERY: Duration = Duration::from_secs(10);

/// A peer whose certificate has only ended keeps its connection for so long while it has transfers: the peer
/// was authenticated before, and a late renewal should not end transfers.
const AFTER_END: Duration = Duration::from_secs(3600);

/// Waits until a peer is not accepted any more. One whose certificate has ended is accepted while it is not idle, for an hour.
pub(crate) async fn refusal<F: Future<Output = Result<(), PeerFault>>>(
    check: impl Fn() -> F,
    is_idle: impl Fn() -> bool,
) -> PeerFault {
    let mut ended = None;
    loop {
        sleep(EVERY).await;
        match check().await {
            Ok(()) => ended = None,
            Err(fault) if fault.is_end() => {
                let since: &mut Instant = ended.get_or_insert_with(Instant::now);
                if is_idle() || since.elapsed() >= AFTER_END {
                    return fault;
                }
            }
            Err(fault) => return fault,
        }
    }
}

/// A connection that ends with an error when its peer is refused.
#[derive(Debug)]
pub(crate) struct Rechecked<S> {
    stream: S,
    refused: oneshot::Receiver<PeerFault>,
}

impl<S> Rechecked<S> {
    /// Ends when a fault is sent; not when the sender is dropped.
    pub(crate) fn new(stream: S) -> (Self, oneshot::Sender<PeerFault>) {
        let (refuse, refused) = oneshot::channel();
        (Self { stream, refused }, refuse)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rechecked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.refused.is_terminated()
            && let Poll::Ready(Ok(fault)) = Pin::new(&mut self.refused).poll(context)
        {
            let reason = format!("the peer {fault}");
            return Poll::Ready(Err(io::Error::other(reason)));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rechecked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;
    use std::time::SystemTime;

    use gridhaul_security::credential::Credential;
    use gridhaul_security::tls::RefusedChain;
    use gridhaul_security::trust::ChainError;
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(24 * 3600);

    fn ended() -> PeerFault {
        let pem = [
            &include_bytes!("security/samples/host.pem")[..],
            include_bytes!("security/samples/host.key"),
        ];
        let credential = Credential::from_pem(&pem.concat()).expect("a credential");
        PeerFault::Chain(Box::new(RefusedChain {
            reason: ChainError::Expired {
                certificate: credential.leaf().subject().clone(),
                until: SystemTime::UNIX_EPOCH,
            },
            claimed: None,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_refused_is_noticed_at_the_next_check() {
        let checks = Cell::new(0);
        let check = || {
            checks.set(checks.get() + 1);
            ready(match checks.get() {
                3 => Err(PeerFault::NoCertificate),
                _ => Ok(()),
            })
        };
        let began = Instant::now();
        let fault = refusal(check, || false).await;
        assert_eq!(fault, PeerFault::NoCertificate);
        assert_eq!(began.elapsed(), 3 * EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_certificate_waits_for_transfers_but_not_for_ever() {
        let began = Instant::now();
        let is_idle = || began.elapsed() >= Duration::from_secs(60);
        assert_eq!(refusal(|| ready(Err(ended())), is_idle).await, ended());
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        let began = Instant::now();
        assert_eq!(refusal(|| ready(Err(ended())), || false).await, ended());
        assert_eq!(began.elapsed(), EVERY + AFTER_END);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_certificate_keeps_its_connection() {
        let began = Instant::now();
        let is_renewed = || began.elapsed() >= AFTER_END / 2;
        let check = || {
            ready(match is_renewed() {
                true => Ok(()),
                false => Err(ended()),
            })
        };
        let refused = timeout(LONG, refusal(check, || false)).await;
        assert!(refused.is_err(), "{refused:?}");
    }

    #[tokio::test]
    async fn a_refused_peer_ends_its_connection_with_the_reason() {
        let (here, _there) = duplex(64);
        let (mut here, refuse) = Rechecked::new(here);
        let read = tokio::spawn(async move { here.read_u8().await });
        tokio::task::yield_now().await;
        refuse.send(PeerFault::NoCertificate).expect("it is open");
        let error = read.await.expect("no panic").expect_err("refused");
        assert!(error.to_string().contains("no certificate"), "{error}");
    }
}
