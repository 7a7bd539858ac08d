//! The conformance suite over `splice` and `auto`, alone and under the transforms of the stack crate.

use gridhaul_protocol::stack::StackSpec;
use gridhaul_splice::{Auto, Splice};
use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::{Fault, Registry, Trace, conformance_tests};

conformance_tests!(plain, subject("splice"));
conformance_tests!(small_buffers, subject("splice:buffer=4096;nodelay=off"));
conformance_tests!(under_trace, subject("splice,trace"));
conformance_tests!(under_fault, subject("splice,fault:short=61;seed=7"));
conformance_tests!(direct, subject("splice:direct=1"));
conformance_tests!(direct_by_threads, subject("splice:direct=threads"));
conformance_tests!(automatic, subject("auto"));
conformance_tests!(automatic_under_trace, subject("auto,trace"));

fn subject(stack: &str) -> Subject {
    let mut registry = Registry::new();
    registry.register(Auto);
    registry.register(Fault);
    registry.register(Splice);
    registry.register(Trace::new(|_| {}));
    let spec = StackSpec::parse(stack).expect("a stack string");
    Subject::new(registry.build(&spec).expect("drivers that are registered"))
}

#[test]
fn options_are_checked() {
    check_options(&Splice);
    check_options(&Auto);
}
