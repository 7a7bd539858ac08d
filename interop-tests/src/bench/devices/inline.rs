//! Small payloads: inline in the message that announces them, or in a separate WRITE.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_stack::{Body, Cancel, Channel, ChannelError, Operation, Received};

use super::pump::open_pairs;
use super::runs::{Runs, in_one_line, share};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section};
use crate::bench::record::table;
use crate::bench::sample::median;
use crate::support::guest_network::RIGHT;
use crate::support::usage::busy_time;

const ROUNDS: usize = 3;

/// The duration of a run.
const TIME: Duration = Duration::from_millis(400);

/// The time limit of a run, including the opening of its channel.
const LIMIT: Duration = Duration::from_secs(20);

/// Payload sizes in bytes.
const PAYLOADS: [usize; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// The options of the driver: all payloads inline, and none.
const OPTIONS: [&str; 2] = ["inline=16K", "inline=0"];

/// Both options for one stack and payload.
struct Cell {
    stack: &'static str,
    payload_bytes: usize,
    runs: [Runs; 2],
    /// Processor time for each payload, in microseconds.
    processor: [Option<f64>; 2],
}

/// The result of one run.
struct Sent {
    per_second: f64,
    /// Time of all processors for each payload.
    processor: Duration,
}

/// `name` is the file name of the picture.
pub(super) fn measure(over: &str, name: &str, stacks: &[&'static str]) -> Section {
    let cells = stacks
        .iter()
        .flat_map(|stack| PAYLOADS.map(|payload_bytes| cell(stack, payload_bytes)));
    let cells: Vec<Cell> = cells.collect();
    Section {
        title: format!("Small payloads inline, {over}"),
        description: format!(
            "The paper on PVFS over InfiniBand: one channel, one call for each payload, which is sent in the message that \
             announces it (`inline=16K`) or in a separate WRITE (`inline=0`). Processor time is that of both ends for each \
             payload. Each number is the median of {ROUNDS} alternating runs."
        ),
        table: cells_table(&cells),
        targets: Vec::new(),
        pictures: vec![Picture {
            name: name.to_owned(),
            plot: plot(over, stacks, &cells),
        }],
    }
}

fn cell(stack: &'static str, payload_bytes: usize) -> Cell {
    let mut processor = [Vec::new(), Vec::new()];
    let runs = Runs::take(ROUNDS, &[0, 1], |&option| {
        let stack = format!("{stack};{}", OPTIONS[option]);
        let sent = send(&stack, payload_bytes)?;
        processor[option].push(sent.processor.as_secs_f64() * 1e6);
        Ok(sent.per_second)
    });
    let mut runs = runs.into_iter();
    Cell {
        stack,
        payload_bytes,
        runs: [(); 2].map(|()| runs.next().unwrap_or_default()),
        processor: processor.map(|times| (!times.is_empty()).then(|| median(&times))),
    }
}

/// Sends payloads of this length for [`TIME`]. The error is one line of text.
fn send(stack: &str, payload_bytes: usize) -> Result<Sent, String> {
    let line = |error: &dyn std::error::Error| in_one_line(&error.to_string());
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + LIMIT),
        cancel: &cancel,
    };
    let to = RIGHT.parse().expect("an address of ours");
    let mut pairs = open_pairs(stack, to, 1, &operation).map_err(|error| line(&error))?;
    let (sender, receiver) = pairs.first_mut().expect("one was asked for");
    let busy = busy_time().map_err(|error| line(&error))?;
    let started = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let sending =
            scope.spawn(|| send_all(&mut **sender, payload_bytes, started + TIME, &operation));
        let received = receive_all(&mut **receiver, &operation);
        (sending.join().expect("a sender does not panic"), received)
    });
    let elapsed = started.elapsed();
    received.map_err(|error| line(&error))?;
    let count = sent.map_err(|error| line(&error))?;
    let busy = busy_time()
        .map_err(|error| line(&error))?
        .saturating_sub(busy);
    Ok(Sent {
        per_second: f64::from(count.get()) / elapsed.as_secs_f64(),
        processor: busy / count.get(),
    })
}

/// Returns the number of sent payloads.
fn send_all(
    channel: &mut dyn Channel,
    payload_bytes: usize,
    until: Instant,
    operation: &Operation<'_>,
) -> Result<NonZeroU32, ChannelError> {
    let payload = vec![7; payload_bytes];
    let mut count = NonZeroU32::MIN;
    channel.send(&[], Body::Memory(&payload), operation)?;
    while Instant::now() < until {
        channel.send(&[], Body::Memory(&payload), operation)?;
        count = count.saturating_add(1);
    }
    channel.finish(operation)?;
    Ok(count)
}

fn receive_all(channel: &mut dyn Channel, operation: &Operation<'_>) -> Result<(), ChannelError> {
    let mut scratch = vec![0; 1 << 20];
    while channel.receive(&mut scratch, operation)? != Received::EndOfStream {}
    Ok(())
}

fn cells_table(cells: &[Cell]) -> String {
    let row = |cell: &Cell| {
        let [inline, separate] = &cell.runs;
        let processor = cell
            .processor
            .map(|time| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}")));
        let [inline_time, separate_time] = processor;
        [
            format!("`{}`", cell.stack),
            cell.payload_bytes.to_string(),
            inline.cell(),
            separate.cell(),
            share(inline.of(separate)),
            inline_time,
            separate_time,
        ]
    };
    let heading = [
        "stack",
        "payload, bytes",
        "inline, messages/s",
        "separate, messages/s",
        "ratio",
        "inline, processor us",
        "separate, processor us",
    ];
    table(heading, cells.iter().map(row).collect())
}

fn plot(over: &str, stacks: &[&'static str], cells: &[Cell]) -> Plot {
    let line = |stack: &&str| {
        let of_stack = cells.iter().filter(|cell| cell.stack == *stack);
        let points = of_stack.filter_map(|cell| {
            let [inline, separate] = &cell.runs;
            let place = PAYLOADS
                .iter()
                .position(|&bytes| bytes == cell.payload_bytes)?;
            Some([place as f64, inline.of(separate)?])
        });
        PlotLine {
            name: (*stack).to_owned(),
            is_model: false,
            points: points.collect(),
        }
    };
    let mut lines: Vec<_> = stacks.iter().map(line).collect();
    lines.push(PlotLine {
        name: "separate".to_owned(),
        is_model: true,
        points: (0..PAYLOADS.len())
            .map(|place| [place as f64, 1.0])
            .collect(),
    });
    Plot {
        title: format!("Inline payloads, {over}"),
        horizontal: Axis::steps("payload in bytes", PAYLOADS.map(|bytes| bytes.to_string())),
        vertical: "messages/s, ratio".to_owned(),
        lines,
    }
}
