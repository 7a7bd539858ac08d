//! A node that moves no bytes over a network: it writes what it should receive.
//!
//! The content of a file follows from its name. An upload keeps its temporary name. A transfer with a share writes the blocks of its stripes; the file is complete if
//! every node has written its own ones. A node fails with a given probability.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use gridhaul_nodes::cluster::StateHandle;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Cancel, Details, StackError};
use gridhaul_storage::{
    ChecksumSource, FoundChecksum, PosixOptions, PosixStorage, Storage, StorageError, UploadForm,
};
use gridhaul_transfer::{
    AttachError, CancelReason, ChecksumRequest, ConnectRequest, DataNode, Event, EventSink,
    ListenFailure, ListenRequest, NodeAccount, NodeLoad, NodeSession, Outcome, Plan, Progress,
    Relabel, Role, RunningTransfer, SequenceError, Survey, Task, TransferError, UploadName,
    WorkerLoad,
};
use rustix::io::Errno;

use crate::random::{Random, content};
use crate::site::down;

/// The size of a block.
const BLOCK: usize = 100;

/// The number of blocks of a file.
const BLOCKS: usize = 97;

/// The port of the next listener of any fake node.
static NEXT_PORT: AtomicUsize = AtomicUsize::new(1024);

/// A fake node. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake(Arc<Node>);

#[derive(Debug, Default)]
pub(crate) struct Node {
    /// One call or block in so many fails; 0 is none.
    pub(crate) fails_once_in: AtomicUsize,
    /// A transfer of a member loses what it has written.
    pub(crate) loses: AtomicBool,
    /// A transfer writes no block while this holds.
    pub(crate) hangs: AtomicBool,
    /// Attaching waits for it.
    pub(crate) gate: Mutex<()>,
    /// Attaching fails.
    pub(crate) refuses: AtomicBool,
    /// The next call of a session, not of its storage, fails with this error. The state becomes down before.
    pub(crate) next_call: Mutex<Option<(Errno, Option<StateHandle>)>>,
    /// Sessions, also those that have ended.
    pub(crate) attached: AtomicUsize,
    /// Sessions that have ended.
    pub(crate) detached: AtomicUsize,
    pub(crate) running: AtomicUsize,
    /// The plans of all transfers.
    pub(crate) plans: Mutex<Vec<Plan>>,
    /// The peers of all `connect`.
    pub(crate) peers: Mutex<Vec<Vec<SocketAddr>>>,
    seed: AtomicU64,
}

impl std::ops::Deref for Fake {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Node {
    fn random(&self) -> Random {
        Random::new(self.seed.fetch_add(1, Ordering::Relaxed))
    }

    fn check_call(&self) -> Result<(), StorageError> {
        let Some((errno, state)) = self.next_call.lock().expect("no panic").take() else {
            return Ok(());
        };
        if let Some(state) = state {
            state.set(down("lost"));
        }
        Err(StorageError::new("read", errno))
    }

    fn fails(&self, random: &mut Random) -> bool {
        match self.fails_once_in.load(Ordering::Relaxed) {
            0 => false,
            times => random.once_in(times),
        }
    }
}

impl Fake {
    /// The present sessions.
    pub(crate) fn sessions(&self) -> usize {
        self.attached.load(Ordering::Relaxed) - self.detached.load(Ordering::Relaxed)
    }

    pub(crate) fn new(seed: u64) -> Self {
        let fake = Self::default();
        fake.seed.store(seed << 20, Ordering::Relaxed);
        fake
    }

    pub(crate) fn node(&self) -> Arc<dyn DataNode> {
        Arc::new(self.clone())
    }
}

/// What a complete file contains, by its path or that of its upload.
pub(crate) fn expected(path: &Path) -> Vec<u8> {
    let name = path.to_string_lossy();
    let name = name
        .trim_start_matches('.')
        .trim_end_matches(UploadForm::Blocks.suffix());
    let seed = name
        .bytes()
        .fold(7, |seed, byte| seed * 31 + u64::from(byte));
    content(seed, BLOCK * BLOCKS)
}

impl DataNode for Fake {
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError> {
        drop(self.gate.lock().expect("no panic"));
        if self.refuses.load(Ordering::Relaxed) || self.fails(&mut self.random()) {
            return Err(AttachError::Account("no account here".to_owned()));
        }
        self.attached.fetch_add(1, Ordering::Relaxed);
        let storage = PosixStorage::open(&account.root, PosixOptions::default())?;
        Ok(Arc::new(Session {
            node: self.clone(),
            root: account.root.clone(),
            storage: Arc::new(storage),
            stripes: Mutex::default(),
        }))
    }

    fn check_stack(&self, _: &StackSpec) -> Result<(), StackError> {
        if self.refuses.load(Ordering::Relaxed) {
            let known = "the drivers are: none".to_owned();
            return Err(StackError::UnknownDriver {
                name: "tcp".to_owned(),
                known,
            });
        }
        Ok(())
    }

    fn listens_at(&self, _: SocketAddr) -> bool {
        false
    }

    fn load(&self) -> NodeLoad {
        let idle = WorkerLoad {
            busy: 0,
            limit: 64,
            awaited: 0,
        };
        NodeLoad {
            senders: idle,
            receivers: idle,
            buffer_bytes: 0,
            buffer_bytes_limit: 1,
            buffers_awaited: 0,
        }
    }
}

#[derive(Debug)]
struct Session {
    node: Fake,
    root: PathBuf,
    storage: Arc<dyn Storage>,
    /// The number of listeners or peers.
    stripes: Mutex<usize>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.node.detached.fetch_add(1, Ordering::Relaxed);
    }
}

impl NodeSession for Session {
    fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage)
    }

    fn home(&self) -> PathBuf {
        PathBuf::from("/")
    }

    fn checksum(
        &self,
        _: &ChecksumRequest,
        _: &AtomicU64,
        _: &Cancel,
    ) -> Result<FoundChecksum, StorageError> {
        self.node.check_call()?;
        Ok(FoundChecksum {
            value: String::new(),
            source: ChecksumSource::Memory,
            read_bytes: 0,
        })
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        self.node.check_call()?;
        self.storage.set_modified(path, modified)
    }

    fn relabel(&self, _: &Path, _: Relabel<'_>) -> Result<(), StorageError> {
        Err(StorageError::new("rename", Errno::OPNOTSUPP))
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        if self.node.fails(&mut self.node.random()) {
            return Err(ListenFailure::Nodes("no free port".to_owned()));
        }
        let count = request.stripes.most();
        *self.stripes.lock().expect("no panic") = count;
        let first = NEXT_PORT.fetch_add(count, Ordering::Relaxed);
        let port = |index| u16::try_from((first + index) % 60_000).expect("a port");
        Ok((0..count)
            .map(|index| SocketAddr::from(([127, 0, 0, 1], port(index))))
            .collect())
    }

    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        *self.stripes.lock().expect("no panic") = request.peers.len();
        let mut peers = self.node.peers.lock().expect("no panic");
        peers.push(request.peers.clone());
        Ok(())
    }

    fn release(&self) {
        *self.stripes.lock().expect("no panic") = 0;
    }

    fn looks_ahead(&self) -> bool {
        false
    }

    fn look_ahead(&self, _: Vec<PathBuf>) {}

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        let stripes = *self.stripes.lock().expect("no panic");
        self.node.plans.lock().expect("no panic").push(plan.clone());
        let running = Arc::new(Running {
            stripes,
            cancelled: Mutex::default(),
            bytes: AtomicU64::new(0),
            unreported: Mutex::default(),
        });
        self.node.running.fetch_add(1, Ordering::Relaxed);
        let work = Work {
            node: self.node.clone(),
            root: self.root.clone(),
            plan,
            running: Arc::clone(&running),
            random: self.node.random(),
        };
        if stripes == 0 {
            // Some errors are known before the call returns.
            work.finish(Err(SequenceError::NoDataPort.into()), &events);
        } else {
            thread::spawn(move || work.run(&events));
        }
        running
    }
}

#[derive(Debug)]
struct Running {
    stripes: usize,
    cancelled: Mutex<Option<CancelReason>>,
    bytes: AtomicU64,
    unreported: Mutex<RangeSet>,
}

impl Running {
    fn check(&self) -> Result<(), TransferError> {
        let cancelled = *self.cancelled.lock().expect("no panic");
        cancelled.map_or(Ok(()), |reason| Err(TransferError::Cancelled(reason)))
    }
}

impl RunningTransfer for Running {
    fn cancel(&self, reason: CancelReason) {
        let mut cancelled = self.cancelled.lock().expect("no panic");
        cancelled.get_or_insert(reason);
    }

    fn progress(&self) -> Progress {
        let mut stripes = vec![0; self.stripes.max(1)];
        stripes[0] = self.bytes.load(Ordering::Relaxed);
        Progress { stripes }
    }

    fn survey(&self) -> Survey {
        Survey::default()
    }

    fn is_settling(&self) -> bool {
        false
    }

    fn take_received(&self) -> RangeSet {
        std::mem::take(&mut *self.unreported.lock().expect("no panic"))
    }
}

/// A transfer of a fake node.
struct Work {
    node: Fake,
    root: PathBuf,
    plan: Plan,
    running: Arc<Running>,
    random: Random,
}

impl Work {
    fn run(mut self, events: &EventSink) {
        events(Event::Queued { ahead: 1 });
        let result = match self.plan.task.clone() {
            Task::ReceiveFile { path, .. } => self.receive(&path, events),
            Task::SendFile { .. } | Task::SendLines(_) | Task::ReceiveBytes(_) => {
                events(Event::Started { reused: false });
                self.write(None, &[])
            }
        };
        self.finish(result, events);
    }

    fn receive(&mut self, path: &Path, events: &EventSink) -> Result<(), TransferError> {
        let (stripes, total, role) = match self.plan.share.clone() {
            Some(share) => (share.stripes, share.total, Some(share.role)),
            None => (vec![0], 1, None),
        };
        let is_member = matches!(role, Some(Role::Member));
        let unfinished = UploadForm::Blocks.unfinished(path);
        let is_temporary = self.plan.handling.upload == UploadName::Temporary;
        let unfinished = unfinished.filter(|_| is_temporary && !is_member);
        let path = unfinished.as_deref().unwrap_or(path);
        let blocks = (0..BLOCKS).filter(|block| stripes.contains(&(block % total)));
        let blocks: Vec<_> = blocks.collect();
        let real = self.root.join(path);
        let mut options = OpenOptions::new();
        options.write(true).create(!is_member).truncate(!is_member);
        let file = options.open(&real).map_err(|error| TransferError::Open {
            path: path.to_owned(),
            error: StorageError::from_io("open", &error),
        })?;
        let companions = match role {
            Some(Role::Lead(companions)) => Some(companions),
            Some(Role::Member) | None => None,
        };
        if let Some(companions) = &companions {
            companions.opened(path);
        }
        events(Event::Started { reused: false });
        let written = self.write(Some((path, &file)), &blocks);
        let Some(companions) = companions else {
            if is_member && self.node.loses.load(Ordering::Relaxed) {
                return Err(TransferError::Lost(StorageError::new("close", Errno::IO)));
            }
            return written;
        };
        written?;
        let others = match companions.wait() {
            Err(error @ TransferError::Lost(_)) => {
                std::fs::remove_file(&real)
                    .map_err(|error| StorageError::from_io("unlink", &error))?;
                return Err(error);
            }
            others => others?,
        };
        self.running.check()?;
        let own = blocks.len() as u64 * BLOCK as u64;
        let all = (BLOCKS * BLOCK) as u64;
        if own + others.covered() != all {
            let reason = format!("{} bytes of {all} are there", own + others.covered());
            return Err(TransferError::Local(reason));
        }
        Ok(())
    }

    /// Writes blocks, or only takes time.
    fn write(
        &mut self,
        target: Option<(&Path, &File)>,
        blocks: &[usize],
    ) -> Result<(), TransferError> {
        let content = target.map(|(path, _)| expected(path));
        for &block in blocks {
            while self.node.hangs.load(Ordering::Relaxed) {
                self.running.check()?;
                thread::sleep(Duration::from_millis(1));
            }
            self.running.check()?;
            if self.node.fails(&mut self.random) {
                return Err(StorageError::new("write", Errno::NOSPC).into());
            }
            if let (Some((_, file)), Some(content)) = (target, &content) {
                let bytes = block * BLOCK..(block + 1) * BLOCK;
                let offset = bytes.start as u64;
                let written = file.write_all_at(&content[bytes], offset);
                written.map_err(|error| StorageError::from_io("write", &error))?;
                self.running
                    .bytes
                    .fetch_add(BLOCK as u64, Ordering::Relaxed);
                let mut unreported = self.running.unreported.lock().expect("no panic");
                unreported.insert(offset..offset + BLOCK as u64);
            }
            if self.random.once_in(8) {
                thread::yield_now();
            }
        }
        while self.node.hangs.load(Ordering::Relaxed) {
            self.running.check()?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn finish(self, result: Result<(), TransferError>, events: &EventSink) {
        self.node.running.fetch_sub(1, Ordering::Relaxed);
        events(Event::Finished(Box::new(Outcome {
            result,
            bytes: self.running.bytes.load(Ordering::Relaxed),
            channels: 1,
            stripes: self.running.stripes,
            peers: vec![[127, 0, 0, 1].into()],
            buffer_bytes: 1,
            block_bytes: BLOCK,
            movement: None,
            details: Details::default(),
            checksums: Vec::new(),
            refused: 0,
            last_refusal: None,
            nodes: Vec::new(),
        })));
    }
}
