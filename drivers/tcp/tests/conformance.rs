//! The conformance suite over `tcp`, alone and under the transforms of the stack crate.

use std::net::{IpAddr, Ipv6Addr, TcpListener};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::{Fault, Registry, Trace, conformance_tests};
use gridhaul_tcp::Tcp;

conformance_tests!(plain, subject("tcp"));
conformance_tests!(small_buffers, subject("tcp:buffer=4096;nodelay=off"));
conformance_tests!(under_trace, subject("tcp,trace"));
conformance_tests!(under_fault, subject("tcp,fault:short=61;seed=7"));
conformance_tests!(over_ipv6, ipv6_or_not("tcp"));

fn subject(stack: &str) -> Subject {
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(Tcp);
    registry.register(Trace::new(|_| {}));
    let spec = StackSpec::parse(stack).expect("a stack string");
    Subject::new(registry.build(&spec).expect("drivers that are registered"))
}

/// Listens on `::1`. On a machine without it, the suite prints a note and runs over IPv4 again.
fn ipv6_or_not(stack: &str) -> Subject {
    let localhost = Ipv6Addr::LOCALHOST;
    match TcpListener::bind((localhost, 0)) {
        Ok(_) => subject(stack).at(IpAddr::V6(localhost)),
        Err(error) => {
            eprintln!("no IPv6 on this machine, {localhost}: {error}");
            subject(stack)
        }
    }
}

#[test]
fn options_are_checked() {
    check_options(&Tcp);
}
