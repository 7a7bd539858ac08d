//! Network namespaces and TUN devices: the system calls that the emulated network is made of.
//!
//! A namespace is made by a thread that ends at once; the descriptor keeps it. Whatever runs in it runs on a
//! thread of its own, because a thread that has moved cannot be used for anything else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The largest packet that the devices take: jumbo frames, as networks for large transfers have them.
pub const PACKET_BYTES: usize = 9000;

/// Packets that a device holds until they are read. They are the host's own queue, before the path's.
const DEVICE_QUEUE: u32 = 2000;

/// The flags of struct ifreq in linux/if_tun.h: packets of IP, without a header before each.
#[expect(clippy::cast_possible_truncation, reason = "flags of 15 bits")]
const TUN_WITHOUT_HEADER: libc::c_short = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;

/// A network of its own, with a loopback device.
#[derive(Debug)]
pub struct Namespace {
    descriptor: File,
}

impl Namespace {
    /// Makes one. Only root may.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn new() -> io::Result<Self> {
        let made = thread::spawn(|| {
            // SAFETY: NEWNET changes what sockets this thread makes from now on, and nothing that other
            // threads share with it, such as the table of descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            let descriptor = File::open("/proc/thread-self/ns/net")?;
            run("ip", &["link", "set", "lo", "up"])?;
            Ok(Self { descriptor })
        });
        made.join().unwrap_or_else(|_| Err(panicked()))
    }

    /// Runs something in the namespace: sockets that it makes and programs that it starts stay there.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; else as the work.
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

    /// Makes a TUN device with an address in the namespace, from which another address is reached, and sets
    /// what is set for every long path: see tcp(7).
    ///
    /// # Errors
    ///
    /// When the kernel has no TUN devices, or refuses.
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

/// The end of a TUN device that programs have: packets that the kernel sends are read from it, and those
/// that are written to it the kernel receives. It never blocks.
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
        // SAFETY: the request fits the descriptor, a TUN device that is attached to nothing.
        unsafe { ioctl(&file, set) }?;
        Ok(Self { file })
    }

    /// The next packet, if there is one.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets the kernel receive a packet. One that it does not take is lost, as on any network.
    pub fn write(&self, packet: &[u8]) {
        // ENOBUFS and EIO are such losses: a full queue, a device that is down.
        let _ = (&self.file).write(packet);
    }

    /// What poll(2) waits for.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// `_IOW('T', 202, int)` in linux/if_tun.h.
const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);

/// Runs a program of the system to its successful end.
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

/// Why there can be no emulated network here; `None` when there can.
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
