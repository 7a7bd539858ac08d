//! The signals that end the program: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! After the first one a command stops what it does, says what is left, and ends. The second one ends the process at once, as does
//! the end of a time limit: a file system or a server that hangs does not keep a user from stopping the program.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::process;
use std::sync::LazyLock;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Ending;
use super::output::warn;
use super::secret;

/// How long a command may take to stop, and to remove what must not stay at servers.
const GRACE: Duration = Duration::from_secs(10);

/// How long a server may take meanwhile to remove something. Commands may ask two, one after the other, before the grace is over.
pub(super) const SERVER_GRACE: Duration = Duration::from_secs(4);

/// How long the last line may take.
const LAST_WORDS: Duration = Duration::from_millis(100);

static ARRIVED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Whether the user wants the program to end.
pub(super) fn has_arrived() -> bool {
    *ARRIVED.borrow()
}

/// Waits until the user wants the program to end.
pub(super) async fn arrived() {
    let mut receiver = ARRIVED.subscribe();
    // The sender is static, so this is no error.
    let _ = receiver.wait_for(|has_arrived| *has_arrived).await;
}

/// Waits for signals on a thread and a runtime of its own: those of the command may all be blocked, by a file system or by the reader of
/// standard output.
///
/// # Errors
///
/// When the system refuses to tell signals, or gives no thread.
pub(super) fn watch() -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _entered = runtime.enter();
        all()?
    };
    let watch = async move {
        any(&mut signals).await;
        ARRIVED.send_replace(true);
        tokio::select! {
            () = any(&mut signals) => {}
            () = sleep(GRACE) => {}
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        runtime.block_on(watch);
        leave();
    })?;
    Ok(())
}

fn all() -> io::Result<Vec<Signal>> {
    let mut signals = vec![
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ];
    // With nohup the program outlives its terminal.
    if !is_ignored(SignalKind::hangup()) {
        signals.push(signal(SignalKind::hangup())?);
    }
    Ok(signals)
}

#[expect(
    clippy::exit,
    reason = "the threads of the command may be blocked for ever"
)]
fn leave() -> ! {
    secret::stop_asking();
    // Standard error may be what blocks.
    let said = thread::Builder::new().spawn(|| {
        warn("ended at once: what was begun at servers may be left there");
    });
    if said.is_ok() {
        thread::sleep(LAST_WORDS);
    }
    process::exit(i32::from(Ending::Interrupted.status()))
}

/// Waits for one of the signals.
async fn any(signals: &mut [Signal]) {
    poll_fn(|context| {
        let mut polls = signals.iter_mut().map(|signal| signal.poll_recv(context));
        match polls.any(|poll| poll.is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Whether the process was started with this signal ignored, as `nohup` does. Linux tells it as a bit of a hexadecimal number.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits >> (kind.as_raw_value() - 1) & 1 == 1)
}
