//! The short version of the program `bench-crowds`.

use gridhaul_interop::Kind;
use gridhaul_interop::bench::hostile::{Attack, Size, measure};

#[test]
fn a_client_succeeds_during_each_attack() {
    for attack in Attack::ALL {
        let outcome = measure(Kind::Gridhaul, attack, Size::QUICK).unwrap();
        assert_eq!(outcome.failures.0, 0, "{outcome:?}");
    }
}
