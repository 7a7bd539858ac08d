//! Faults of certificates and revocation lists.

use crate::faults::{Fault, LASTS};

/// In rounds, because a server looks every ten seconds at what expires. No fault of a round fires the alert of another.
pub(crate) const ROUNDS: [&[Fault]; 2] = [
    &[
        Fault {
            alert: "GridhaulHostCertificateExpiresSoon",
            words: "the host certificate is replaced by one that ends in 7 days",
            target: |world| world.certified.host.metrics,
            once: |world| world.certified.replace_certificate(7),
            again: LASTS,
        },
        Fault {
            alert: "GridhaulAuthorityExpiresSoon",
            words: "the trust directory gets an authority that ends in 5 days",
            target: |world| world.certified.host.metrics,
            once: |world| world.certified.trust("Ending", 5, 4),
            again: LASTS,
        },
        Fault {
            alert: "GridhaulRevocationListExpiresSoon",
            words: "the trust directory gets a revocation list that ends in a day",
            target: |world| world.certified.host.metrics,
            once: |world| world.certified.trust("Forgotten", 300, 1),
            again: LASTS,
        },
        Fault {
            alert: "GridhaulRevocationListExpired",
            words: "the trust directory gets revocation lists that have ended",
            target: |world| world.site.metrics,
            once: |world| world.site.let_lists_expire(),
            again: LASTS,
        },
    ],
    &[
        Fault {
            alert: "GridhaulHostCertificateExpires",
            words: "the host certificate is replaced by one that ends in a day",
            target: |world| world.certified.host.metrics,
            once: |world| world.certified.replace_certificate(1),
            again: LASTS,
        },
        Fault {
            alert: "GridhaulAuthorityExpired",
            words: "the trust directory gets an authority that has ended",
            target: |world| world.certified.host.metrics,
            once: |world| world.certified.trust("Ended", -1, 100),
            again: LASTS,
        },
    ],
];
