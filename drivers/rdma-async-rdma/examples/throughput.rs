//! Copies memory from one end of a channel to the other, by async-rdma and by the driver's own verbs, and prints how fast.
//!
//! `throughput ADDRESS OPTIONS MEBIBYTES`: an address of this machine that has a RoCE device, and options of the driver such
//! as `slab=16M;message=1M`. Both ends are threads of this program.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Body, Cancel, Channel, Operation, Received, Registry, SocketOptions, Stack};

/// What is sent with one call.
const BLOCK_BYTES: usize = 4 << 20;

/// Calls before the clock starts: memory is touched for the first time.
const WARM_UP: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, options, mebibytes] = &arguments[..] else {
        return Err("usage: throughput ADDRESS OPTIONS MEBIBYTES".into());
    };
    let address: IpAddr = address.parse()?;
    let calls = (mebibytes.parse::<usize>()? << 20) / BLOCK_BYTES;
    let mut verbs = Registry::new();
    verbs.register(gridhaul_rdma::Rdma);
    let mut async_rdma = Registry::new();
    async_rdma.register(gridhaul_rdma_async_rdma::driver());
    for (name, registry, provider) in [
        ("verbs", verbs, "provider=verbs;"),
        ("async-rdma", async_rdma, ""),
    ] {
        let spec = StackSpec::parse(&format!("rdma:{provider}{options}"))?;
        let stack = registry.build(&spec)?;
        let (time, processor_time) = copy(&stack, address, calls);
        let megabytes = (calls * BLOCK_BYTES) as f64 / 1e6;
        println!(
            "{name}: {:.0} MB/s, {:.2} s of processor time for each GB",
            megabytes / time.as_secs_f64(),
            processor_time.as_secs_f64() * 1e3 / megabytes,
        );
    }
    Ok(())
}

/// Sends so many blocks over a channel; returns how long it took, by the clock and of processors.
fn copy(stack: &Stack, address: IpAddr, calls: usize) -> (Duration, Duration) {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(600)),
        cancel: &cancel,
    };
    let sockets = SocketOptions::default();
    let mut listener = stack.listen(address, &sockets).expect("a listener");
    let peer = listener.address();
    thread::scope(|scope| {
        scope.spawn(|| {
            let channel = stack.connect(peer, &sockets, &operation);
            let mut channel = channel.expect("a channel");
            let block = vec![7; BLOCK_BYTES];
            for _ in 0..WARM_UP + calls {
                let sent = channel.send(&[], Body::Memory(&block), &operation);
                sent.expect("the peer receives");
            }
            channel.finish(&operation).expect("the peer receives");
        });
        let incoming = listener.accept(&operation).expect("a connection");
        let mut channel = incoming.establish(&operation).expect("a channel");
        receive(channel.as_mut(), WARM_UP, &operation);
        let (start, processor_start) = (Instant::now(), processor_time());
        receive(channel.as_mut(), calls, &operation);
        let times = (start.elapsed(), processor_time() - processor_start);
        let end = channel.receive(&mut [0], &operation);
        assert_eq!(end.expect("the end of the stream"), Received::EndOfStream);
        times
    })
}

fn receive(channel: &mut dyn Channel, blocks: usize, operation: &Operation<'_>) {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut left = blocks * BLOCK_BYTES;
    while left > 0 {
        let room = left.min(BLOCK_BYTES);
        match channel.receive(&mut buffer[..room], operation) {
            Ok(Received::Bytes(count)) => left -= count.get(),
            other => panic!("{left} bytes are missing: {other:?}"),
        }
    }
}

/// Of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a process has no negative time")
}
