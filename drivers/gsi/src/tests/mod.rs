//! Tests of the drivers, between our own ends and against the `openssl` program.

mod conformance;
mod ftps;
mod gsi;
mod kernel;
mod openssl;
mod pki;
mod value;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_splice::Splice;
use gridhaul_stack::{
    Body, Cancel, Channel, ChannelError, Driver, Fault, Memory, Operation, Received, Registry,
    SocketOptions, Stack, StackListener,
};
use gridhaul_tcp::Tcp;

/// A stack with this driver in it.
fn stack(spec: &str, driver: impl Driver + 'static) -> Stack {
    stack_over(Tcp, spec, driver)
}

/// A stack with this driver in it, and with a transport.
fn stack_over(
    transport: impl Driver + 'static,
    spec: &str,
    driver: impl Driver + 'static,
) -> Stack {
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(Memory);
    registry.register(Splice);
    registry.register(transport);
    registry.register_shared(Arc::new(driver));
    let spec = StackSpec::parse(spec).expect("a stack string");
    registry.build(&spec).expect("drivers that are registered")
}

fn listen(stack: &Stack) -> StackListener {
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    stack
        .listen(localhost, &SocketOptions::default())
        .expect("a free port")
}

/// An operation with a timeout, so that a failing test ends.
fn with_operation<T>(run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &Cancel::new(),
    })
}

fn accept(listener: &mut StackListener) -> Result<Box<dyn Channel>, ChannelError> {
    with_operation(|operation| {
        let incoming = listener.accept(operation).expect("a peer connects");
        incoming.establish(operation)
    })
}

fn send(channel: &mut dyn Channel, bytes: &[u8]) {
    with_operation(|operation| channel.send(&[], Body::Memory(bytes), operation))
        .expect("the peer receives");
}

/// All bytes up to the end of the stream.
fn receive_all(channel: &mut dyn Channel) -> Result<Vec<u8>, ChannelError> {
    let mut content = Vec::new();
    let mut buffer = vec![0; 50_000];
    loop {
        match with_operation(|operation| channel.receive(&mut buffer, operation))? {
            Received::Bytes(count) => content.extend_from_slice(&buffer[..count.get()]),
            Received::EndOfStream => return Ok(content),
        }
    }
}

/// Bytes without a short period.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0])
        .collect()
}
