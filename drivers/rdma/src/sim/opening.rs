//! Channels with the default options of the driver, which the two ends open as over devices.
//!
//! The rings, the queue pairs and the messages follow from the functions that open a channel ([`agreement`]), and memory
//! from the pool of each machine. Threads take time to prepare it: for the first rings before data flows, for further ones
//! meanwhile. The round trips of the handshake are not simulated.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_stack::{Cancel, Driver as _, Flow, Operation, Party, Side};

use super::experiment::{ExperimentError, Outcome};
use super::link::Link;
use super::preparation::Preparation;
use super::run::{Run, RunSettings};
use super::settings::FabricSettings;
use super::supply::Supplies;
use crate::Rdma;
use crate::engine::Ring;
use crate::handshake::{Offer, PathRecord};
use crate::memory::{Holder, Lengths, Part, Pool, Share, default_part};
use crate::open::agreement::{self, Load, RingRules};
use crate::open::queue_pairs::{self, written_at_once};
use crate::open::ring_length::{self, MostGrown, requests};
use crate::open::shape::{Shaping, message_in};
use crate::pacing::{Path, Rate};
use crate::settings::Settings;
use crate::verbs::DEPTH;

/// Data between two servers: both ends serve a client, and know the rate of their ports.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// The path in both directions.
    pub link: Link,
    /// The round trip that both ends have measured.
    pub round_trip: Duration,
    /// The channels, which share the path.
    pub channels: usize,
    /// The memory of each machine in bytes; rings may take the default part of it.
    pub memory_bytes: u64,
    /// How long rings take to be there.
    pub preparation: Preparation,
}

/// What such channels did.
#[derive(Debug, Clone)]
pub struct DefaultsOutcome {
    /// The time before data flows, in which both ends prepare their first rings.
    pub opening: Duration,
    /// The results from then on.
    pub outcome: Outcome,
    /// The length of an interval: the time in which the port sends two rings that fill the path.
    pub interval: Duration,
    /// The rings of the first channel at first, and at the end.
    pub rings: [Rings; 2],
    /// The queue pairs of a channel.
    pub queue_pairs: usize,
    /// The requests that may be outstanding on each.
    pub requests: usize,
    /// The most memory that the sending and the receiving machine had reserved for rings and messages, in bytes.
    pub most_bytes: [u64; 2],
}

/// The rings that data goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// The length of the sender's and of the receiver's in bytes.
    pub bytes: [u64; 2],
    /// The longest message in bytes.
    pub message_bytes: u64,
}

/// The memory of each end of a channel, with the parts of its two rings.
type Shares = [(Arc<Share>, [Part; 2]); 2];

/// What the two ends of a channel agreed on.
struct Agreed {
    chosen: Offer,
    shares: Shares,
    /// The length to which each end lets rings grow.
    most_grown: [MostGrown; 2],
}

impl Defaults {
    /// Between machines with so much memory, in bytes, which is prepared in the measured time.
    pub fn new(link: Link, channels: usize, memory_bytes: u64) -> Self {
        Self {
            round_trip: 2 * link.delay,
            link,
            channels,
            memory_bytes,
            preparation: Preparation::MEASURED,
        }
    }

    /// Whether the rings may become longer than the first ones.
    ///
    /// # Errors
    ///
    /// When the machines have too little memory for the channels.
    pub fn grows(&self) -> Result<bool, ExperimentError> {
        let pools = self.pools();
        let agreed = self.agree(&settings(), &pools)?;
        Ok(agreed.chosen.grows)
    }

    /// The length of an interval. A piece is a sixteenth of a ring, and only whole pieces count as delivered: an interval of two
    /// rings has them to 3 %.
    pub fn interval(&self) -> Duration {
        let ring = ring_length::of_path(self.path(), self.channels).get();
        let bytes = 2 * ring * self.channels.max(1) as u64;
        Duration::from_secs_f64(bytes as f64 / self.link.rate as f64)
    }

    /// Runs the channels with endless streams for so many intervals.
    ///
    /// # Errors
    ///
    /// When the machines or the process have too little for the channels, or the engine has a fault.
    pub fn run(&self, intervals: u32) -> Result<DefaultsOutcome, ExperimentError> {
        let settings = settings();
        let pools = self.pools();
        let agreed = (0..self.channels.max(1)).map(|_| self.agree(&settings, &pools));
        let agreed = agreed.collect::<Result<Vec<_>, _>>()?;
        let Some(chosen) = agreed.first().map(|agreed| agreed.chosen) else {
            return Err(ExperimentError::Memory("there is no channel".to_owned()));
        };
        let queue_pairs = usize::from(chosen.queue_pairs);
        let depth = requests(usize::from(chosen.pieces).div_ceil(queue_pairs));
        let mut run = Run::new(FabricSettings {
            depth,
            ..FabricSettings::new(self.link.clone())
        });
        let opening = agreed.iter().map(|agreed| self.opening(agreed)).max();
        let mut kept = Vec::new();
        for (channel, agreed) in agreed.into_iter().enumerate() {
            kept.extend(self.open(&mut run, channel, agreed, (&settings, depth))?);
        }
        let shaping = shaping(&settings, chosen, depth);
        let first = rings(&run, shaping);
        let mut most_bytes = [0; 2];
        let watch = || {
            for (most, pool) in most_bytes.iter_mut().zip(&pools) {
                *most = pool.load().used_bytes.max(*most);
            }
        };
        let interval = self.interval();
        let path = Path::new(Rate::Any, settings.message);
        let outcome = Outcome::of(&mut run, &path, intervals * interval, interval, watch)?;
        let rings = [first, rings(&run, shaping)];
        drop(kept);
        Ok(DefaultsOutcome {
            opening: opening.unwrap_or_default(),
            outcome,
            interval,
            rings,
            queue_pairs,
            requests: depth,
            most_bytes,
        })
    }

    fn path(&self) -> PathRecord {
        PathRecord {
            rate: NonZeroU64::new(self.link.rate),
            round_trip: self.round_trip,
        }
    }

    fn pools(&self) -> [Arc<Pool>; 2] {
        [(); 2].map(|()| Pool::new(default_part(self.memory_bytes), u64::MAX))
    }

    /// The handshake: the sending end connects, with an adapter as every device has it.
    fn agree(
        &self,
        settings: &Settings,
        pools: &[Arc<Pool>; 2],
    ) -> Result<Agreed, ExperimentError> {
        let no_slots = |error: agreement::NoSlots| ExperimentError::Memory(error.to_string());
        let [connects, accepts] = pools
            .each_ref()
            .map(|pool| RingRules::new(settings, pool, true));
        let path = self.path();
        let load = Load {
            flow: Flow::Out,
            channels: self.channels,
            over_tcp: false,
        };
        let mut sends = take(
            &pools[0],
            Side::Connector,
            settings,
            connects.offered(path, load),
        )?;
        let offer = self.offer(settings, sends.rings());
        let offer = agreement::offer_with_slots(offer, &mut sends).map_err(no_slots)?;

        let own = self.offer(settings, Lengths::both(accepts.acceptable(path)));
        let (wanted, most_accepted) = accepts.accepted(offer.within(own), path);
        let rings = wanted.rings.reversed();
        let mut receives = take(&pools[1], Side::Acceptor, settings, rings)?;
        let chosen = agreement::choose(wanted, &mut receives, true).map_err(no_slots)?;

        sends.shrink(chosen.rings);
        sends.set_extra(chosen.slot_bytes());
        Ok(Agreed {
            chosen,
            shares: [sends.without_pages(), receives.without_pages()],
            most_grown: [connects.most_grown(path, chosen.mode), most_accepted],
        })
    }

    /// The offer of an end, with the usual number of queue pairs.
    fn offer(&self, settings: &Settings, rings: Lengths) -> Offer {
        let queue_pairs = queue_pairs::usual(
            self.link.rate,
            self.round_trip,
            rings.longer(),
            written_at_once(DEPTH, settings.message),
            self.channels,
        );
        settings.offer(rings, queue_pairs, [1, 1])
    }

    /// Each end maps and pins one ring after the other, both ends at the same time.
    fn opening(&self, agreed: &Agreed) -> Duration {
        let of_end = |(_, parts): &(_, [Part; 2])| -> Duration {
            let times = parts.iter().map(|part| self.preparation.time(part.bytes()));
            times.sum()
        };
        agreed.shares.iter().map(of_end).max().unwrap_or_default()
    }

    /// Opens a channel with an endless stream. Returns the memory of rings that stay as they are.
    fn open(
        &self,
        run: &mut Run,
        channel: usize,
        agreed: Agreed,
        (settings, depth): (&Settings, usize),
    ) -> Result<Option<Shares>, ExperimentError> {
        let chosen = agreed.chosen;
        let shaping = shaping(settings, chosen, depth);
        let ring = Ring::new(chosen.rings.outgoing);
        let longest = shaping.longest_message(chosen.rings.longer());
        let of_channel = RunSettings {
            ring_bytes: chosen.rings.outgoing,
            message_bytes: message_in(ring, longest),
            queue_pairs: shaping.queue_pairs,
            mode: chosen.mode,
            stall: Some(settings.stall),
        };
        let paths = [(); 2].map(|()| Path::new(Rate::Any, settings.message));
        run.open(of_channel, paths, [None, None])?;
        let kept = match chosen.grows {
            true => {
                let [most_sent, most_received] = agreed.most_grown;
                let [sends, receives] = agreed.shares;
                let supplies = |share, most| Supplies {
                    share,
                    shaping,
                    mode: chosen.mode,
                    most,
                    preparation: self.preparation,
                    fails_once_in: 0,
                };
                let supplies = [
                    supplies(sends, most_sent),
                    supplies(receives, most_received),
                ];
                run.let_rings_change(channel, supplies);
                None
            }
            false => Some(agreed.shares),
        };
        let [sender, _] = &mut run.channels[channel];
        sender.send(u64::MAX, None);
        Ok(kept)
    }
}

impl DefaultsOutcome {
    /// When data flows with this share of `rate`, in bytes per second, in each interval from then on; `None` if it does not.
    pub fn warm_after(&self, share: f64, rate: u64) -> Option<Duration> {
        let cold = self.outcome.below(share, rate);
        let is_warm = cold < self.outcome.intervals.len();
        let cold = u32::try_from(cold).unwrap_or(u32::MAX);
        is_warm.then(|| self.opening + cold * self.interval)
    }
}

/// The default options, on behalf of a client.
fn settings() -> Settings {
    let options = Rdma.read_options(&[]);
    let settings = options.and_then(|options| Settings::parse(&options));
    let mut settings = settings.expect("no option is wrong");
    settings.party = Some(Party(0));
    settings
}

/// How streams are cut, with so many requests on each queue pair.
fn shaping(settings: &Settings, chosen: Offer, depth: usize) -> Shaping {
    let queue_pairs = usize::from(chosen.queue_pairs);
    Shaping {
        message: settings.message,
        fits_message: settings.fits_message,
        most_message: u64::MAX,
        queue_pairs,
        requests: queue_pairs * depth,
        pieces: usize::from(chosen.pieces),
        immediate: chosen.immediate,
    }
}

/// Memory of a pool, as the driver takes it for an adapter.
fn take(
    pool: &Arc<Pool>,
    side: Side,
    settings: &Settings,
    rings: Lengths,
) -> Result<Share, ExperimentError> {
    let cancel = Cancel::new();
    // No memory comes back while channels open: waiting would not end.
    let operation = Operation {
        deadline: Some(Instant::now()),
        cancel: &cancel,
    };
    let holder = Holder {
        side,
        pins: 1,
        party: settings.party,
    };
    let taken = pool.take(holder, rings, &operation);
    taken.map_err(|error| ExperimentError::Memory(error.to_string()))
}

/// The present rings of the first channel.
fn rings(run: &Run, shaping: Shaping) -> Rings {
    let Some([sender, receiver]) = run.channels.first() else {
        return Rings {
            bytes: [0; 2],
            message_bytes: 0,
        };
    };
    let here = sender.exchange.sender.ring_length();
    let there = receiver.exchange.receiver.ring_bytes();
    let there = NonZeroU64::new(there).unwrap_or(here);
    Rings {
        bytes: [here.get(), there.get()],
        message_bytes: shaping.shape(here.min(there), there).message_bytes,
    }
}
