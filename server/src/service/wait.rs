//! Waiting in the launcher, which never outlasts the serving process.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Why the launcher stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfinished {
    #[error("it took too long")]
    TooLate,
    #[error("the server ends")]
    ServerEnds,
    #[error("{0}")]
    Kernel(Errno),
}

/// Waits until `what` is readable. `serving` is the socket to the serving process, which sends no order meanwhile.
pub(super) fn until_readable(
    what: BorrowedFd<'_>,
    serving: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<(), Unfinished> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Unfinished::TooLate)?;
        let mut polled = [
            PollFd::from_borrowed_fd(what, PollFlags::IN),
            PollFd::from_borrowed_fd(serving, PollFlags::IN),
        ];
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(Unfinished::TooLate),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Unfinished::Kernel(errno)),
            Ok(_) if !polled[1].revents().is_empty() => return Err(Unfinished::ServerEnds),
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use gridhaul_accounts::socket::{pair, send};

    use super::*;

    #[test]
    fn waiting_ends_with_the_time_and_with_the_server() {
        let (what, other) = pair().expect("sockets");
        let (here, serving) = pair().expect("sockets");
        let wait = |time| until_readable(what.as_fd(), here.as_fd(), Instant::now() + time);
        assert_eq!(wait(Duration::ZERO), Err(Unfinished::TooLate));
        send(&other, b"x", &[]).expect("sent");
        assert_eq!(wait(Duration::from_secs(60)), Ok(()));
        drop(serving);
        assert_eq!(wait(Duration::from_secs(60)), Err(Unfinished::ServerEnds));
    }
}
