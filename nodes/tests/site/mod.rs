//! Nodes with a directory each, behind gRPC in this process.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use gridhaul_nodes::cluster::{Member, MemberState, StateHandle};
use gridhaul_nodes::{
    Arrival, Dial, DialError, Instances, RemoteConfig, RemoteNode, Service, ServiceConfig,
    blocking_threads,
};
use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Source;
use gridhaul_stack::{Registry, RestoreError, SocketOptions};
use gridhaul_storage::{PosixOptions, PosixStorage, Storage};
use gridhaul_transfer::{
    AccountFiles, Admission, ConnectRequest, DataNode as _, Event, Handling, ListenRequest,
    LocalNode, NodeAccount, NodeConfig, NodeSession, Outcome, Placement, Plan, RunningTransfer,
    Stripes, Task,
};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// The time limit for an expected event: long enough for a slow machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Threads of a node for work on files.
pub(crate) const FILE_THREADS: usize = 8;

/// A node, and the control server's view of it.
pub(crate) struct Remote {
    pub(crate) node: RemoteNode,
    pub(crate) address: SocketAddr,
    directory: TempDir,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    pub(crate) service: Arc<Service>,
    /// The runtime of the node, which has only the threads that it must have.
    runtime: Runtime,
    /// That of the control server.
    _control: Runtime,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Self::with(local())
    }

    pub(crate) fn with(node: LocalNode) -> Self {
        Self::at(Vec::new(), node)
    }

    /// A node whose data channels listen at these addresses.
    pub(crate) fn at(data_addresses: Vec<IpAddr>, node: LocalNode) -> Self {
        Self::announcing(None, data_addresses, node)
    }

    /// The same, and clients are told another address.
    pub(crate) fn announcing(
        advertised: Option<IpAddr>,
        data_addresses: Vec<IpAddr>,
        node: LocalNode,
    ) -> Self {
        let runtime = Builder::new_multi_thread()
            .max_blocking_threads(blocking_threads(FILE_THREADS))
            .enable_all()
            .build()
            .expect("a runtime");
        let control = Runtime::new().expect("a runtime");
        let directory = TempDir::new().expect("a temporary directory");
        let service = Arc::new(Service::new(ServiceConfig {
            node: Arc::new(node),
            restore: Box::new(|value| Err(RestoreError::UnknownDriver(value.name().to_owned()))),
            root: directory.path().to_owned(),
            host: "node.example.org".to_owned(),
            program: "test".to_owned(),
            stack: "tcp".to_owned(),
            drivers: vec!["tcp".to_owned()],
            own_stack: Box::new(|stack| stack),
            reach: Box::new(|_, host| Err(format!("{host} is refused"))),
            data_addresses,
            advertised,
            file_threads: FILE_THREADS,
            reply_time: TIME_LIMIT,
        }));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(accept(
            listener,
            Arc::clone(&service),
            Arc::clone(&connections),
        ));
        let named = (address.to_string(), StateHandle::unknown());
        let node = connected(named, address, &Instances::default(), &control);
        let remote = Self {
            node,
            address,
            directory,
            connections,
            service,
            runtime,
            _control: control,
        };
        remote.wait_for(|state| *state == MemberState::Up);
        remote
    }

    /// The same node under another name, for another control server.
    pub(crate) fn under(&self, name: &str, instances: &Instances) -> Member {
        let (name, state) = (name.to_owned(), StateHandle::unknown());
        let named = (name.clone(), state.clone());
        let node = connected(named, self.address, instances, &self.runtime);
        Member {
            name,
            node: Arc::new(node),
            state,
        }
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits until the control server sees the node in such a state.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&MemberState) -> bool) {
        wait_until(|| wanted(&self.node.state()));
    }

    pub(crate) fn attach(&self) -> Arc<dyn NodeSession> {
        self.node
            .attach(&self.account())
            .expect("the root is there")
    }

    pub(crate) fn account(&self) -> NodeAccount {
        self.account_of("test")
    }

    pub(crate) fn account_of(&self, name: &str) -> NodeAccount {
        NodeAccount {
            source: Source::at(Ipv4Addr::LOCALHOST.into()).with_account(name.to_owned()),
            name: name.to_owned(),
            account: None,
            root: PathBuf::from("/root of the control server"),
            read_only: false,
            admission: Admission::Anyone,
        }
    }

    /// Ends all connections, as if the network were cut.
    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().expect("no panic").drain(..) {
            connection.abort();
        }
    }

    pub(crate) fn drain(&self) {
        self.runtime.block_on(self.service.drain());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a readable file")
    }
}

fn connected(
    (name, state): (String, StateHandle),
    address: SocketAddr,
    instances: &Instances,
    runtime: &Runtime,
) -> RemoteNode {
    let dial = Dial::new(move || async move {
        let stream = TcpStream::connect(address).await;
        stream.map_err(|error| DialError(error.to_string()))
    });
    RemoteNode::new(RemoteConfig {
        name,
        dial,
        runtime: runtime.handle().clone(),
        root: PathBuf::from("/root of the control server"),
        state,
        instances: instances.clone(),
        registry: registry(),
    })
}

pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn accept(
    listener: TcpListener,
    service: Arc<Service>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
) {
    while let Ok((connection, _)) = listener.accept().await {
        let local = connection.local_addr().expect("an address");
        let service = Arc::clone(&service);
        let served = tokio::spawn(async move {
            // A connection that is cut is an error.
            let _ = service.serve(Arrival { connection, local }).await;
        });
        connections
            .lock()
            .expect("no panic")
            .push(served.abort_handle());
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(gridhaul_tcp::Tcp);
    registry
}

pub(crate) fn local() -> LocalNode {
    local_with(|_, storage| storage)
}

/// A node on whose storage `adapt` puts something, by the name of the session.
pub(crate) fn local_with(
    adapt: impl Fn(&str, Arc<dyn Storage>) -> Arc<dyn Storage> + Send + Sync + 'static,
) -> LocalNode {
    LocalNode::new(NodeConfig {
        registry: registry(),
        open_storage: Box::new(move |account| {
            let options = PosixOptions::default();
            let storage = PosixStorage::open(&account.root, options)?;
            Ok(AccountFiles {
                storage: adapt(&account.name, Arc::new(storage)),
                home: PathBuf::from("/"),
            })
        }),
        workers: 64,
        block_bytes: 64 * 1024,
        buffer_memory_bytes: 64 << 20,
        checksum_threads: 2,
        remembered_checksums: 100,
        checksum_key: None,
        data_timeout: TIME_LIMIT,
    })
}

fn stack() -> StackSpec {
    StackSpec::parse("tcp").expect("a stack")
}

pub(crate) fn listen(session: &dyn NodeSession, stripes: usize) -> Vec<SocketAddr> {
    let request = ListenRequest {
        stack: stack(),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        stripes: Stripes::Many { at_most: stripes },
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    };
    session.listen(&request).expect("a free port")
}

pub(crate) fn connect(session: &dyn NodeSession, peers: Vec<SocketAddr>) {
    let request = ConnectRequest {
        stack: stack(),
        peers,
        sockets: SocketOptions::default(),
        session_drivers: Vec::new(),
    };
    session.connect(&request).expect("the driver is there");
}

/// A transfer under way, and its events.
pub(crate) struct Started {
    pub(crate) running: Arc<dyn RunningTransfer>,
    events: mpsc::Receiver<Event>,
}

pub(crate) fn start(session: &dyn NodeSession, plan: Plan) -> Started {
    let (sender, events) = mpsc::channel();
    // The test may have ended already.
    let sink = Box::new(move |event| drop(sender.send(event)));
    let running = session.transfer(plan, sink);
    Started { running, events }
}

impl Started {
    pub(crate) fn next(&self) -> Event {
        self.events.recv_timeout(TIME_LIMIT).expect("an event")
    }

    pub(crate) fn finish(&self) -> Outcome {
        loop {
            if let Event::Finished(outcome) = self.next() {
                assert!(self.events.recv_timeout(Duration::from_millis(1)).is_err());
                return *outcome;
            }
        }
    }
}

pub(crate) fn image(task: Task, mode: TransferMode, parallelism: u8) -> Plan {
    Plan {
        task,
        mode,
        representation: Representation::Image,
        parallelism,
        layout: StripeLayout::Partitioned,
        handling: Handling::default(),
        share: None,
    }
}

pub(crate) fn send(path: &str) -> Task {
    Task::SendFile {
        path: Path::new(path).to_owned(),
        offset: 0,
        length: None,
        restart: RangeSet::new(),
    }
}

pub(crate) fn receive(path: &str) -> Task {
    Task::ReceiveFile {
        path: Path::new(path).to_owned(),
        placement: Placement::Replace,
        restart: RangeSet::new(),
        promised: None,
    }
}

/// Bytes in which a wrong offset shows.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at ^ (at >> 12)) % 251).unwrap_or_default();
    (0..length).map(byte).collect()
}
