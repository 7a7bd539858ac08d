//! Clients that hold the memory of RDMA rings.

use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::{Cancel, Operation, Registry, SocketOptions};

use crate::world::World;

const STACK: &str = "rdma:slab=1M;slabs=6";

/// Opens another channel and keeps it. It waits once the memory for rings is used up.
pub(crate) fn hold_a_ring(world: &mut World) {
    let mut control = world.ringed.session();
    control
        .must(&format!("SITE SETNETSTACK {STACK}"), 250)
        .expect("the driver is allowed");
    let address = control.passive().expect("a port");
    control.send_line("RETR /big").expect("sent");
    let client = thread::spawn(move || {
        let mut registry = Registry::new();
        registry.register(Rdma);
        let stack = StackSpec::parse(STACK).expect("a stack");
        let stack = registry.build(&stack).expect("built");
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: Some(Instant::now() + Duration::from_secs(120)),
            cancel: &cancel,
        };
        let channel = stack.connect(address, &SocketOptions::default(), &operation);
        let mut channel = channel.expect("connected");
        // The last one waits here until the server is killed.
        let established = channel.establish(&operation);
        established.map(|()| channel)
    });
    world.held.push(Box::new((control, client)));
}
