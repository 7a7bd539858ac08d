//! Driver-stack strings.

#![no_main]

use gridhaul_protocol::stack::StackSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    if let Ok(stack) = StackSpec::parse(input) {
        assert!(!stack.drivers.is_empty());
        assert_eq!(StackSpec::parse(&stack.to_string()), Ok(stack));
    }
});
