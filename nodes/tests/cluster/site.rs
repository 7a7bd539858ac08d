//! A directory, members, and the sessions of a client.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use gridhaul_nodes::cluster::{Cluster, ClusterConfig, Member, MemberState, StateHandle};
use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Registry, SocketOptions};
use gridhaul_storage::{PosixOptions, PosixStorage, Storage};
use gridhaul_transfer::{
    AccountFiles, Admission, ConnectRequest, DataNode, Event, EventSink, Handling, ListenRequest,
    LocalNode, NodeAccount, NodeConfig, NodeSession, Outcome, Placement, Plan, RunningTransfer,
    Stripes, Task,
};
use tempfile::TempDir;

/// The time limit for an expected event: long enough for a slow machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A cluster and the directory that all its members have.
pub(crate) struct Site {
    pub(crate) directory: TempDir,
    pub(crate) cluster: Cluster,
    pub(crate) members: Vec<Member>,
}

impl Site {
    pub(crate) fn new(nodes: impl IntoIterator<Item = Arc<dyn DataNode>>) -> Self {
        Self::with(ClusterConfig::default(), nodes)
    }

    pub(crate) fn with(
        config: ClusterConfig,
        nodes: impl IntoIterator<Item = Arc<dyn DataNode>>,
    ) -> Self {
        let cluster = Cluster::new(config);
        let members: Vec<_> = nodes
            .into_iter()
            .enumerate()
            .map(|(number, node)| member(number, node))
            .collect();
        cluster.set_members(members.clone()).expect("other names");
        let directory = TempDir::new().expect("a temporary directory");
        Self {
            directory,
            cluster,
            members,
        }
    }

    pub(crate) fn local(count: usize) -> Self {
        Self::new((0..count).map(|_| local_node()))
    }

    pub(crate) fn account(&self) -> NodeAccount {
        NodeAccount {
            source: gridhaul_shares::Source::at(Ipv4Addr::LOCALHOST.into()),
            name: "test".to_owned(),
            account: None,
            root: self.directory.path().to_owned(),
            read_only: false,
            admission: Admission::Anyone,
        }
    }

    pub(crate) fn attach(&self) -> Arc<dyn NodeSession> {
        self.cluster.attach(&self.account()).expect("attached")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).expect("a writable directory");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a readable file")
    }

    /// What the cluster counts as running on all members.
    pub(crate) fn transfers(&self) -> Vec<usize> {
        let members = self.cluster.members();
        members.iter().map(|member| member.transfers).collect()
    }
}

pub(crate) fn member(number: usize, node: Arc<dyn DataNode>) -> Member {
    Member {
        name: format!("dtn{number}"),
        node,
        state: StateHandle::new(MemberState::Up),
    }
}

pub(crate) fn down(reason: &str) -> MemberState {
    MemberState::Down {
        since: SystemTime::now(),
        reason: reason.to_owned(),
    }
}

pub(crate) fn local_node() -> Arc<dyn DataNode> {
    node_with(|account| account.root.clone())
}

/// A node that has the files of sessions in this directory.
pub(crate) fn node_with(
    root: impl Fn(&NodeAccount) -> PathBuf + Send + Sync + 'static,
) -> Arc<dyn DataNode> {
    node_over(root, |storage| Arc::new(storage))
}

/// The same, with what `over` makes of the storage of each session.
pub(crate) fn node_over(
    root: impl Fn(&NodeAccount) -> PathBuf + Send + Sync + 'static,
    over: impl Fn(PosixStorage) -> Arc<dyn Storage> + Send + Sync + 'static,
) -> Arc<dyn DataNode> {
    let mut registry = Registry::new();
    registry.register(gridhaul_tcp::Tcp);
    Arc::new(LocalNode::new(NodeConfig {
        registry,
        open_storage: Box::new(move |account| {
            let options = PosixOptions::default();
            Ok(AccountFiles {
                storage: over(PosixStorage::open(&root(account), options)?),
                home: PathBuf::from("/"),
            })
        }),
        workers: 64,
        block_bytes: 64 * 1024,
        buffer_memory_bytes: 64 * 1024 * 1024,
        checksum_threads: 1,
        remembered_checksums: 100,
        checksum_key: None,
        data_timeout: TIME_LIMIT,
    }))
}

pub(crate) fn stack() -> StackSpec {
    StackSpec::parse("tcp").expect("a stack")
}

pub(crate) fn listening(stripes: Stripes) -> ListenRequest {
    ListenRequest {
        stack: stack(),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        stripes,
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    }
}

pub(crate) fn connecting(peers: Vec<SocketAddr>) -> ConnectRequest {
    ConnectRequest {
        stack: stack(),
        peers,
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    }
}

/// A transfer under way and its events.
pub(crate) struct Started {
    pub(crate) transfer: Arc<dyn RunningTransfer>,
    pub(crate) events: mpsc::Receiver<Event>,
}

pub(crate) fn start(session: &Arc<dyn NodeSession>, plan: Plan) -> Started {
    let (sender, events) = mpsc::channel();
    let sink: EventSink = Box::new(move |event| drop(sender.send(event)));
    let transfer = session.transfer(plan, sink);
    Started { transfer, events }
}

impl Started {
    /// Waits for [`Event::Finished`].
    pub(crate) fn finish(&self) -> Outcome {
        loop {
            let event = self.events.recv_timeout(TIME_LIMIT);
            if let Event::Finished(outcome) = event.expect("an end") {
                return *outcome;
            }
        }
    }

    pub(crate) fn succeed(&self) -> Outcome {
        let outcome = self.finish();
        assert!(outcome.result.is_ok(), "{outcome:?}");
        outcome
    }
}

pub(crate) fn plan(task: Task, mode: TransferMode) -> Plan {
    Plan {
        task,
        mode,
        representation: Representation::Image,
        parallelism: 1,
        layout: StripeLayout::Blocked {
            block_bytes: 64 * 1024,
        },
        handling: Handling::default(),
        share: None,
    }
}

pub(crate) fn send(name: &str) -> Task {
    Task::SendFile {
        path: name.into(),
        offset: 0,
        length: None,
        restart: RangeSet::new(),
    }
}

pub(crate) fn receive(name: &str) -> Task {
    Task::ReceiveFile {
        path: name.into(),
        placement: Placement::Replace,
        restart: RangeSet::new(),
        promised: None,
    }
}

/// The values of a detail of an outcome.
pub(crate) fn detail(outcome: &Outcome, name: &str) -> Vec<String> {
    let details = outcome.details.as_slice().iter();
    let details = details.filter(|detail| detail.name == name);
    details
        .map(|detail| detail.to_string().replacen(&format!("{name}="), "", 1))
        .collect()
}
