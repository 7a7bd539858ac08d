//! Forwards packets between two devices with the properties of a path.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Link, Path};
use super::tunnel::{Device, PACKET_BYTES};

/// The interval at which a direction checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The random seeds of the two directions.
const SEEDS: [u64; 2] = [0x51f1_5e3d_9b6c_0a11, 0x2c9e_77aa_1d84_6f05];

/// Forwards in both directions until it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
    directions: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    devices: [Device; 2],
    ended: AtomicBool,
    /// Delivered packets, and lost ones.
    carried: AtomicU64,
    lost: AtomicU64,
}

/// A packet in flight.
#[derive(Debug)]
struct Packet {
    arrives: Duration,
    bytes: Vec<u8>,
}

/// One direction, on a separate thread.
#[derive(Debug)]
struct Direction {
    shared: Arc<Shared>,
    from: usize,
    link: Link,
    began: Instant,
    /// In the order of arrival: the delay is constant.
    in_flight: VecDeque<Packet>,
    /// Buffers of delivered packets, for reuse.
    spare: Vec<Vec<u8>>,
}

impl Forwarder {
    /// Starts forwarding packets between two devices.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(devices: [Device; 2], path: Path) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            devices,
            ended: AtomicBool::new(false),
            carried: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let mut forwarder = Self {
            shared,
            directions: Vec::new(),
        };
        for (from, seed) in SEEDS.into_iter().enumerate() {
            let mut direction = Direction {
                shared: Arc::clone(&forwarder.shared),
                from,
                link: Link::new(path, seed),
                began: Instant::now(),
                in_flight: VecDeque::new(),
                spare: Vec::new(),
            };
            let thread = thread::Builder::new().name("path".to_owned());
            let thread = thread.spawn(move || direction.run())?;
            forwarder.directions.push(thread);
        }
        Ok(forwarder)
    }

    /// The number of delivered and of lost packets.
    pub fn packets(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.shared.carried), count(&self.shared.lost))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            let _ = direction.join();
        }
    }
}

impl Direction {
    fn run(&mut self) {
        while !self.shared.ended.load(Ordering::Relaxed) {
            self.deliver();
            // An error of a device or of poll(2) ends the path.
            if self.accept().is_err() || self.wait().is_err() {
                return;
            }
        }
    }

    /// Delivers the packets that are due.
    fn deliver(&mut self) {
        let now = self.began.elapsed();
        while let Some(packet) = self.in_flight.pop_front_if(|packet| packet.arrives <= now) {
            self.shared.devices[1 - self.from].write(&packet.bytes);
            self.shared.carried.fetch_add(1, Ordering::Relaxed);
            self.spare.push(packet.bytes);
        }
    }

    /// Reads sent packets. The link drops packets beyond its queue, so that memory use is bounded.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(PACKET_BYTES, 0);
            let Some(count) = self.shared.devices[self.from].read(&mut bytes)? else {
                self.spare.push(bytes);
                return Ok(());
            };
            bytes.truncate(count);
            match self.link.arrival(self.began.elapsed(), count) {
                Some(arrives) => self.in_flight.push_back(Packet { arrives, bytes }),
                None => {
                    self.shared.lost.fetch_add(1, Ordering::Relaxed);
                    self.spare.push(bytes);
                }
            }
            // Due packets must not wait for the end of a burst.
            self.deliver();
        }
    }

    /// Sleeps until a packet is sent or one is due.
    fn wait(&self) -> io::Result<()> {
        let until = match self.in_flight.front() {
            Some(packet) => packet
                .arrives
                .saturating_sub(self.began.elapsed())
                .min(CHECK_INTERVAL),
            None => CHECK_INTERVAL,
        };
        let until = Timespec::try_from(until).map_err(io::Error::other)?;
        let device = self.shared.devices[self.from].file();
        poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&until))?;
        Ok(())
    }
}
