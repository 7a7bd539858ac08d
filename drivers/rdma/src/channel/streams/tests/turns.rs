//! Channels that write to one file take turns.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::channel;

use gridhaul_direct::test_files::pattern;
use gridhaul_stack::WriteLock;
use rustix::thread::gettid;

use super::*;

const LENGTH: usize = 10_000;

/// How long a system that does not show what a thread waits for delays the test, which covers less there.
const SHOWS_WITHIN: Duration = Duration::from_secs(10);

/// Without the lock it would write and return. The system call that it sleeps in shows that it waits for the lock.
#[test]
fn a_receiver_waits_for_its_turn_at_a_file() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let stacks = [[("qps", "1"), ("provider", "soft")]; 2];
    let [mut sender, mut receiver] = pair(local, stacks, &operation);
    let content = pattern(LENGTH);
    sender.send_memory(&content, &operation).unwrap();
    sender.finish(&operation).unwrap();

    let file = tempfile::tempfile().unwrap();
    let (moved, operation, file) = (AtomicU64::new(0), &operation, &file);
    let (started, starts) = channel();
    let turn = WriteLock::acquire(file.as_fd());
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            started.send(gettid()).unwrap();
            let range = FileRange::new(file.as_fd(), 0, LENGTH as u64, &mut [], &moved);
            receiver.receive_into(&range, operation).unwrap()
        });
        let thread = starts.recv().unwrap().as_raw_nonzero();
        let system_call = format!("/proc/self/task/{thread}/syscall");
        let waits_for_lock = || {
            let call = fs::read_to_string(&system_call).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_futex))
        };
        let start = Instant::now();
        while !writer.is_finished() && !waits_for_lock() && start.elapsed() < SHOWS_WITHIN {
            thread::yield_now();
        }
        assert!(!writer.is_finished(), "another thread's turn has not ended");
        assert_eq!(file.metadata().unwrap().len(), 0);
        drop(turn);
        assert_eq!(writer.join().unwrap(), LENGTH as u64);
    });
    let mut written = vec![0; LENGTH];
    file.read_exact_at(&mut written, 0).unwrap();
    assert!(written == content);
}
