//! What a node that means harm, or that is broken, can do to a control server by what it tells of itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridhaul_stack::Registry;
use gridhaul_transfer::DataNode as _;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::{Handle, Runtime};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};
use tower::Service as _;

use super::{Dial, RemoteConfig, RemoteNode};
use crate::cluster::{Cluster, ClusterConfig, Member, MemberReport, MemberState, StateHandle};
use crate::generated as message;
use crate::generated::data_node_server::{DataNode as Calls, DataNodeServer};
use crate::limits::LOAD_EVERY;
use crate::version::{MAJOR, MINOR};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A node that tells what the test wants, and this load as fast as it is read. `sessions` counts the messages.
#[derive(Clone)]
struct Hostile {
    description: message::Description,
    load: message::Load,
    sent: Arc<AtomicU64>,
}

impl Hostile {
    fn new() -> Self {
        Self {
            description: message::Description {
                major: MAJOR,
                minor: MINOR,
                ..message::Description::default()
            },
            load: message::Load::default(),
            sent: Arc::default(),
        }
    }
}

#[tonic::async_trait]
impl Calls for Hostile {
    async fn describe(
        &self,
        _: Request<message::DescribeRequest>,
    ) -> Result<Response<message::Description>, Status> {
        Ok(Response::new(self.description.clone()))
    }

    type WatchLoadStream = Answers<message::Load>;

    async fn watch_load(
        &self,
        _: Request<message::WatchLoadRequest>,
    ) -> Result<Response<Self::WatchLoadStream>, Status> {
        let (load, sent) = (self.load.clone(), Arc::clone(&self.sent));
        let flood = tokio_stream::iter(std::iter::repeat(())).map(move |()| {
            Ok(message::Load {
                sessions: sent.fetch_add(1, Ordering::Relaxed) + 1,
                ..load.clone()
            })
        });
        Ok(Response::new(Box::pin(flood)))
    }

    type SessionStream = Answers<message::SessionReply>;

    async fn session(
        &self,
        _: Request<Streaming<message::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unimplemented("no sessions"))
    }
}

/// A cluster with this node.
struct Watched {
    cluster: Cluster,
    _runtime: Runtime,
}

impl Watched {
    fn new(node: &Hostile) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let cluster = Cluster::new(ClusterConfig::default());
        let state = StateHandle::unknown();
        let served = node.clone();
        let remote = RemoteNode::new(RemoteConfig {
            name: "dtn1:7512".to_owned(),
            dial: Dial::new(move || {
                let served = served.clone();
                async move {
                    let (near, far) = tokio::io::duplex(64 << 10);
                    let calls = DataNodeServer::new(served);
                    let calls = service_fn(move |request| calls.clone().call(request));
                    Handle::current().spawn(
                        http2::Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(far), calls),
                    );
                    Ok(near)
                }
            }),
            runtime: runtime.handle().clone(),
            root: "/".into(),
            state: state.clone(),
            instances: cluster.instances(),
            registry: Registry::new(),
        });
        let member = Member {
            name: "dtn1:7512".to_owned(),
            node: Arc::new(remote),
            state,
        };
        cluster.set_members(vec![member]).expect("one name");
        Self {
            cluster,
            _runtime: runtime,
        }
    }

    fn wait_for(&self, is_wanted: impl Fn(&MemberReport) -> bool) -> MemberReport {
        const TIME_LIMIT: Duration = Duration::from_secs(60);
        let began = Instant::now();
        loop {
            let report = self.cluster.members().remove(0);
            if is_wanted(&report) {
                return report;
            }
            assert!(began.elapsed() < TIME_LIMIT, "never: {report:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_flood_of_loads_is_held_up() {
    let mut node = Hostile::new();
    // Long enough that the window of HTTP/2 does not hold all messages of the test.
    let card = message::CardLoad {
        name: "x".repeat(32 << 10),
        ..message::CardLoad::default()
    };
    node.load.cards = vec![card];
    let watched = Watched::new(&node);
    let began = Instant::now();
    let report = watched.wait_for(|report| report.machine.sessions >= 5);
    let most = began.elapsed().as_millis() / LOAD_EVERY.as_millis() + 1;
    assert!(u128::from(report.machine.sessions) <= most, "{report:?}");
    // The node cannot send what is not read.
    let sent = node.sent.load(Ordering::Relaxed);
    assert!(sent < 1000, "{sent}");
}

#[test]
fn absurd_numbers_are_kept_as_the_node_tells_them() {
    let mut node = Hostile::new();
    let workers = message::WorkerLoad {
        busy: u64::MAX,
        limit: u64::MAX,
        awaited: u64::MAX,
    };
    let traffic = message::Traffic {
        received: u64::MAX,
        sent: u64::MAX,
    };
    let card = message::CardLoad {
        name: "eth0\u{1b}]0;x\u{7}".to_owned(),
        traffic: Some(traffic),
        link: 1,
    };
    node.load = message::Load {
        senders: Some(workers),
        receivers: Some(workers),
        buffer_bytes: u64::MAX,
        buffers_awaited: u64::MAX,
        transfers: u64::MAX,
        ring_bytes: u64::MAX,
        cards: vec![card; 1000],
        transferred: Some(traffic),
        ..message::Load::default()
    };
    node.description.now = i64::MIN;
    node.description.host = "dtn9\r\nlevel=ERROR \u{1b}[2J".to_owned();
    let watched = Watched::new(&node);
    let report = watched.wait_for(|report| report.state == MemberState::Up);
    let facts = report.facts.expect("told");
    assert_eq!(facts.host, "dtn9??level=ERROR ?[2J");
    assert!(facts.clock_ahead_ms < 0);
    assert_eq!(report.machine.cards.len(), 32);
    assert_eq!(report.machine.cards[0].name, "eth0?]0;x?");
    assert_eq!(watched.cluster.load().buffer_bytes, usize::MAX);
    // It is chosen, because there is no other one, and has no sessions.
    let error = watched.cluster.attach(&account()).expect_err("no sessions");
    assert!(error.to_string().contains("no sessions"), "{error}");
}

fn account() -> gridhaul_transfer::NodeAccount {
    gridhaul_transfer::NodeAccount {
        source: gridhaul_shares::Source::at(std::net::Ipv4Addr::LOCALHOST.into()),
        name: "test".to_owned(),
        account: None,
        root: "/".into(),
        read_only: false,
        admission: gridhaul_transfer::Admission::Anyone,
    }
}

#[test]
fn a_node_that_tells_too_much_is_not_used() {
    let mut talkative = Hostile::new();
    talkative.description.drivers = vec!["x".repeat(1000); 1000];
    let mut busy = Hostile::new();
    busy.load.cards = vec![message::CardLoad::default(); 100_000];
    for node in [talkative, busy] {
        let watched = Watched::new(&node);
        let is_wanted = |report: &MemberReport| {
            let reason = report.last_error.as_ref().map(|error| &error.reason);
            reason.is_some_and(|reason| reason.contains("too large"))
        };
        let report = watched.wait_for(is_wanted);
        assert!(matches!(report.state, MemberState::Down { .. }));
    }
}
