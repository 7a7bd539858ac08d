//! A stream that gives up when its reader takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The time in which a client must take a whole response.
const WRITE_TIME: Duration = Duration::from_secs(20);

/// A stream whose writes fail when the response is not taken in time. A client that takes a byte now and then does not
/// get more time: the deadline holds until hyper has written everything and flushes.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            deadline: Box::pin(tokio::time::sleep(WRITE_TIME)),
            is_waiting: false,
        }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + WRITE_TIME);
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.wait(context),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.wait(context).map_ok(drop),
            Poll::Ready(flushed) => {
                self.is_waiting = false;
                Poll::Ready(flushed)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.wait(context).map_ok(drop),
            ready => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_little_now_and_then_gets_no_more_time() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours);
        let begun = Instant::now();
        let reader = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(3)).await;
                if theirs.read_u8().await.is_err() {
                    return;
                }
            }
        });
        let error = ours.write_all(&[0; 1000]).await.expect_err("too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() <= WRITE_TIME + Duration::from_secs(3));
        drop(ours);
        reader.await.expect("ended");
    }

    #[tokio::test(start_paused = true)]
    async fn each_response_has_its_own_time() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = Patient::new(ours);
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.expect("read");
            all.len()
        });
        for _ in 0..3 {
            ours.write_all(&[0; 64]).await.expect("taken");
            ours.flush().await.expect("taken");
            tokio::time::sleep(2 * WRITE_TIME).await;
        }
        drop(ours);
        assert_eq!(reader.await.expect("ended"), 192);
    }
}
