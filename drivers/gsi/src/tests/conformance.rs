//! The conformance suite of channels, over each transport.

use std::sync::LazyLock;

use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::conformance_tests;

use super::ftps::Tls;
use super::{pki, stack};
use crate::{Gsi, Protection};

conformance_tests!(gsi_clear, gsi("tcp,gsi", Protection::Clear));
conformance_tests!(gsi_private, gsi("tcp,gsi", Protection::Private));
conformance_tests!(gsi_clear_in_memory, gsi("memory,gsi", Protection::Clear));
conformance_tests!(
    gsi_private_in_memory,
    gsi("memory:buffer=1M,gsi", Protection::Private)
);
conformance_tests!(
    gsi_private_in_small_pieces,
    gsi("tcp,fault:short=61;seed=7,gsi", Protection::Private)
);
conformance_tests!(ftps, Subject::new(stack("tcp,ftps", Tls::clone(&TLS))));

static TLS: LazyLock<Tls> = LazyLock::new(Tls::new);

fn gsi(spec: &str, protection: Protection) -> Subject {
    Subject::new(stack(spec, pki::alice(protection)))
}

#[test]
fn options_are_checked() {
    check_options(&pki::alice(Protection::Clear));
    check_options(&Gsi::without_session());
    check_options(&*TLS);
}
