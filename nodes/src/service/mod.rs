//! The side of the node: a [`DataNode`] that control servers use over gRPC.
//!
//! ```text
//!   Service      connections, Describe, WatchLoad
//!     └─> session      one stream of requests: reads them, and keeps the order where it matters
//!           ├─> calls        storage and checksums, each on a blocking thread (threads)
//!           ├─> transfers    a transfer, its events and its state
//!           └─> replies      what goes back, and how long it may wait
//! ```

mod calls;
mod connection;
mod replies;
mod session;
mod shared;
mod threads;
mod transfers;

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::Service as _;

use connection::LocalAddress;
pub use connection::{Arrival, Connection};
use replies::Replies;
use shared::Shared;
pub use shared::{
    Card, MachineSample, OwnStack, ReachRule, RestoreDriver, ServiceConfig, blocking_threads,
};

use crate::generated as message;
use crate::generated::data_node_server::{DataNode as Calls, DataNodeServer};
use crate::limits::{KEEPALIVE, KEEPALIVE_TIMEOUT, MESSAGE_BYTES, SESSIONS};
use crate::told::Traffic;
use crate::version::{MAJOR, MINOR};
use crate::wire;

/// A node that control servers use.
pub struct Service {
    shared: Arc<Shared>,
    draining: watch::Sender<bool>,
    health: HealthServer<HealthService>,
    reporter: HealthReporter,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("config", &self.shared.config)
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

impl Service {
    /// A node that serves `config`.
    pub fn new(config: ServiceConfig) -> Self {
        let (sender, draining) = watch::channel(false);
        let reporter = HealthReporter::new();
        let health = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
        Self {
            shared: Shared::new(config, draining),
            draining: sender,
            health,
            reporter,
        }
    }

    /// From now on the node tells control servers that it wants no new transfers.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        self.reporter
            .set_service_status("", ServingStatus::NotServing)
            .await;
    }

    /// Waits until no transfer runs, of any control server.
    pub async fn no_transfer(&self) {
        /// Ends of transfers are not announced.
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        while self.has_transfers() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether a transfer runs, of any control server.
    pub fn has_transfers(&self) -> bool {
        self.shared.transfers() > 0
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.shared.sessions()
    }

    /// The bytes that the transfers of all control servers have moved until now.
    pub fn transferred(&self) -> Traffic {
        self.shared.transferred()
    }

    /// Control servers learn this from now on.
    pub fn set_machine(&self, sample: MachineSample) {
        self.shared.set_machine(sample);
    }

    /// Serves a connection whose ends have authenticated each other, until it ends. When this is dropped, all sessions of the
    /// connection end.
    ///
    /// # Errors
    ///
    /// When the other end breaks the rules of HTTP/2, or does not answer any more.
    pub async fn serve(&self, arrival: Arrival<impl Connection>) -> Result<(), ServiceError> {
        let calls = DataNodeServer::new(Handler(Arc::clone(&self.shared)))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let (health, here) = (self.health.clone(), LocalAddress(arrival.local));
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(here);
            let (mut calls, mut health) = (calls.clone(), health.clone());
            async move {
                if request.uri().path().starts_with(HEALTH) {
                    health.call(request).await
                } else {
                    calls.call(request).await
                }
            }
        });
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_concurrent_streams(SESSIONS)
            // A session that does not read must not use up the window of the others.
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(TokioIo::new(arrival.connection), service)
            .await
            .map_err(ServiceError)
    }
}

/// The requests of a session that may be under way, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same of all sessions of a control server.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The paths of gRPC's health service.
const HEALTH: &str = "/grpc.health.v1.Health/";

/// A connection of a control server has failed.
#[derive(Debug, thiserror::Error)]
#[error("the connection of a control server: {0}")]
pub struct ServiceError(#[source] hyper::Error);

struct Handler(Arc<Shared>);

#[tonic::async_trait]
impl Calls for Handler {
    async fn describe(
        &self,
        request: Request<message::DescribeRequest>,
    ) -> Result<Response<message::Description>, Status> {
        let config = &self.0.config;
        let here = here(&request)?.ip();
        let other = request.into_inner();
        if other.major != MAJOR {
            return Err(Status::failed_precondition(format!(
                "{} speaks version {MAJOR} of the protocol between nodes ({}), and the control server version {}: \
                 install the same version of gridhaul on both",
                config.host, config.program, other.major
            )));
        }
        Ok(Response::new(message::Description {
            major: MAJOR,
            minor: MINOR,
            program: config.program.clone(),
            instance: self.0.instance().to_vec(),
            host: config.host.clone(),
            now: micros(SystemTime::now()),
            stack: config.stack.clone(),
            drivers: config.drivers.clone(),
            load: Some(self.0.load(here)),
            data_addresses: self
                .0
                .announced_addresses(here)
                .into_iter()
                .map(wire::ip)
                .collect(),
        }))
    }

    type WatchLoadStream = Pin<Box<dyn Stream<Item = Result<message::Load, Status>> + Send>>;

    async fn watch_load(
        &self,
        request: Request<message::WatchLoadRequest>,
    ) -> Result<Response<Self::WatchLoadStream>, Status> {
        /// How often the load is sent; that the node drains is sent at once.
        const EVERY: Duration = Duration::from_millis(500);
        let here = here(&request)?.ip();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut draining = shared.draining();
            while sender.send(Ok(shared.load(here))).await.is_ok() {
                let changed = tokio::time::timeout(EVERY, draining.changed()).await;
                if let Ok(Err(_)) = changed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    type SessionStream = Replies;

    async fn session(
        &self,
        request: Request<Streaming<message::SessionRequest>>,
    ) -> Result<Response<Replies>, Status> {
        let here = here(&request)?;
        let replies = session::begin(Arc::clone(&self.0), here, request.into_inner()).await?;
        Ok(Response::new(replies))
    }
}

/// The address at which the control server has reached the node.
fn here<T>(request: &Request<T>) -> Result<SocketAddr, Status> {
    let here = request.extensions().get::<LocalAddress>();
    here.map(|here| here.0)
        .ok_or_else(|| Status::internal("the connection has no address"))
}

fn micros(time: SystemTime) -> i64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
