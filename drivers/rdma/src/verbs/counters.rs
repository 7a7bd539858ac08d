//! The counters of a port's driver.
//!
//! The files stay open and are shared by all channels of a port, because opening one takes longer than
//! reading it, and a search for a rate reads them a hundred times per second.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Counters of retransmissions. Drivers name them differently, and some do not count them.
#[derive(Debug)]
pub(super) struct Counters {
    misses: Vec<File>,
    overdue: Vec<File>,
}

/// Counters of rxe, mlx5 and bnxt_re for packets that the other end asked for again.
pub(super) const MISSES: [&str; 3] = ["rcvd_seq_err", "packet_seq_err", "seq_err_naks_rcvd"];

/// Counters for acknowledgements that did not arrive in time. The timer of rxe may run on although
/// everything is acknowledged: packets in flight when it expires are retransmitted although none is
/// missing (rxe_comp.c: "some timeouts are spurious").
pub(super) const OVERDUE: [&str; 3] = [
    "completer_retry_err",
    "local_ack_timeout_err",
    "to_retransmits",
];

/// The counters in use, by the port's path.
static USED: Mutex<Vec<(PathBuf, Weak<Counters>)>> = Mutex::new(Vec::new());

impl Counters {
    /// The counters of the port with this path in sysfs.
    pub(super) fn of(port: &Path) -> Arc<Self> {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        // A removed device and a new one of the same name have different counters.
        used.retain(|(_, counters)| {
            let counters = counters.upgrade();
            counters.is_some_and(|counters| counters.repeats().is_some())
        });
        let found = used.iter().find(|(path, _)| path == port);
        if let Some(counters) = found.and_then(|(_, counters)| counters.upgrade()) {
            return counters;
        }
        let counters = Arc::new(Self::open(port));
        used.push((port.to_owned(), Arc::downgrade(&counters)));
        counters
    }

    fn open(port: &Path) -> Self {
        let directory = port.join("hw_counters");
        let open = |name: &&str| File::open(directory.join(name)).ok();
        Self {
            misses: MISSES.iter().filter_map(open).collect(),
            overdue: OVERDUE.iter().filter_map(open).collect(),
        }
    }

    /// Retransmissions of the port's queue pairs; `None` if its driver does not count them.
    pub(super) fn repeats(&self) -> Option<u64> {
        [self.misses(), sum(&self.overdue)]
            .into_iter()
            .flatten()
            .reduce(u64::saturating_add)
    }

    /// Retransmissions that the other end asked for; `None` if its driver does not count them.
    pub(super) fn misses(&self) -> Option<u64> {
        sum(&self.misses)
    }
}

/// The sum of the readable files: those of a removed device are not.
fn sum(files: &[File]) -> Option<u64> {
    files.iter().filter_map(read).reduce(u64::saturating_add)
}

/// sysfs(5): reading a file from its beginning returns the present value.
fn read(file: &File) -> Option<u64> {
    // 2^64 has twenty digits, and a line ends with a newline.
    let mut text = [0; 21];
    let count = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..count])
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn channels_of_a_port_share_its_files() {
        let port = tempfile::tempdir().unwrap();
        let directory = port.path().join("hw_counters");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("rcvd_seq_err"), "7\n").unwrap();
        let one = Counters::of(port.path());
        assert!(Arc::ptr_eq(&one, &Counters::of(port.path())));
        // The files of a removed device cannot be read.
        fs::write(directory.join("rcvd_seq_err"), "").unwrap();
        fs::remove_file(directory.join("rcvd_seq_err")).unwrap();
        fs::write(directory.join("rcvd_seq_err"), "1\n").unwrap();
        let other = Counters::of(port.path());
        assert!(!Arc::ptr_eq(&one, &other));
        assert_eq!(other.misses(), Some(1));
    }

    #[test]
    fn repeats_are_the_sum_of_the_counters() {
        let port = tempfile::tempdir().unwrap();
        let directory = port.path().join("hw_counters");
        assert_eq!(Counters::open(port.path()).repeats(), None);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("rcvd_seq_err"), "7\n").unwrap();
        fs::write(directory.join("completer_retry_err"), "2\n").unwrap();
        fs::write(directory.join("sent_pkts"), "1000\n").unwrap();
        let counters = Counters::open(port.path());
        assert_eq!(counters.misses(), Some(7));
        assert_eq!(counters.repeats(), Some(9));
        let most = u64::MAX.to_string();
        fs::write(directory.join("rcvd_seq_err"), format!("{most}\n")).unwrap();
        assert_eq!(counters.misses(), Some(u64::MAX), "they are read anew");
        assert_eq!(counters.repeats(), Some(u64::MAX));
        fs::write(directory.join("rcvd_seq_err"), "none\n").unwrap();
        assert_eq!(counters.misses(), None);
        assert_eq!(counters.repeats(), Some(2));
    }
}
