//! How a control server reaches a node.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::limits::{CONNECT, KEEPALIVE, KEEPALIVE_TIMEOUT};

/// A connection to a node that both ends have authenticated.
pub trait Dialled: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send + 'static> Dialled for C {}

/// Why a node cannot be reached; the text names it, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

type Dialling = Pin<Box<dyn Future<Output = Result<Box<dyn Dialled>, DialError>> + Send>>;

/// Makes connections to one node.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn() -> Dialling + Send + Sync>);

impl Dial {
    /// Calls `dial` for each connection.
    pub fn new<F, C>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, DialError>> + Send + 'static,
        C: Dialled,
    {
        Self(Arc::new(move || {
            let dialling = dial();
            Box::pin(async move {
                let connection = dialling.await?;
                Ok(Box::new(connection) as Box<dyn Dialled>)
            })
        }))
    }

    /// A channel that connects when it is used, and again when the connection is lost.
    pub(super) fn channel(&self) -> Channel {
        let dial = self.clone();
        // The address is in the closure; HTTP/2 wants one for its header `:authority`.
        Endpoint::from_static("http://node")
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(service_fn(move |_| {
                let dialling = (dial.0)();
                async move { dialling.await.map(TokioIo::new) }
            }))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}
