//! Nodes in the test process, each with a directory, and real sockets between them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Registry, SocketOptions};
use gridhaul_storage::{Checksum, ChecksumAlgorithm, PosixOptions, PosixStorage};
use gridhaul_transfer::{
    AccountFiles, Admission, ConnectRequest, DataNode, Event, EventSink, Handling, ListenRequest,
    LocalNode, NodeAccount, NodeConfig, NodeSession, Outcome, Placement, Plan, RunningTransfer,
    Stripes, Task,
};
use tempfile::TempDir;

/// The time limit for an expected event: long enough for a slow machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A node with one session.
pub(crate) struct Site {
    pub(crate) directory: Arc<TempDir>,
    pub(crate) session: Arc<dyn NodeSession>,
    node: Arc<LocalNode>,
}

/// The parameters of a node.
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) block_bytes: usize,
    pub(crate) data_timeout: Duration,
    pub(crate) admission: Admission,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 64,
            block_bytes: 64 * 1024,
            data_timeout: TIME_LIMIT,
            admission: Admission::Anyone,
        }
    }
}

impl Site {
    pub(crate) fn new(settings: Settings) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        Self::of(Arc::new(directory), settings)
    }

    /// Another node over the same directory.
    pub(crate) fn beside(&self, settings: Settings) -> Self {
        Self::of(self.directory.clone(), settings)
    }

    fn of(directory: Arc<TempDir>, settings: Settings) -> Self {
        let mut registry = Registry::new();
        register(&mut registry);
        let node = LocalNode::new(NodeConfig {
            registry,
            open_storage: Box::new(|account| {
                let options = PosixOptions::default();
                Ok(AccountFiles {
                    storage: Arc::new(PosixStorage::open(&account.root, options)?),
                    home: PathBuf::from("/"),
                })
            }),
            workers: settings.workers,
            block_bytes: settings.block_bytes,
            buffer_memory_bytes: 64 * 1024 * 1024,
            checksum_threads: 2,
            remembered_checksums: 100,
            checksum_key: None,
            data_timeout: settings.data_timeout,
        });
        Self::attached(Arc::new(node), directory, settings.admission)
    }

    /// Another session on the same node.
    pub(crate) fn again(&self) -> Self {
        Self::attached(self.node.clone(), self.directory.clone(), Admission::Anyone)
    }

    fn attached(node: Arc<LocalNode>, directory: Arc<TempDir>, admission: Admission) -> Self {
        let account = NodeAccount {
            source: gridhaul_shares::Source::at(Ipv4Addr::LOCALHOST.into()),
            name: "test".to_owned(),
            account: None,
            root: directory.path().to_owned(),
            read_only: false,
            admission,
        };
        let session = node.attach(&account).expect("the root is there");
        Self {
            directory,
            session,
            node,
        }
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

    pub(crate) fn listen(&self, stripes: usize) -> Vec<SocketAddr> {
        let request = ListenRequest {
            stack: stack(),
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            stripes: Stripes::Many { at_most: stripes },
            sockets: SocketOptions::default(),
            session_drivers: Vec::new(),
        };
        self.session.listen(&request).expect("a free port")
    }

    pub(crate) fn connect(&self, peers: Vec<SocketAddr>) {
        let request = ConnectRequest {
            stack: stack(),
            peers,
            sockets: SocketOptions::default(),
            session_drivers: Vec::new(),
        };
        self.session
            .connect(&request)
            .expect("the tcp driver is there");
    }

    pub(crate) fn start(&self, plan: Plan) -> Started {
        Started::on(&*self.session, plan)
    }

    pub(crate) fn start_here(&self, plan: Plan) -> Started {
        let (sink, events) = events();
        let transfer = self.session.transfer_here(plan, sink);
        Started { transfer, events }
    }
}

fn events() -> (EventSink, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let sink = Box::new(move |event| {
        // The test may have ended already.
        let _ = sender.send(event);
    });
    (sink, events)
}

/// A transfer under way and its events.
pub(crate) struct Started {
    pub(crate) transfer: Arc<dyn RunningTransfer>,
    pub(crate) events: mpsc::Receiver<Event>,
}

impl Started {
    pub(crate) fn on(session: &dyn NodeSession, plan: Plan) -> Self {
        let (sink, events) = events();
        let transfer = session.transfer(plan, sink);
        Self { transfer, events }
    }

    /// Waits for [`Event::Started`] and returns whether channels were reused.
    pub(crate) fn wait_started(&self) -> bool {
        loop {
            match self.events.recv_timeout(TIME_LIMIT).expect("it starts") {
                Event::Started { reused } => return reused,
                Event::Queued { .. } => {}
                Event::Finished(outcome) => panic!("it ended before it began: {outcome:?}"),
            }
        }
    }

    pub(crate) fn finish(&self) -> Outcome {
        loop {
            if let Event::Finished(outcome) = self.events.recv_timeout(TIME_LIMIT).expect("an end")
            {
                return *outcome;
            }
        }
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.register(gridhaul_tcp::Tcp);
}

pub(crate) fn stack() -> StackSpec {
    StackSpec::parse("tcp").expect("a stack")
}

pub(crate) fn image(task: Task, mode: TransferMode, parallelism: u8) -> Plan {
    Plan {
        task,
        mode,
        representation: Representation::Image,
        parallelism,
        layout: StripeLayout::Blocked {
            block_bytes: 1 << 20,
        },
        handling: Handling::default(),
        share: None,
    }
}

pub(crate) fn send(name: &str) -> Task {
    send_rest(name, RangeSet::new())
}

pub(crate) fn send_rest(name: &str, restart: RangeSet) -> Task {
    Task::SendFile {
        path: Path::new(name).to_owned(),
        offset: 0,
        length: None,
        restart,
    }
}

pub(crate) fn receive(name: &str) -> Task {
    receive_rest(name, RangeSet::new())
}

pub(crate) fn receive_rest(name: &str, restart: RangeSet) -> Task {
    Task::ReceiveFile {
        path: Path::new(name).to_owned(),
        placement: Placement::Replace,
        restart,
        promised: None,
    }
}

/// Bytes without a short period, so that a misplaced block is detected.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

pub(crate) fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut checksum = Checksum::new(algorithm);
    checksum.update(bytes);
    checksum.finish()
}
