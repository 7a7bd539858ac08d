//! How long it takes until the memory of a ring can be used.

use std::time::Duration;

/// The time that a thread takes to map, clear and pin memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preparation {
    /// For any length.
    pub least: Duration,
    /// For each 2^30 bytes.
    pub gibibyte: Duration,
}

/// To map and clear 2^30 bytes in transparent huge pages with one thread. The driver uses several for long memory, which are
/// faster as far as the machine's memory is.
const POPULATE: Duration = Duration::from_millis(110);

/// To pin them: the kernel pins memory for io_uring and for adapters with the same function.
const PIN: Duration = Duration::from_millis(2);

impl Preparation {
    /// About the least processor time of seven runs of `what_a_gibibyte_takes` on a virtual AMD EPYC processor, 113 and 2 ms. Other
    /// programs were busy; the median was 274 and 2 ms. An adapter also gets the addresses of the pages for its tables, which was
    /// not measured.
    pub const MEASURED: Self = Self {
        least: Duration::ZERO,
        gibibyte: POPULATE.saturating_add(PIN),
    };

    /// The time for so many bytes.
    pub fn time(&self, bytes: u64) -> Duration {
        let gibibytes = bytes as f64 / (1_u64 << 30) as f64;
        self.least.saturating_add(self.gibibyte.mul_f64(gibibytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::num::NonZeroUsize;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use crate::memory::{Memory, Span};

    const GIBIBYTE: usize = 1 << 30;

    #[test]
    fn time_grows_with_the_length() {
        let preparation = Preparation {
            least: Duration::from_millis(10),
            gibibyte: Duration::from_millis(400),
        };
        assert_eq!(preparation.time(0), Duration::from_millis(10));
        assert_eq!(preparation.time(3 << 29), Duration::from_millis(610));
        let never = Preparation {
            least: Duration::MAX,
            ..preparation
        };
        assert_eq!(never.time(1 << 30), Duration::MAX);
    }

    /// Pins memory as io_uring does for registered buffers, until the returned descriptor is closed.
    fn pin(memory: &Memory) -> io::Result<OwnedFd> {
        const REGISTER_BUFFERS: libc::c_long = 0;
        // struct io_uring_params of linux/io_uring.h has 120 bytes.
        let mut params = [0_u64; 15];
        let entries: libc::c_long = 1;
        // SAFETY: the kernel reads and writes the parameters, which are as long as it expects.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params.as_mut_ptr()) };
        let ring = i32::try_from(ring).expect("a descriptor");
        if ring < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has returned a new descriptor.
        let ring = unsafe { OwnedFd::from_raw_fd(ring) };
        let buffer = libc::iovec {
            iov_base: memory.pointer(Span::new(0, memory.length())).cast(),
            iov_len: memory.length(),
        };
        let count: libc::c_long = 1;
        // SAFETY: the kernel reads one description, of memory that stays mapped while it is pinned: the caller drops the
        // descriptor first.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                ring.as_raw_fd(),
                REGISTER_BUFFERS,
                &raw const buffer,
                count,
            )
        };
        match done {
            0 => Ok(ring),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// That of all threads of the process: other programs do not count.
    fn processor_time() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let time = Duration::try_from(time);
        time.expect("it is not negative")
    }

    #[test]
    #[ignore = "measures this machine, with a gibibyte of memory"]
    fn what_a_gibibyte_takes() {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..7 {
            let began = processor_time();
            let memory = Memory::new(NonZeroUsize::new(GIBIBYTE).unwrap()).unwrap();
            let mapped = processor_time();
            let pinned = pin(&memory).unwrap();
            times[0].push(mapped - began);
            times[1].push(processor_time() - mapped);
            drop(pinned);
        }
        for (what, mut times) in ["to map and clear", "to pin"].into_iter().zip(times) {
            times.sort();
            println!(
                "{what} 1 GiB: median {:?} of {times:?} of a processor",
                times[3]
            );
        }
    }
}
