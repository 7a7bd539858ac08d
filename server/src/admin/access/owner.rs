//! The account of the process at the other end of a TCP connection on this machine.
//!
//! The kernel tells it for one socket ([`KernelList`]); where it does not, it lists all TCP sockets with their accounts in
//! `/proc/net/tcp` and `/proc/net/tcp6` (proc(5)). The socket of the client is the one whose local address is our peer. A
//! socket that no process holds any more is listed with account 0, which is root's, and with inode 0 (`sock_i_uid` and
//! `sock_i_ino` in Linux). So an entry counts only while it is established and has an inode, and an administrator's only if a
//! second look finds the same.
//!
//! The server itself is no administrator: a user with a session on this machine may have it connect to any of its own ports
//! and send the bytes of a file there.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::kernel_list::{KernelList, Owner};

/// Longer lists are not read to the end: the client is not found then.
const MOST_BYTES: u64 = 256 << 20;

/// The state `ESTABLISHED`.
const ESTABLISHED: &str = "01";

/// Finds the accounts of clients on this machine.
#[derive(Debug)]
pub(in crate::admin) struct Owners {
    /// The accounts whose processes are administrators.
    accounts: Vec<u32>,
    /// One look at a time: a list of all sockets is long, and questions to the kernel must not overlap.
    kernel: Arc<Mutex<Option<KernelList>>>,
}

impl Owners {
    /// Must be called before the process is confined.
    pub(in crate::admin) fn new(accounts: Vec<u32>) -> Self {
        Self {
            accounts,
            kernel: Arc::new(Mutex::new(KernelList::open().ok())),
        }
    }

    /// The accounts whose processes are administrators.
    pub(in crate::admin) fn administrators(&self) -> &[u32] {
        &self.accounts
    }

    /// The account of the socket at `peer` that is connected to `local`. `None` if there is none on this machine, or if it
    /// is an administrator's and is a socket of this process, or changes hands.
    pub(super) async fn find(&self, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        let kernel = Arc::clone(&self.kernel).lock_owned().await;
        let asked = kernel.as_ref().map(|kernel| kernel.find(peer, local));
        match asked {
            Some(Ok(None)) => return None,
            Some(Ok(Some(found))) if !self.accounts.contains(&found.uid) => return Some(found.uid),
            Some(Ok(Some(_)) | Err(_)) | None => {}
        }
        // Blocks on files; the lock is held until the look is over, also if the connection goes before.
        let look = move || {
            let look = || match kernel.as_ref().map(|kernel| kernel.find(peer, local)) {
                Some(Ok(found)) => found,
                Some(Err(_)) | None => read_lists(peer, local),
            };
            let first = look()?;
            if is_held_here(first.inode) {
                return None;
            }
            let second = look()?;
            (first == second).then_some(first.uid)
        };
        tokio::task::spawn_blocking(look).await.ok()?
    }
}

/// Whether this process has the socket open; also if that cannot be found out.
fn is_held_here(inode: u64) -> bool {
    let socket = format!("socket:[{inode}]");
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return true;
    };
    let mut targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.as_os_str() == socket.as_str())
}

fn read_lists(peer: SocketAddr, local: SocketAddr) -> Option<Owner> {
    // A client may use an IPv6 socket for an IPv4 connection.
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .find_map(|list| {
            search(
                BufReader::new(File::open(list).ok()?.take(MOST_BYTES)),
                peer,
                local,
            )
            .ok()?
        })
}

fn search(
    list: impl io::BufRead,
    peer: SocketAddr,
    local: SocketAddr,
) -> io::Result<Option<Owner>> {
    let (from, to) = (spellings(peer), spellings(local));
    for line in list.lines() {
        let line = line?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let [Some(ours), Some(theirs), Some(state)] = [words.next(), words.next(), words.next()]
        else {
            continue;
        };
        let is_same = |found: &str, wanted: &[String; 2]| wanted.iter().any(|one| one == found);
        if state != ESTABLISHED || !is_same(ours, &from) || !is_same(theirs, &to) {
            continue;
        }
        // tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
        let uid = words.nth(3).and_then(|word| word.parse().ok());
        let inode = words.nth(1).and_then(|word| word.parse().ok());
        if let (Some(uid), Some(inode @ 1..)) = (uid, inode) {
            return Ok(Some(Owner { uid, inode }));
        }
    }
    Ok(None)
}

/// The address in the two lists: each four bytes as one number of this machine, in hexadecimal digits.
fn spellings(address: SocketAddr) -> [String; 2] {
    let mapped = match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let octets = mapped.octets();
    let words = octets.as_chunks::<4>().0.iter();
    let words: Vec<String> = words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect();
    let port = address.port();
    // The last word of a mapped address is the IPv4 address. As IPv4 no list has an IPv6 address, whose spelling is longer.
    let v4 = address.ip().to_canonical().is_ipv4();
    let short = if v4 { words[3].clone() } else { words.concat() };
    [
        format!("{short}:{port:04X}"),
        format!("{}:{port:04X}", words.concat()),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LIST: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0\n\
        1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 101 1 0 20 4 30 10 -1\n\
        2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1\n\
        3: 0100007F:9C41 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n\
        4: 0100007F:9C42 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n\
        garbage\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_client_is_found_and_not_our_own_end() {
        let found = |port: u16| {
            let (peer, local) = (([127, 0, 0, 1], port).into(), ([127, 0, 0, 1], 8080).into());
            search(LIST.as_bytes(), peer, local).expect("read")
        };
        let alice = Owner {
            uid: 1000,
            inode: 101,
        };
        assert_eq!(found(40000), Some(alice));
        assert_eq!(
            found(40001),
            None,
            "closed by its process, listed as root's"
        );
        assert_eq!(found(40002), None, "without a process, listed as root's");
        assert_eq!(found(40003), None);
    }

    #[tokio::test]
    async fn the_kernel_lists_a_connection_of_ours() {
        let ours = rustix::process::getuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                eprintln!("SKIPPED: there is no {address} here");
                continue;
            };
            let local = listener.local_addr().expect("bound");
            let client = TcpStream::connect(local).expect("connected");
            let peer = client.local_addr().expect("connected");
            let found = read_lists(peer, local).expect("a connection");
            assert_eq!(found.uid, ours);
            assert!(is_held_here(found.inode) && !is_held_here(found.inode + 1_000_000));
            for kernel in [KernelList::open().ok(), None] {
                let owners = |accounts| Owners {
                    accounts,
                    kernel: Arc::new(Mutex::new(None)),
                };
                let (owner, other) = (owners(vec![ours]), owners(vec![ours + 1]));
                *owner.kernel.lock().await = kernel;
                assert_eq!(
                    owner.find(peer, local).await,
                    None,
                    "this process is no administrator"
                );
                let kernel = owner.kernel.lock().await.take();
                let is_asked = kernel.is_some();
                *other.kernel.lock().await = kernel;
                let expected = is_asked.then_some(ours);
                assert_eq!(other.find(peer, local).await, expected);
            }
            let (accepted, _) = listener.accept().expect("accepted");
            drop(client);
            assert_eq!(read_lists(peer, local), None, "the client has closed it");
            drop(accepted);
        }
    }
}
