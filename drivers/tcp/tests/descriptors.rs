//! A process without free descriptors. The only test of its file, because the limit applies to the whole process.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{AcceptError, Cancel, ConnectError, Operation, Registry, SocketOptions};
use gridhaul_tcp::Tcp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn reports_exhausted_descriptors_and_recovers() {
    let mut registry = Registry::new();
    registry.register(Tcp);
    let stack = registry.build(&StackSpec::parse("tcp").unwrap()).unwrap();
    let sockets = SocketOptions::default();
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = stack.listen(localhost, &sockets).unwrap();
    let _waiting = TcpStream::connect(listener.address()).unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };

    let before = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(0),
            ..before
        },
    )
    .unwrap();
    let accepted = listener.accept(&operation);
    let connected = stack.connect(listener.address(), &sockets, &operation);
    setrlimit(Resource::Nofile, before).unwrap();

    match accepted {
        Err(AcceptError::Listener(error)) => assert_eq!(
            error.to_string(),
            "cannot accept data connections: this process has no file descriptor left (ulimit -n)"
        ),
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(connected, Err(ConnectError::Local { .. })),
        "{connected:?}"
    );
    listener.accept(&operation).unwrap();
}
