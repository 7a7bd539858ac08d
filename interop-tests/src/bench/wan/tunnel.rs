//! Network namespaces and TUN devices: the system calls of the emulated network.
//!
//! A short-lived thread makes a namespace; a descriptor keeps it alive. Work in a namespace runs on a
//! separate thread, because setns(2) changes the thread for the rest of its life.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The MTU of the devices: jumbo frames, as in networks for large transfers.
pub const PACKET_BYTES: usize = 9000;

/// The transmit queue of a device, in packets. It is the queue of the host, before that of the path.
const DEVICE_QUEUE: u32 = 2000;

/// The flags of struct ifreq in linux/if_tun.h: IP packets without a header.
#[expect(clippy::cast_possible_truncation, reason = "flags of 15 bits")]
const TUN_WITHOUT_HEADER: libc::c_short = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;

/// A network namespace with a loopback device.
#[derive(Debug)]
pub struct Namespace {
    descriptor: File,
}

impl Namespace {
    /// Makes one, which needs root.
    ///
    /// # Errors
    ///
    /// When a system call fails.
    pub fn new() -> io::Result<Self> {
        let made = thread::spawn(|| {
            // SAFETY: NEWNET only changes the namespace of sockets that this thread makes later. It affects nothing that
            // other threads share, such as the table of descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            let descriptor = File::open("/proc/thread-self/ns/net")?;
            run("ip", &["link", "set", "lo", "up"])?;
            Ok(Self { descriptor })
        });
        made.join().unwrap_or_else(|_| Err(panicked()))
    }

    /// Runs `work` in the namespace. Its sockets and child processes stay there.
    ///
    /// # Errors
    ///
    /// When a system call fails; else the error of `work`.
    pub fn within<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<io::Error> + Send,
    {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.descriptor.as_fd(), kind)
                    .map_err(io::Error::from)?;
                work()
            });
            inside.join().unwrap_or_else(|_| Err(panicked().into()))
        })
    }

    /// Makes a TUN device with an address and a peer address in the namespace, and sets
    /// the sysctls of tcp(7).
    ///
    /// # Errors
    ///
    /// When the kernel has no TUN devices, or a system call fails.
    pub fn device(
        &self,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        settings: &[(&str, &str)],
    ) -> io::Result<Device> {
        self.within(|| {
            let device = Device::open()?;
            let [address, peer] = [address, peer].map(|address| address.to_string());
            run("ip", &["addr", "add", &address, "peer", &peer, "dev", NAME])?;
            let [packet, queue] = [PACKET_BYTES.to_string(), DEVICE_QUEUE.to_string()];
            let words = [
                "link",
                "set",
                NAME,
                "mtu",
                &packet,
                "txqueuelen",
                &queue,
                "up",
            ];
            run("ip", &words)?;
            for (name, value) in settings {
                std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)?;
            }
            Ok(device)
        })
    }
}

/// The name of each device in its namespace.
const NAME: &str = "path0";

/// The file of a TUN device: reads return packets that the kernel sends, and the kernel receives packets that
/// are written to it. It is non-blocking.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    fn open() -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: all bytes zero is a valid ifreq: names and numbers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
            *place = byte.cast_signed();
        }
        request.ifr_ifru.ifru_flags = TUN_WITHOUT_HEADER;
        // SAFETY: TUNSETIFF takes a struct ifreq, which it also writes to; the setter has a copy of it.
        let set = unsafe { Setter::<{ TUNSETIFF }, libc::ifreq>::new(request) };
        // SAFETY: the request fits the descriptor, a TUN device that is not attached yet.
        unsafe { ioctl(&file, set) }?;
        Ok(Self { file })
    }

    /// The next packet, if there is one.
    ///
    /// # Errors
    ///
    /// When the device has been removed.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a packet for the kernel to receive. A packet that it does not accept is lost, as on any network.
    pub fn write(&self, packet: &[u8]) {
        // ENOBUFS (full queue) and EIO (device down) are such losses.
        let _ = (&self.file).write(packet);
    }

    /// The file, for poll(2).
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// `_IOW('T', 202, int)` in linux/if_tun.h.
const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);

/// Runs a program to its successful end.
fn run(program: &str, words: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = format!("{program} {}: {}", words.join(" "), said.trim());
    Err(io::Error::other(line))
}

fn panicked() -> io::Error {
    io::Error::other("a thread in a network namespace panicked")
}

/// Why this machine has no emulated network; `None` if it has.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make network namespaces".to_owned());
    }
    match Namespace::new().and_then(|namespace| namespace.within(Device::open)) {
        Ok(_) => None,
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            Some("there is no /dev/net/tun, or no program `ip`".to_owned())
        }
        Err(error) => Some(format!("no network namespace with a TUN device: {error}")),
    }
}
