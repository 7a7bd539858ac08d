//! The conformance suite over `rdma`, alone and under the transforms of the stack crate.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::{
    Body, Built, Cancel, ChannelError, Driver as _, Fault, Operation, Received, Registry,
    SocketOptions, Trace, conformance_tests,
};

conformance_tests!(soft, subject("rdma:provider=soft"));
conformance_tests!(
    with_checksums,
    subject("rdma:provider=soft;crc=on;slab=64K;message=1K")
);
conformance_tests!(
    several_queue_pairs,
    subject("rdma:provider=soft;qps=3;slab=4K;slabs=3;message=1K")
);
conformance_tests!(
    in_messages,
    subject("rdma:provider=soft;inline=16K;crc=on;qps=2")
);
conformance_tests!(
    fetched_by_the_receiver,
    subject("rdma:mode=get;qps=2;slab=64K;slabs=3;message=4K")
);
conformance_tests!(
    fetched_under_fault,
    subject("rdma:mode=get;slab=1M,fault:short=61;seed=11")
);
conformance_tests!(
    paced,
    subject("rdma:provider=soft;rate=1000m;burst=64K;message=32K")
);
conformance_tests!(pinning_files, subject("rdma:register=dynamic"));
conformance_tests!(
    pinning_little,
    subject("rdma:register=dynamic;qps=2;slab=64K;slabs=4;message=16K")
);
conformance_tests!(
    pinning_nothing,
    subject("rdma:register=dynamic;crc=on;slab=128K;message=1K")
);
conformance_tests!(direct, subject("rdma:provider=soft;direct=1;slab=256K"));
conformance_tests!(
    direct_by_threads,
    subject("rdma:provider=soft;direct=threads;slab=1M;qps=2;inline=0")
);
conformance_tests!(
    direct_and_fetched,
    subject("rdma:mode=get;direct=1;slab=256K")
);
conformance_tests!(under_trace, subject("rdma:slab=1M,trace"));
conformance_tests!(under_fault, subject("rdma:slab=1M,fault:short=61;seed=7"));

fn subject(stack: &str) -> Subject {
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(Rdma);
    registry.register(Trace::new(|_| {}));
    let spec = StackSpec::parse(stack).expect("a stack string");
    Subject::new(registry.build(&spec).expect("drivers that are registered"))
}

#[test]
fn options_are_checked() {
    check_options(&Rdma);
}

/// A receiver looks for a small file for a moment, and goes on waiting elsewhere.
#[test]
fn a_receive_whose_time_is_over_can_be_repeated() {
    let options = [("provider".to_owned(), "soft".to_owned())];
    let Built::Transport(transport) = Rdma.build(&options).expect("built") else {
        panic!("rdma is a transport");
    };
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(20)),
        cancel: &cancel,
    };
    let sockets = SocketOptions::default();
    let mut listener = transport
        .listen(IpAddr::V4(Ipv4Addr::LOCALHOST), &sockets)
        .expect("listening");
    let address = listener.address();
    let has_waited = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = transport.connect(address, &sockets, &operation)?;
            sender.establish(&operation).expect("established");
            has_waited.wait();
            sender
                .send(b"", Body::Memory(b"hello"), &operation)
                .expect("sent");
            sender.finish(&operation).expect("finished");
            Ok::<_, gridhaul_stack::ConnectError>(())
        });
        let mut receiver = listener.accept(&operation).expect("accepted");
        receiver.establish(&operation).expect("established");
        let mut bytes = [0; 64];
        let short = Operation {
            deadline: Some(Instant::now() + Duration::from_millis(50)),
            cancel: &cancel,
        };
        let early = receiver.receive(&mut bytes, &short);
        assert!(
            matches!(early, Err(ChannelError::DeadlineExceeded)),
            "{early:?}"
        );
        has_waited.wait();
        let received = receiver.receive(&mut bytes, &operation).expect("received");
        assert!(matches!(received, Received::Bytes(count) if count.get() == 5));
        assert_eq!(&bytes[..5], b"hello");
    });
}
