//! Counts EODs against the number that EOF announced (GFD.20 3.4).

/// EOF and EODs that do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EodError {
    /// A second EOF.
    #[error("EOF was sent twice")]
    SecondEof,
    /// More EODs than EOF announced.
    #[error("{seen} data connections ended, but EOF announced {announced}")]
    TooMany {
        /// The number that EOF announced.
        announced: u64,
        /// The number of EODs.
        seen: u64,
    },
}

/// The EOF and EODs of one stripe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndOfDataCount {
    expected: Option<u64>,
    seen: u64,
}

impl EndOfDataCount {
    /// Counts an EOF.
    ///
    /// # Errors
    ///
    /// When it is the second, or announces fewer EODs than were received.
    pub fn on_end_of_file(&mut self, eods: u64) -> Result<(), EodError> {
        if self.expected.is_some() {
            return Err(EodError::SecondEof);
        }
        if eods < self.seen {
            return Err(EodError::TooMany {
                announced: eods,
                seen: self.seen,
            });
        }
        self.expected = Some(eods);
        Ok(())
    }

    /// Counts an EOD.
    ///
    /// # Errors
    ///
    /// When there are more than announced.
    pub fn on_end_of_data(&mut self) -> Result<(), EodError> {
        let seen = self.seen + 1;
        match self.expected {
            Some(announced) if seen > announced => Err(EodError::TooMany { announced, seen }),
            _ => {
                self.seen = seen;
                Ok(())
            }
        }
    }

    /// The number that EOF announced, if it was received.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The number of EODs so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether EOF and all announced EODs were received.
    pub fn complete(&self) -> bool {
        self.expected == Some(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One event on one of a stripe's connections.
    #[derive(Debug, Clone, Copy)]
    enum End {
        OfFile(u64),
        OfData,
    }

    fn ends() -> impl Strategy<Value = Vec<End>> {
        let end = prop_oneof![
            1 => (1..6_u64).prop_map(End::OfFile),
            4 => Just(End::OfData),
        ];
        prop::collection::vec(end, 0..10)
    }

    /// The number of `OfData`.
    fn eods(events: &[End]) -> u64 {
        let ends = events.iter().filter(|end| matches!(end, End::OfData));
        ends.count() as u64
    }

    /// The announcements of all `OfFile`.
    fn announced(events: &[End]) -> Vec<u64> {
        let eods = events.iter().filter_map(|end| match end {
            End::OfFile(eods) => Some(*eods),
            End::OfData => None,
        });
        eods.collect()
    }

    proptest! {
        /// The model keeps all events and counts them again each time.
        #[test]
        fn ends_are_counted_in_any_order(ends in ends()) {
            let mut count = EndOfDataCount::default();
            let mut happened = Vec::new();
            for end in ends {
                let mut then = happened.clone();
                then.push(end);
                let possible = match announced(&then)[..] {
                    [] => true,
                    [count] => eods(&then) <= count,
                    _ => false,
                };
                let result = match end {
                    End::OfFile(eods) => count.on_end_of_file(eods),
                    End::OfData => count.on_end_of_data(),
                };
                prop_assert_eq!(result.is_ok(), possible);
                if possible {
                    happened = then;
                }
                prop_assert_eq!(count.seen(), eods(&happened));
                prop_assert_eq!(count.expected(), announced(&happened).first().copied());
                prop_assert_eq!(count.complete(), announced(&happened) == [eods(&happened)]);
            }
        }
    }

    #[test]
    fn a_second_eof_is_an_error_even_with_the_same_count() {
        let mut count = EndOfDataCount::default();
        count.on_end_of_file(1).expect("the first");
        assert_eq!(count.on_end_of_file(1), Err(EodError::SecondEof));
    }

    #[test]
    fn errors_name_both_numbers() {
        let too_many = EodError::TooMany {
            announced: 1,
            seen: 2,
        };
        let mut early = EndOfDataCount::default();
        early.on_end_of_file(1).expect("the first EOF");
        early.on_end_of_data().expect("the first EOD");
        assert_eq!(early.on_end_of_data(), Err(too_many));
        assert!(early.complete());

        let mut late = EndOfDataCount::default();
        late.on_end_of_data().expect("an EOD before EOF");
        late.on_end_of_data().expect("an EOD before EOF");
        assert_eq!(late.on_end_of_file(1), Err(too_many));
        assert!(!late.complete());
    }
}
