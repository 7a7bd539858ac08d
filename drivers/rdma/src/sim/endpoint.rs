//! An endpoint over a simulated fabric.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_stack::Detail;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::event::Place;
use super::fabric::Fabric;
use super::queue_pair::QueuePair;
use super::settings::FabricSettings;
use crate::handshake::MAX_INLINE_BYTES;
use crate::memory::{Memory, Part};
use crate::provider::{Access, Completion, Endpoint, Limits, PostError, Region, Request, Work};

/// A fabric that endpoints share.
#[derive(Debug, Clone)]
pub(crate) struct SharedFabric {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    fabric: Fabric,
    /// The start of real time; `None` if a test advances the time.
    epoch: Option<Instant>,
    /// The timers of both ends of each channel.
    alarms: Vec<[Arc<OwnedFd>; 2]>,
}

/// Outstanding READs of one queue pair, as with hardware.
const READS: usize = 16;

/// The largest message of InfiniBand, in bytes (9.7.7).
const MESSAGE_BYTES: usize = 1 << 31;

impl SharedFabric {
    /// A fabric whose time a test advances.
    pub(crate) fn new(settings: FabricSettings) -> Self {
        Self::with_epoch(settings, None)
    }

    /// A fabric in real time.
    pub(crate) fn in_real_time(settings: FabricSettings) -> Self {
        Self::with_epoch(settings, Some(Instant::now()))
    }

    fn with_epoch(settings: FabricSettings, epoch: Option<Instant>) -> Self {
        let shared = Shared {
            fabric: Fabric::new(settings),
            epoch,
            alarms: Vec::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Connects both ends of a channel; the first one is at the first host.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn connect(&self, queue_pairs: usize) -> io::Result<[SimEndpoint; 2]> {
        let alarm = || {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            Ok::<_, io::Error>(Arc::new(timerfd_create(TimerfdClockId::Monotonic, flags)?))
        };
        let alarms = [alarm()?, alarm()?];
        let mut shared = self.lock();
        let channel = shared.fabric.connect(queue_pairs);
        shared.alarms.push(alarms.clone());
        let [first, second] = alarms;
        let end = |host, alarm| SimEndpoint {
            fabric: self.clone(),
            host,
            channel,
            queue_pairs,
            alarm,
        };
        Ok([end(0, first), end(1, second)])
    }

    /// How long packets of a host travel.
    pub(crate) fn delay(&self, host: usize) -> Duration {
        self.lock().fabric.settings.links[host].delay
    }

    /// The time of the next event.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.lock().fabric.next_at()
    }

    /// Handles all events until `now`.
    pub(crate) fn run_until(&self, now: Duration) {
        self.lock().fabric.run_until(now);
    }

    /// Trains of a host that lost packets on the way.
    pub(crate) fn dropped(&self, host: usize) -> u64 {
        let shared = self.lock();
        let ports = &shared.fabric.hosts[host].ports;
        ports.iter().map(|port| port.wire.dropped()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // If a test fails elsewhere, that failure is reported and not a poisoned lock.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an action at the present time.
    fn act<T>(&self, action: impl FnOnce(&mut Fabric) -> T) -> T {
        let mut shared = self.lock();
        let Some(epoch) = shared.epoch else {
            return action(&mut shared.fabric);
        };
        shared.fabric.run_until(epoch.elapsed());
        let outcome = action(&mut shared.fabric);
        shared.set_alarms(epoch);
        outcome
    }
}

impl Shared {
    /// Wakes the ends with completions, and the others at the next event.
    fn set_alarms(&self, epoch: Instant) {
        let next = self.fabric.next_at();
        for (channel, alarms) in self.alarms.iter().enumerate() {
            for (host, alarm) in alarms.iter().enumerate() {
                let end = &self.fabric.hosts[host].ends[channel];
                let after = match next {
                    _ if !end.completions.is_empty() => Some(Duration::ZERO),
                    Some(at) => Some(at.saturating_sub(epoch.elapsed())),
                    None => None,
                };
                set_alarm(alarm, after);
            }
        }
    }
}

/// Makes a descriptor readable after a time, or never.
fn set_alarm(alarm: &OwnedFd, after: Option<Duration>) {
    // timerfd_settime(2): a time of zero would disarm it.
    let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let value = Timespec::try_from(after).unwrap_or(zero);
    let once = Itimerspec {
        it_interval: zero,
        it_value: value,
    };
    // It fails only for wrong arguments.
    let _ = timerfd_settime(alarm, TimerfdTimerFlags::empty(), &once);
}

/// One end of a channel over a simulated fabric.
#[derive(Debug)]
pub(crate) struct SimEndpoint {
    fabric: SharedFabric,
    host: usize,
    channel: usize,
    queue_pairs: usize,
    alarm: Arc<OwnedFd>,
}

/// The memory of one end of a channel, without the endpoint.
#[derive(Debug)]
pub(crate) struct Addresses {
    fabric: SharedFabric,
    host: usize,
    channel: usize,
}

impl Addresses {
    /// Registers memory without content.
    pub(crate) fn register(&self, length: u64, access: Access) -> Region {
        self.fabric.act(|fabric| {
            let end = &mut fabric.hosts[self.host].ends[self.channel];
            let random = &mut fabric.random;
            end.regions.add(None, length, access, random)
        })
    }

    /// A region holds its part of a pool until it is deregistered.
    pub(crate) fn hold(&self, region: usize, part: Part) {
        self.fabric.act(|fabric| {
            let end = &mut fabric.hosts[self.host].ends[self.channel];
            end.regions.hold(region, part);
        });
    }

    /// The present time.
    pub(crate) fn now(&self) -> Duration {
        self.fabric.act(|fabric| fabric.now)
    }
}

impl SimEndpoint {
    /// Registers memory that has addresses but no content.
    pub(crate) fn register_addresses(&mut self, length: u64, access: Access) -> Region {
        self.add(None, length, access)
    }

    /// The memory of this end.
    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            fabric: self.fabric.clone(),
            host: self.host,
            channel: self.channel,
        }
    }

    /// The length of all memory that is registered, in bytes.
    #[cfg(test)]
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.fabric
            .act(|fabric| fabric.hosts[self.host].ends[self.channel].regions.bytes())
    }

    /// The device gives up a queue pair.
    #[cfg(test)]
    pub(crate) fn break_queue_pair(&self, queue_pair: usize) {
        self.fabric.act(|fabric| {
            let place = self.place(fabric, queue_pair);
            fabric.fail(place, "the device has an error");
        });
    }

    /// Takes the place of another end, which has no memory of its own, with the memory of this one.
    pub(crate) fn move_to(&mut self, other: Self) {
        let left = std::mem::replace(self, other);
        let regions = left
            .fabric
            .act(|fabric| std::mem::take(&mut fabric.hosts[left.host].ends[left.channel].regions));
        self.fabric
            .act(|fabric| fabric.hosts[self.host].ends[self.channel].regions = regions);
    }

    /// Whether [`Endpoint::poll`] has something to report.
    pub(crate) fn has_completions(&self) -> bool {
        let shared = self.fabric.lock();
        let end = &shared.fabric.hosts[self.host].ends[self.channel];
        !end.completions.is_empty()
    }

    /// Whether the descriptor would be readable after [`Endpoint::watch`].
    pub(crate) fn has_events(&self, wants_requests: bool) -> bool {
        let shared = self.fabric.lock();
        let end = &shared.fabric.hosts[self.host].ends[self.channel];
        let is_event = |one: &Completion| wants_requests || !matches!(one, Completion::Done { .. });
        end.completions.iter().any(is_event)
    }

    fn add(&self, memory: Option<Arc<Memory>>, length: u64, access: Access) -> Region {
        self.fabric.act(|fabric| {
            let end = &mut fabric.hosts[self.host].ends[self.channel];
            end.regions.add(memory, length, access, &mut fabric.random)
        })
    }

    /// The sum of a device's counter over the queue pairs of a rail, if the devices count.
    fn count(&self, rail: usize, counter: impl Fn(&QueuePair) -> u64) -> Option<u64> {
        let shared = self.fabric.lock();
        let end = &shared.fabric.hosts[self.host].ends[self.channel];
        let on_rail = end
            .queue_pairs
            .iter()
            .skip(rail)
            .step_by(shared.fabric.rails());
        let count = on_rail.map(counter).sum();
        shared.fabric.settings.counts_repeats.then_some(count)
    }

    fn place(&self, fabric: &Fabric, queue_pair: usize) -> Place {
        let end = &fabric.hosts[self.host].ends[self.channel];
        Place {
            host: self.host,
            channel: self.channel,
            queue_pair,
            generation: end.queue_pairs[queue_pair].generation,
        }
    }
}

impl Endpoint for SimEndpoint {
    fn limits(&self) -> Limits {
        let shared = self.fabric.lock();
        let settings = &shared.fabric.settings;
        let end = &shared.fabric.hosts[self.host].ends[self.channel];
        Limits {
            queue_pairs: self.queue_pairs,
            rails: shared.fabric.rails(),
            depth: settings.depth,
            reads: READS,
            message_bytes: MESSAGE_BYTES,
            payload_bytes: usize::from(MAX_INLINE_BYTES),
            needs_polling: false,
            immediate: settings.immediate,
            over_tcp: false,
            replaces: settings.replaces && !end.is_ended,
        }
    }

    fn repeats(&self, rail: usize) -> Option<u64> {
        self.count(rail, |queue_pair| queue_pair.repeats)
    }

    fn misses(&self, rail: usize) -> Option<u64> {
        self.count(rail, |queue_pair| queue_pair.misses)
    }

    fn details(&self) -> Vec<Detail> {
        vec![Detail::text("provider", "sim")]
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        let length = memory.length() as u64;
        Ok(self.add(Some(Arc::clone(memory)), length, access))
    }

    fn further_keys(&self, region: usize) -> Vec<u32> {
        let shared = self.fabric.lock();
        let end = &shared.fabric.hosts[self.host].ends[self.channel];
        let rails = 1..shared.fabric.rails();
        rails.map(|rail| end.regions.key(region, rail)).collect()
    }

    fn deregister(&mut self, region: usize) {
        self.fabric.act(|fabric| {
            let end = &mut fabric.hosts[self.host].ends[self.channel];
            end.regions.remove(region);
        });
    }

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        self.fabric.act(|fabric| {
            let place = self.place(fabric, queue_pair);
            let depth = fabric.settings.depth;
            let known = fabric.queue_pair(place);
            if !known.living {
                return Err(PostError::Lost);
            }
            let is_read = matches!(request.work, Work::Read { .. });
            if known.pending() >= depth || is_read && known.reads() >= READS {
                return Err(PostError::Full);
            }
            known.post(request);
            fabric.queue(place);
            Ok(())
        })
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.fabric.act(|fabric| {
            let end = &mut fabric.hosts[self.host].ends[self.channel];
            completions.extend(end.completions.drain(..));
        });
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        self.fabric.act(|fabric| {
            queue_pair < self.queue_pairs && {
                let place = self.place(fabric, queue_pair);
                fabric.give_up(place, None)
            }
        })
    }

    fn end(&mut self) {
        self.fabric
            .act(|fabric| fabric.finish(self.host, self.channel));
    }

    fn abort(&mut self) {
        self.fabric
            .act(|fabric| fabric.abort(self.host, self.channel));
    }
}

/// Posted requests are still carried out. Then the other end learns that this one is closed.
impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.fabric
            .act(|fabric| fabric.leave(self.host, self.channel));
    }
}
