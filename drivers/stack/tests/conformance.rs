//! The conformance suite over `memory`, alone and under the transforms of this crate.

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::{Fault, Memory, Null, Registry, Trace, conformance_tests};

conformance_tests!(memory, subject("memory"));
conformance_tests!(memory_with_a_tiny_buffer, subject("memory:buffer=200"));
conformance_tests!(memory_under_trace, subject("memory,trace"));
conformance_tests!(memory_under_fault, subject("memory,fault:short=61;seed=7"));

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(Memory);
    registry.register(Null);
    registry.register(Trace::new(|_| {}));
    registry
}

fn subject(stack: &str) -> Subject {
    let spec = StackSpec::parse(stack).expect("a stack string");
    Subject::new(registry().build(&spec).expect("drivers of this crate"))
}

#[test]
fn every_driver_checks_its_options() {
    for driver in registry().drivers() {
        check_options(driver);
    }
}
