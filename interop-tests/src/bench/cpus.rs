//! CPU affinity: the processors of the benchmark.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    numbers: Vec<usize>,
}

impl Cpus {
    /// Parses a list in the form of `taskset -c`: `0,2-3`.
    ///
    /// # Errors
    ///
    /// When it has another form, or a number beyond the kernel's limit.
    pub fn parse(list: &str) -> Result<Self, String> {
        let wrong = || format!("`{list}` is not a list of processors such as 0,2-3");
        let mut numbers = Vec::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong())?;
            let last: usize = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last >= CpuSet::MAX_CPU {
                return Err(wrong());
            }
            numbers.extend(first..=last);
        }
        Ok(Self { numbers })
    }

    /// The processors that this process may use.
    ///
    /// # Errors
    ///
    /// When sched_getaffinity(2) fails.
    pub fn allowed() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        let numbers = (0..CpuSet::MAX_CPU)
            .filter(|number| set.is_set(*number))
            .collect();
        Ok(Self { numbers })
    }

    /// The last of them, which usually handles the fewest interrupts.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn last(&self) -> usize {
        *self.numbers.last().expect("some processor runs this")
    }

    /// Pins this thread to them, and all threads and programs that it starts later.
    ///
    /// # Errors
    ///
    /// When sched_setaffinity(2) fails, because the machine has none of them.
    pub fn pin(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        self.numbers.iter().for_each(|number| set.set(*number));
        Ok(sched_setaffinity(None, &set)?)
    }

    /// Their numbers, with commas.
    pub fn words(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(ToString::to_string).collect();
        numbers.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!(Cpus::parse("0,2-3").unwrap().words(), "0,2,3");
        for wrong in ["", "a", "3-2", "0-99999"] {
            assert!(Cpus::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_one_is_one_of_them() {
        assert_eq!(Cpus::parse("0,2-3").unwrap().last(), 3);
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let pinned = std::thread::spawn(|| {
            let first = Cpus::allowed().unwrap().numbers[0];
            Cpus::parse(&first.to_string()).unwrap().pin().unwrap();
            (Cpus::allowed().unwrap().numbers, first)
        });
        let (numbers, first) = pinned.join().unwrap();
        assert_eq!(numbers, [first]);
    }
}
