//! The cost of memory registration: files are read into a ring that was registered once, or sent from their own pages,
//! which are pinned for each send, or stay pinned for the next send.
//!
//! Table 1 of the paper on `mod_rdma` and the buffer lists in the paper on PVFS over InfiniBand compare the same: from
//! which size on is a registration cheaper than a copy, and how much does a pin-down cache save? Both
//! ends are threads of this process; the processor time is that of the sending thread.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::{Rdma, memory_load};
use gridhaul_stack::{Body, Cancel, Channel, FileRange, Operation, Registry, SocketOptions};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use rustix::time::{ClockId, clock_gettime};

use super::pump::PumpError;
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::table;

/// The registration of the memory that the device reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// Files are read into a ring that was registered when the channel was opened.
    Static,
    /// Pages are pinned for each send: the file is touched before it, which invalidates the pin-down cache.
    Dynamic,
    /// Pages are found in the pin-down cache, except at the first send.
    Kept,
}

impl Registration {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Static, Self::Dynamic, Self::Kept];

    fn option(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic | Self::Kept => "dynamic",
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Kept => "pin-down cache",
        })
    }
}

/// The parameters of the measurement.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Further driver options, such as `provider=verbs`.
    pub options: String,
    /// The address of the receiving end.
    pub to: IpAddr,
    /// The duration of each measurement.
    pub time: Duration,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Bytes per second.
    pub rate: f64,
    /// Processor seconds of the sending thread for 10^9 bytes.
    pub processor_seconds: f64,
    /// The maximum that the kernel had pinned for devices, in bytes.
    pub pinned_bytes: u64,
    /// The maximum that rings and sections used of their bound, in bytes.
    pub used_bytes: u64,
}

/// The size of the file that is sent repeatedly: small enough to stay pinned beside the rings.
const FILE_BYTES: usize = 8 << 20;

/// The ring in options of the driver.
const RING: &str = "slab=16M;slabs=4";

/// The time without a change after which the driver trusts the file's timestamps.
const SETTLES_IN: Duration = Duration::from_millis(2500);

impl Bench {
    /// Measures all kinds of registration and all sizes.
    ///
    /// # Errors
    ///
    /// As [`Bench::measure`].
    pub fn section(&self) -> Result<Section, PumpError> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut rows = Vec::new();
        for size in SIZES {
            for (load, spinning) in LOADS.into_iter().zip([0, 2 * processors]) {
                let costs = Registration::ALL
                    .map(|registration| self.measure(registration, size, spinning));
                let costs = costs.into_iter().collect::<Result<_, _>>()?;
                rows.push(Row { size, load, costs });
            }
        }
        let bound = memory_load().limit_bytes;
        let most = rows
            .iter()
            .map(Row::most_of_bound)
            .max()
            .unwrap_or_default();
        Ok(Section {
            title: "Registration".to_owned(),
            description: format!(
                "The paper on mod_rdma, table 1, and the buffer lists in the paper on PVFS. Ranges of a file with `{}`: \
                 MB/s, and processor seconds of the sender for 10^9 bytes. The load is two busy threads for each processor.",
                self.options
            ),
            table: table(HEADING, rows.iter().map(Row::cells).collect()),
            targets: vec![Target {
                wanted: format!("at most the bound pinned, {} MiB", bound >> 20),
                found: format!("{} MiB", most >> 20),
                is_met: most <= bound,
            }],
            pictures: vec![Picture {
                name: "rdma-registration.svg".to_owned(),
                plot: plot(&rows),
            }],
        })
    }

    /// Sends ranges of `size` bytes for a time, with `spinning` busy threads as load.
    ///
    /// # Errors
    ///
    /// When the channel does not open, or fails.
    pub fn measure(
        &self,
        registration: Registration,
        size: usize,
        spinning: usize,
    ) -> Result<Cost, PumpError> {
        let mut registry = Registry::new();
        registry.register(Rdma);
        let (register, options) = (registration.option(), &self.options);
        let stack = format!("rdma:{RING};register={register};{options}");
        let stack = registry.build(&StackSpec::parse(stack.trim_end_matches(';'))?)?;
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: Some(Instant::now() + self.time + Duration::from_secs(60)),
            cancel: &cancel,
        };
        let file = file_to_send()?;
        let mut listener = stack.listen(self.to, &SocketOptions::default())?;
        let address = listener.address();
        thread::scope(|scope| {
            let receiving = scope.spawn(|| -> Result<(), PumpError> {
                receive_all(
                    &mut *listener.accept(&operation)?.establish(&operation)?,
                    &operation,
                )
            });
            let mut sender = stack.connect(address, &SocketOptions::default(), &operation)?;
            let is_over = AtomicBool::new(false);
            let cost = thread::scope(|scope| {
                for _ in 0..spinning {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                let watching = scope.spawn(|| watch(&is_over));
                let sent = self.send(registration, &mut *sender, &file, size, &operation);
                is_over.store(true, Ordering::Relaxed);
                let (pinned_bytes, used_bytes) = watching.join().expect("sampling does not panic");
                sent.map(|(rate, processor_seconds)| Cost {
                    rate,
                    processor_seconds,
                    pinned_bytes,
                    used_bytes,
                })
            })?;
            sender.finish(&operation)?;
            drop(sender);
            receiving.join().expect("receiving does not panic")?;
            Ok(cost)
        })
    }

    /// Bytes per second, and processor seconds for 10^9 bytes.
    fn send(
        &self,
        registration: Registration,
        sender: &mut dyn Channel,
        file: &File,
        size: usize,
        operation: &Operation<'_>,
    ) -> Result<(f64, f64), PumpError> {
        let mut scratch = [0; 4096];
        let moved = AtomicU64::new(0);
        let mut once = |offset: usize| -> Result<(), PumpError> {
            if registration == Registration::Dynamic {
                touch(file)?;
            }
            let range = FileRange::new(
                file.as_fd(),
                offset as u64,
                size as u64,
                &mut scratch,
                &moved,
            );
            Ok(sender.send(&[], Body::File(range), operation)?)
        };
        let offsets = || (0..FILE_BYTES).step_by(size);
        // A first pass, so that one-time costs do not count.
        offsets().try_for_each(&mut once)?;
        let before = moved.load(Ordering::Relaxed);
        let processor = processor_time();
        let began = Instant::now();
        let mut turns = offsets().cycle();
        while began.elapsed() < self.time {
            once(turns.next().expect("an endless iterator"))?;
        }
        let bytes = (moved.load(Ordering::Relaxed) - before) as f64;
        let processor = processor_time().saturating_sub(processor);
        let rate = bytes / began.elapsed().as_secs_f64();
        Ok((rate, processor.as_secs_f64() * 1e9 / bytes))
    }
}

/// The costs of one size with one load.
struct Row {
    size: usize,
    load: &'static str,
    /// In the order of [`Registration::ALL`].
    costs: Vec<Cost>,
}

const SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const LOADS: [&str; 2] = ["idle", "loaded"];

const HEADING: [&str; 7] = [
    "range",
    "processor",
    "static",
    "dynamic",
    "pin-down cache",
    "most of the bound, MiB",
    "most pinned, MiB",
];

impl Row {
    fn cells(&self) -> [String; 7] {
        let cost = |at: usize| {
            let Cost {
                rate,
                processor_seconds,
                ..
            } = self.costs[at];
            format!("{:.0}, {processor_seconds:.2}", rate / 1e6)
        };
        [
            range(self.size),
            self.load.to_owned(),
            cost(0),
            cost(1),
            cost(2),
            (self.most(|cost| cost.used_bytes) >> 20).to_string(),
            (self.most(|cost| cost.pinned_bytes) >> 20).to_string(),
        ]
    }

    /// The larger of the driver's count and the kernel's, because the driver's count may be wrong.
    fn most_of_bound(&self) -> u64 {
        self.most(|cost| cost.used_bytes.max(cost.pinned_bytes))
    }

    fn most(&self, number: fn(&Cost) -> u64) -> u64 {
        self.costs.iter().map(number).max().unwrap_or_default()
    }
}

fn range(bytes: usize) -> String {
    format!("{} KiB", bytes >> 10)
}

fn plot(rows: &[Row]) -> Plot {
    let mut lines = Vec::new();
    for load in LOADS {
        let loaded = || rows.iter().filter(|row| row.load == load);
        for (at, registration) in Registration::ALL.into_iter().enumerate() {
            let points = loaded().enumerate();
            lines.push(PlotLine {
                name: format!("{registration}, {load}"),
                is_model: false,
                points: points
                    .map(|(place, row)| [place as f64, row.costs[at].rate / 1e6])
                    .collect(),
            });
        }
    }
    Plot {
        title: "Registration".to_owned(),
        horizontal: Axis::steps("range", SIZES.map(range)),
        vertical: "MB/s".to_owned(),
        lines,
    }
}

fn receive_all(receiver: &mut dyn Channel, operation: &Operation<'_>) -> Result<(), PumpError> {
    let sink = File::options().write(true).open("/dev/null")?;
    let (mut scratch, moved) = ([0; 4096], AtomicU64::new(0));
    let range = FileRange::new(sink.as_fd(), 0, 1 << 50, &mut scratch, &moved);
    receiver.receive_into(range, operation)?;
    Ok(())
}

/// A file in the page cache with settled timestamps.
fn file_to_send() -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&vec![1; FILE_BYTES])?;
    thread::sleep(SETTLES_IN);
    Ok(file)
}

fn touch(file: &File) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(futimens(file, &times)?)
}

/// Samples the pinned bytes and the use of the bound until it is over; returns the maximum of both.
fn watch(is_over: &AtomicBool) -> (u64, u64) {
    let (mut pinned, mut used) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        pinned = pinned.max(kernel_pinned_bytes());
        used = used.max(memory_load().used_bytes);
        thread::sleep(Duration::from_millis(5));
    }
    (pinned, used)
}

/// proc_pid_status(5): `VmPin` counts pages that cannot be moved because a device uses their addresses.
fn kernel_pinned_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registration_moves_bytes_within_the_bound() {
        let bench = Bench {
            options: "provider=soft".to_owned(),
            to: "127.0.0.1".parse().unwrap(),
            time: Duration::from_millis(50),
        };
        for registration in Registration::ALL {
            let cost = bench.measure(registration, 256 << 10, 0).unwrap();
            assert!(cost.rate > 0.0, "{registration}: {cost:?}");
            assert!(
                cost.used_bytes <= memory_load().limit_bytes,
                "{registration}: {cost:?}"
            );
        }
    }
}
