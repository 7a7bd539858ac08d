//! Monitors for a test program. They must be started before there is a second thread, but the test runner starts threads
//! before the first test. So they are started before `main`.

use std::io::Write as _;
use std::sync::Mutex;

use gridhaul_accounts::Monitor;

/// The number of monitors, of which each test takes one.
const MONITORS: usize = 20;

static STARTED: Mutex<Option<Result<Vec<Monitor>, String>>> = Mutex::new(None);

#[used]
// SAFETY: the C library calls the functions that this section points to, with arguments that may be ignored. The function
// allocates, forks and makes system calls, for which the C library is initialized by then.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let started = if rustix::process::geteuid().is_root() {
        crate::monitor_options().and_then(|(options, files)| {
            (0..MONITORS)
                .map(|_| Monitor::start(Some(options.clone()), files.clone()))
                .map(|started| started.map_err(|error| error.to_string()))
                .collect()
        })
    } else {
        Err("without root there is no monitor".to_owned())
    };
    *STARTED.lock().expect("nobody else") = Some(started);
}

/// Takes a monitor. If none could be started, ends the program with a message that no test has run.
#[expect(clippy::exit, reason = "what all tests need is missing")]
pub(crate) fn take_monitor() -> Monitor {
    let mut started = STARTED.lock().expect("nobody panicked");
    match started.as_mut().expect("it was called before main") {
        Ok(monitors) => monitors.pop().expect("enough of them"),
        Err(reason) => {
            // Not with `eprintln`, whose output the test runner captures.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: {reason}; nothing is tested here"
            );
            std::process::exit(0);
        }
    }
}
