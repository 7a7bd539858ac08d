//! Notices in the serving process that the login process hangs: it was stopped, or waits for a file system or for memory.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tracing::{error, warn};

use super::client::LoginClient;
use super::messages::{Answer, Asked, Question};
use super::sockets::LOST;

/// The interval of the questions.
const EVERY: Duration = Duration::from_secs(3);

/// The login process answers this question at once; more than this is no load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the thread that asks, which ends with the client or the login process.
///
/// # Errors
///
/// When there is no thread.
pub(super) fn start(client: &Arc<LoginClient>) -> io::Result<()> {
    let client = Arc::downgrade(client);
    thread::Builder::new()
        .name("gridhaul-watch".to_owned())
        .spawn(move || while look(&client) == Some(()) {})
        .map(drop)
}

fn look(client: &Weak<LoginClient>) -> Option<()> {
    thread::sleep(EVERY);
    let client = client.upgrade()?;
    let asked = Asked {
        ended: Vec::new(),
        question: Question::Alive,
    };
    let message = postcard::to_stdvec(&asked).ok()?;
    let late = || {
        client.is_silent.store(true, Ordering::Relaxed);
        error!(seconds = PATIENCE.as_secs(), "{LOST}: restart the server");
    };
    let answer = client.watched.ask_in_time(&message, PATIENCE, late);
    let was_silent = client.is_silent.swap(false, Ordering::Relaxed);
    matches!(answer, Some(Answer::Done)).then(|| {
        if was_silent {
            warn!("the process that decides logins answers again");
        }
    })
}
