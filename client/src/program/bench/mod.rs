//! `gridhaul bench`: the rate of a path with several numbers of connections and driver stacks.
//!
//! ```text
//!   way        a transfer of some bytes: from a server, to a server, or between two of them
//!   result     the table, and what it recommends
//! ```

mod result;
mod way;

use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;

use self::result::{Results, Trial};
use self::way::{Way, WayError};
use super::Ending;
use super::arguments::BenchArguments;
use super::interrupt;
use super::output::{print, warn};

/// The bytes of the first transfer of a trial.
const FIRST_BYTES: u64 = 4 << 20;

/// No transfer has more.
const MOST_BYTES: u64 = 1 << 42;

pub(super) async fn run(arguments: &BenchArguments) -> Ending {
    let way = tokio::select! {
        way = Way::open(arguments) => way,
        () = interrupt::arrived() => return Ending::Interrupted,
    };
    let mut way = match way {
        Ok(way) => way,
        Err(WayError::Usage(words)) => {
            warn(words);
            return Ending::Usage;
        }
        Err(WayError::Failed(words)) => {
            warn(words);
            return Ending::Failed;
        }
    };
    let measured = tokio::select! {
        results = measure(arguments, &mut way) => Some(results),
        () = interrupt::arrived() => None,
    };
    // What is left at a server is removed also after an interruption.
    let cleared = way.close().await;
    if let Err(words) = &cleared {
        warn(words);
    }
    let Some(results) = measured else {
        return Ending::Interrupted;
    };
    let text = match arguments.json {
        true => results.json(),
        false => results.text(),
    };
    if let Err(error) = print(text.trim_end()) {
        warn(format_args!("standard output: {error}"));
        return Ending::Failed;
    }
    match cleared.is_ok() && results.has_any() {
        true => Ending::Complete,
        false => Ending::Failed,
    }
}

async fn measure(arguments: &BenchArguments, way: &mut Way) -> Results {
    let mut results = Results::new(&arguments.urls);
    let first = std::iter::once(arguments.channels.stack.clone());
    for stack in first.chain(arguments.also.iter().cloned().map(Some)) {
        for &parallel in &arguments.parallel {
            let mut trial = Trial::new(stack.as_ref(), parallel);
            let done = attempt(way, stack.as_ref(), &mut trial, arguments.duration).await;
            if let Err(words) = done {
                // The next trial may succeed, with connections of its own.
                warn(format_args!("{}: {words}", trial.name()));
                trial.error = Some(words);
                way.reset();
            }
            results.add(trial);
        }
    }
    results
}

/// Transfers for a time. Transfers grow until one takes a quarter of it: a short one fits into the buffers of a single connection. Until
/// then connections open, and TCP finds its rate, so these transfers do not count.
async fn attempt(
    way: &mut Way,
    stack: Option<&StackSpec>,
    trial: &mut Trial,
    duration: Duration,
) -> Result<(), String> {
    let (mut bytes, enough) = (FIRST_BYTES, duration / 4);
    loop {
        let done = way.transfer(stack, trial.parallel, bytes).await?;
        // The source has no more bytes.
        if done.took >= enough || done.bytes < bytes || bytes >= MOST_BYTES {
            break;
        }
        let factor = enough.as_secs_f64() / done.took.as_secs_f64().max(0.001);
        bytes = grown(bytes, factor);
    }
    let began = Instant::now();
    while trial.bytes == 0 || began.elapsed() + enough / 2 < duration / 2 {
        let done = way.transfer(stack, trial.parallel, bytes).await?;
        trial.add(&done);
    }
    Ok(())
}

/// The bytes of the next transfer, if so many times as many are wanted. The rate may still rise, so it gets a little more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the factor is between 1 and 16"
)]
fn grown(bytes: u64, factor: f64) -> u64 {
    let sixteenths = (factor * 1.25).clamp(1.25, 16.0) * 16.0;
    (bytes / 16)
        .saturating_mul(sixteenths as u64)
        .min(MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_grow_within_bounds() {
        assert_eq!(grown(16, 0.0), 20);
        assert_eq!(grown(1 << 20, 4.0), 5 << 20);
        assert_eq!(grown(1 << 20, f64::INFINITY), 16 << 20);
        assert_eq!(grown(MOST_BYTES, 2.0), MOST_BYTES);
    }
}
