//! Monitors for a test program. They must be started before there is a second thread, and the test
//! runner starts some before the first test: so they are started before `main`.

use std::io::Write as _;
use std::sync::Mutex;

use gridhaul_accounts::Monitor;

/// How many tests may take one.
const MONITORS: usize = 12;

static STARTED: Mutex<Option<Result<Vec<Monitor>, String>>> = Mutex::new(None);

#[used]
// SAFETY: the C library calls what this section points to, with arguments that need not be taken. What
// is done there is to allocate, to fork and to call the kernel, for which the C library is ready by then.
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

/// A monitor. Where there is none the program ends here, and says that it tested nothing.
#[expect(clippy::exit, reason = "what all tests need is missing")]
pub(crate) fn take_monitor() -> Monitor {
    let mut started = STARTED.lock().expect("nobody panicked");
    match started.as_mut().expect("it was called before main") {
        Ok(monitors) => monitors.pop().expect("enough of them"),
        Err(reason) => {
            // Not through `eprintln`, whose words the test runner keeps to itself.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: {reason}; nothing is tested here"
            );
            std::process::exit(0);
        }
    }
}
