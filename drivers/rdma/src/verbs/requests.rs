//! The outstanding requests of a queue pair.
//!
//! ibv_poll_cq(3): requests of a reliable connection complete in order. The kernel's software iWARP
//! reports a sent message before READs that were posted earlier. So completions are matched by
//! number, and an early one is kept until the earlier requests have completed.

use std::collections::VecDeque;

/// Outstanding requests, and completed ones that wait for an earlier one.
#[derive(Debug)]
pub(super) struct Requests {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    /// The number of the oldest. Numbers wrap around; there are never that many requests.
    oldest: u32,
}

#[derive(Debug)]
struct Waiting {
    /// The engine's identifier.
    id: u64,
    is_done: bool,
}

impl Requests {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(capacity),
            oldest: 0,
        }
    }

    /// The count.
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the next request.
    pub(super) fn next(&self) -> u32 {
        let count = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        self.oldest.wrapping_add(count)
    }

    /// The next request was posted.
    pub(super) fn posted(&mut self, id: u64) {
        self.waiting.push_back(Waiting { id, is_done: false });
    }

    /// The request with this number has completed. Returns the identifiers of the requests that
    /// can be reported now, in order.
    pub(super) fn done(&mut self, number: u32) -> impl Iterator<Item = u64> {
        let place = number.wrapping_sub(self.oldest) as usize;
        if let Some(request) = self.waiting.get_mut(place) {
            request.is_done = true;
        }
        std::iter::from_fn(|| {
            let first = self.waiting.pop_front_if(|first| first.is_done)?;
            self.oldest = self.oldest.wrapping_add(1);
            Some(first.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_are_done_in_order_of_posting(
            order in Just((0..20_u32).collect::<Vec<_>>()).prop_shuffle(),
            first: u32,
        ) {
            let mut requests = Requests { oldest: first, ..Requests::new(order.len()) };
            for id in 0..20 {
                prop_assert_eq!(requests.next(), first.wrapping_add(id));
                requests.posted(id.into());
            }
            let mut done = Vec::new();
            for (count, number) in order.iter().enumerate() {
                done.extend(requests.done(first.wrapping_add(*number)));
                let told = &order[..=count];
                let whole = (0..).take_while(|number| told.contains(number)).count();
                prop_assert_eq!(done.len(), whole);
            }
            prop_assert_eq!(done, (0..20).collect::<Vec<u64>>());
            prop_assert_eq!(requests.count(), 0);
        }

        #[test]
        fn requests_that_were_not_posted_cannot_complete(number: u32) {
            let mut requests = Requests::new(1);
            prop_assert_eq!(requests.done(number).count(), 0);
            prop_assert_eq!(requests.next(), 0);
        }
    }
}
