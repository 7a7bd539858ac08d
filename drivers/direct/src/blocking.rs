//! Requests by blocking calls.

use std::io;
use std::os::fd::BorrowedFd;

use gridhaul_stack::WriteLock;
use rustix::io::Errno;

use crate::backend::RawRequest;
use crate::request::Call;

/// Carries out a request with a blocking call, which is repeated if a signal interrupts it. Returns the number of bytes moved.
///
/// # Errors
///
/// Those of the call, and EFBIG for an offset that the kernel does not take.
///
/// # Safety
///
/// The file is open. The memory is `length` bytes long, and nothing else uses it until this returns.
pub(crate) unsafe fn carry_out(request: &RawRequest) -> Result<usize, Errno> {
    let offset = libc::off_t::try_from(request.offset).map_err(|_| Errno::FBIG)?;
    let memory = request.start.cast();
    // SAFETY: the caller keeps the file open.
    let file = unsafe { BorrowedFd::borrow_raw(request.file) };
    loop {
        let _turn = request.takes_turn.then(|| WriteLock::acquire(file));
        let moved = match request.call {
            // SAFETY: the caller keeps the memory, which is `length` bytes long.
            Call::Read => unsafe { libc::pread(request.file, memory, request.length, offset) },
            // SAFETY: as above.
            Call::Write => unsafe { libc::pwrite(request.file, memory, request.length, offset) },
        };
        match usize::try_from(moved) {
            Ok(count) => return Ok(count),
            Err(_) => match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            },
        }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
