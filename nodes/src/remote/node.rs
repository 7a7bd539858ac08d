//! A node on another machine.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Registry, StackError};
use gridhaul_transfer::{AttachError, DataNode, NodeAccount, NodeLoad, NodeSession, WorkerLoad};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tracing::{info, warn};

use super::addresses::Listening;
use super::describe::{Described, describe, silent};
use super::dial::Dial;
use super::link::{Link, reason_of};
use super::session::RemoteSession;
use crate::cluster::{MemberState, StateHandle};
use crate::generated::data_node_client::DataNodeClient;
use crate::generated::{self as message, session_reply::Body, session_request};
use crate::instances::Instances;
use crate::limits::{ATTACH, LOAD_EVERY, MESSAGE_BYTES, REQUESTS, SILENCE, TOLD_BYTES};
use crate::load;
use crate::sync::lock;
use crate::told::{MachineLoad, NodeFacts, text};
use crate::version::{MAJOR, MINOR};
use crate::wire;

/// How a node is reached and used.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// The name of the node for messages, as the administrator writes it: `HOST:PORT`.
    pub name: String,
    /// Makes connections to it.
    pub dial: Dial,
    /// Runs what waits for the network.
    pub runtime: Handle,
    /// The root of the control server: sessions with this root get the node's own one.
    pub root: PathBuf,
    /// Whether the node can be used; the connection to it keeps this up to date.
    pub state: StateHandle,
    /// The nodes behind all names of the list.
    pub instances: Instances,
    /// The drivers of the control server, which checks stacks before the node sees them.
    pub registry: Registry,
}

/// A node on another machine. It is watched, and connected to again when the connection is lost.
pub struct RemoteNode {
    config: RemoteConfig,
    client: DataNodeClient<Channel>,
    load: Arc<Mutex<NodeLoad>>,
    /// The streams of sessions.
    streams: Arc<AtomicU64>,
    watcher: AbortHandle,
    /// Changes when the node is found to be lost: its sessions end.
    losses: watch::Sender<u64>,
    listening: Listening,
}

impl RemoteNode {
    /// A node that is connected to from now on.
    pub fn new(config: RemoteConfig) -> Self {
        let entered = config.runtime.enter();
        let client = DataNodeClient::new(config.dial.channel())
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let load = Arc::new(Mutex::new(idle()));
        let streams = Arc::new(AtomicU64::new(0));
        let losses = watch::Sender::new(0);
        let watcher = Watcher {
            name: config.name.clone(),
            state: config.state.clone(),
            instances: config.instances.clone(),
            losses: losses.clone(),
            load: Arc::clone(&load),
            streams: Arc::clone(&streams),
        };
        let short = client.clone().max_decoding_message_size(TOLD_BYTES);
        let watcher = config.runtime.spawn(watcher.watch(short)).abort_handle();
        drop(entered);
        Self {
            config,
            client,
            load,
            streams,
            watcher,
            losses,
            listening: Listening::default(),
        }
    }

    /// Whether it can be used.
    pub fn state(&self) -> MemberState {
        self.config.state.get()
    }
}

impl Drop for RemoteNode {
    fn drop(&mut self) {
        self.watcher.abort();
        self.config.state.unclaim();
    }
}

impl DataNode for RemoteNode {
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError> {
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let name: Arc<str> = self.config.name.as_str().into();
        let link = Link::new(name, requests);
        let (open, closed) = oneshot::channel();
        let attach = wire::attach(account, &self.config.root);
        let (call, replies) = link.call(session_request::Body::Attach(attach));
        let (client, held) = (self.client.clone(), Arc::clone(&link));
        let (state, lost) = (self.config.state.clone(), self.losses.subscribe());
        let counted = Counted::new(&self.streams);
        self.config.runtime.spawn(async move {
            hold(client, (held, state), outgoing, (closed, lost)).await;
            drop(counted);
        });
        let reply = replies.recv_timeout(ATTACH);
        link.forget(call);
        let home = match reply {
            Ok(Body::Attached(attached)) => wire::to_path(&attached.home).ok(),
            Ok(Body::Failure(failure)) => {
                return Err(failure.restore().unwrap_or_else(|error: wire::WireError| {
                    AttachError::Account(format!("data node {}: {error}", self.config.name))
                }));
            }
            Ok(_) => None,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(AttachError::Account(link.lost().to_string()));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(AttachError::Account(format!(
                    "the data node {} did not open the files within {} s",
                    self.config.name,
                    ATTACH.as_secs()
                )));
            }
        };
        let home = home.ok_or_else(|| {
            AttachError::Account(format!(
                "the data node {} sent a wrong reply",
                self.config.name
            ))
        })?;
        Ok(Arc::new(RemoteSession {
            link,
            home,
            runtime: self.config.runtime.clone(),
            listening: Arc::clone(&self.listening),
            open: Arc::new(open),
        }))
    }

    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError> {
        self.config.registry.build(stack).map(drop)
    }

    fn listens_at(&self, address: SocketAddr) -> bool {
        lock(&self.listening).has(address)
    }

    fn load(&self) -> NodeLoad {
        *lock(&self.load)
    }
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNode")
            .field("name", &self.config.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A stream that counts.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(streams: &Arc<AtomicU64>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a stream ends that this machine ends.
const CLOSED: &str = "the session has ended";

/// Why the streams of a lost node end.
const LOST: &str = "it does not answer any more";

/// Holds the stream of a session until the session is dropped or the stream ends.
async fn hold(
    mut client: DataNodeClient<Channel>,
    (link, state): (Arc<Link>, StateHandle),
    outgoing: mpsc::Receiver<message::SessionRequest>,
    (mut closed, mut lost): (oneshot::Receiver<()>, watch::Receiver<u64>),
) {
    let opening = client.session(ReceiverStream::new(outgoing));
    let opened = tokio::select! {
        opened = opening => opened,
        _ = &mut closed => return link.end(CLOSED.into()),
        _ = lost.changed() => return link.end(LOST.into()),
    };
    let received = async {
        match opened {
            Ok(replies) => link.receive(replies.into_inner()).await,
            Err(status) => reason_of(&status),
        }
    };
    tokio::select! {
        reason = received => {
            // Before the calls end, so that the cluster does not try them here again. A node that answers has lost this session
            // only; those of others stay.
            if !answers(&mut client).await {
                state.set(MemberState::Down {
                    since: SystemTime::now(),
                    reason: text(&reason),
                });
            }
            link.end(reason);
        }
        _ = closed => link.end(CLOSED.into()),
        _ = lost.changed() => link.end(LOST.into()),
    }
}

/// Whether a node answers a short question at once.
async fn answers(client: &mut DataNodeClient<Channel>) -> bool {
    /// The calls of the session wait meanwhile.
    const LIMIT: Duration = Duration::from_secs(2);
    let request = message::DescribeRequest {
        major: MAJOR,
        minor: MINOR,
    };
    let answer = timeout(LIMIT, client.describe(request)).await;
    matches!(answer, Ok(Ok(_)))
}

/// Follows the load of a node, and whether it answers.
struct Watcher {
    name: String,
    state: StateHandle,
    instances: Instances,
    losses: watch::Sender<u64>,
    load: Arc<Mutex<NodeLoad>>,
    streams: Arc<AtomicU64>,
}

impl Watcher {
    async fn watch(self, mut client: DataNodeClient<Channel>) {
        /// Between two attempts.
        const PAUSE: Duration = Duration::from_secs(1);
        loop {
            let reason = text(&self.follow(&mut client).await);
            let is_news = match self.state.get() {
                MemberState::Down { reason: told, .. } => told != reason,
                MemberState::Up | MemberState::Draining | MemberState::Same { .. } => true,
            };
            if is_news {
                warn!(node = self.name, reason, "a data node cannot be used");
                self.state.set(MemberState::Down {
                    since: SystemTime::now(),
                    reason,
                });
                self.losses.send_modify(|count| *count += 1);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the reason why the node cannot be used any more.
    async fn follow(&self, client: &mut DataNodeClient<Channel>) -> String {
        let Described { sent, clock_ahead } = match describe(client).await {
            Ok(described) => described,
            Err(reason) => return reason,
        };
        let facts = NodeFacts::of(&sent, clock_ahead);
        warn_of_clock(&self.name, &facts);
        let version = facts.version.clone();
        self.state.tell_facts(facts);
        let claim = self.instances.claim(&sent.instance, &self.name);
        self.state.claim(claim);
        let reason = self.follow_load(client, &version).await;
        self.state.unclaim();
        reason
    }

    async fn follow_load(&self, client: &mut DataNodeClient<Channel>, version: &str) -> String {
        let mut loads = match client.watch_load(message::WatchLoadRequest {}).await {
            Ok(loads) => loads.into_inner(),
            Err(status) => return reason_of(&status).to_string(),
        };
        loop {
            let sent = match timeout(SILENCE, loads.message()).await {
                Ok(Ok(Some(sent))) => sent,
                Ok(Ok(None)) => return "it has ended the connection".to_owned(),
                Ok(Err(status)) => return reason_of(&status).to_string(),
                Err(_) => return silent(),
            };
            *lock(&self.load) = load::of(&sent);
            let own = self.streams.load(Ordering::Relaxed);
            self.state.tell_machine(MachineLoad::of(&sent, own));
            let now = match self.state.other_name() {
                Some(name) => MemberState::Same { name },
                None if sent.draining => MemberState::Draining,
                None => MemberState::Up,
            };
            if self.state.get() != now {
                self.tell(&now, version);
                self.state.set(now);
            }
            // HTTP/2 holds a node up that sends more.
            tokio::time::sleep(LOAD_EVERY).await;
        }
    }

    /// Writes to the log that the node is in another state.
    fn tell(&self, now: &MemberState, version: &str) {
        if let MemberState::Same { name: used } = now {
            warn!(
                node = self.name,
                used,
                "two names are one data node, which is used under one of them: remove the other one from nodes"
            );
        } else {
            let draining = *now == MemberState::Draining;
            info!(
                node = self.name,
                version, draining, "a data node can be used"
            );
        }
    }
}

/// Certificates, modification times and logs need clocks that agree.
fn warn_of_clock(name: &str, facts: &NodeFacts) {
    const TOLERATED: u64 = 60_000;
    if facts.clock_ahead_ms.unsigned_abs() > TOLERATED {
        let seconds_ahead = facts.clock_ahead_ms / 1000;
        warn!(
            node = name,
            seconds_ahead, "the clock of a data node differs: set both clocks"
        );
    }
}

/// Of a node that has told nothing yet.
fn idle() -> NodeLoad {
    let none = WorkerLoad {
        busy: 0,
        limit: 0,
        awaited: 0,
    };
    NodeLoad {
        senders: none,
        receivers: none,
        buffer_bytes: 0,
        buffer_bytes_limit: 0,
        buffers_awaited: 0,
    }
}
