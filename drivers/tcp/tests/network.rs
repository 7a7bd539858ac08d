//! The effects of the options on a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{
    Body, BufferSize, Cancel, Channel, ChannelError, ConnectError, ListenError, Operation,
    Received, Registry, SocketOptions, Stack, StackListener,
};
use gridhaul_tcp::Tcp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn stack(stack: &str) -> Stack {
    let mut registry = Registry::new();
    registry.register(Tcp);
    registry.build(&StackSpec::parse(stack).unwrap()).unwrap()
}

fn listen(stack: &Stack, local: IpAddr) -> StackListener {
    stack.listen(local, &SocketOptions::default()).unwrap()
}

fn with_operation<T>(run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &Cancel::new(),
    })
}

fn connect(stack: &Stack, peer: SocketAddr) -> Result<Box<dyn Channel>, ConnectError> {
    with_operation(|operation| stack.connect(peer, &SocketOptions::default(), operation))
}

fn accept(listener: &mut StackListener) -> Box<dyn Channel> {
    with_operation(|operation| {
        let incoming = listener.accept(operation).unwrap();
        incoming.establish(operation).unwrap()
    })
}

/// Four consecutive free ports, below the ephemeral range, where thousands may be in TIME_WAIT.
fn quiet_ports() -> (u16, u16) {
    const FIRST: u32 = 10_000;
    const FOURS: u32 = 5_000;
    let start = std::process::id();
    (0..FOURS)
        .filter_map(|step| u16::try_from(FIRST + (start.wrapping_add(step) % FOURS) * 4).ok())
        .map(|first| (first, first + 3))
        .find(|&(first, last)| {
            (first..=last).all(|port| std::net::TcpListener::bind((LOCALHOST, port)).is_ok())
        })
        .expect("four free ports in a row")
}

#[test]
fn a_port_range_is_used_up_and_then_exhausted() {
    // Another process may take one of the ports, but hardly three times in a row.
    let is_used_up = (0..3).any(|_| {
        let (first, last) = quiet_ports();
        let stack = stack(&format!("tcp:port={first}-{last}"));
        let mut listeners = Vec::new();
        let error = loop {
            match stack.listen(LOCALHOST, &SocketOptions::default()) {
                Ok(listener) => listeners.push(listener),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ListenError::PortRangeExhausted { .. }));
        assert_eq!(
            error.to_string(),
            format!("no free port in the range {first}-{last}: all of them are in use")
        );
        let mut ports: Vec<u16> = listeners.iter().map(|one| one.address().port()).collect();
        assert!(ports.iter().all(|port| (first..=last).contains(port)));
        // A closed listener's port can be used again, also while one of its connections is open.
        let address = listeners[0].address();
        let _open = connect(&stack, address).unwrap();
        let _accepted = accept(&mut listeners[0]);
        listeners.remove(0);
        let again = listen(&stack, LOCALHOST);
        ports.sort_unstable();
        again.address() == address && ports.into_iter().eq(first..=last)
    });
    assert!(is_used_up);
}

/// If the kernel has no ephemeral port left, ports with old connections are used.
#[test]
fn an_ephemeral_port_can_be_reused_while_its_connections_are_open() {
    // Another process may take the port, but hardly three times in a row.
    let is_had_again = (0..3).any(|_| {
        let mut listener = listen(&stack("tcp"), LOCALHOST);
        let address = listener.address();
        let _open = connect(&stack("tcp"), address).unwrap();
        let _accepted = accept(&mut listener);
        drop(listener);
        let port = address.port();
        let stack = stack(&format!("tcp:port={port}-{port}"));
        let again = stack.listen(LOCALHOST, &SocketOptions::default());
        again.is_ok_and(|again| again.address() == address)
    });
    assert!(is_had_again);
}

#[test]
fn the_search_for_a_port_starts_at_random() {
    let stack = stack("tcp:port=20000-30000");
    let port = || listen(&stack, LOCALHOST).address().port();
    let first = port();
    assert!((0..10).any(|_| port() != first));
}

#[test]
fn the_error_names_an_address_that_is_not_local() {
    let error = stack("tcp:bind=192.0.2.1")
        .listen(LOCALHOST, &SocketOptions::default())
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("cannot listen at 192.0.2.1:0: "),
        "{message}"
    );
    let error = connect(&stack("tcp:bind=::1"), SocketAddr::new(LOCALHOST, 1)).unwrap_err();
    assert!(matches!(error, ConnectError::Local { .. }), "{error:?}");
    assert!(error.to_string().contains("bind=::1"), "{error}");
}

#[test]
fn the_advertised_address_is_announced_and_not_bound() {
    let stack = stack("tcp:advertise=198.51.100.7");
    let mut listener = listen(&stack, LOCALHOST);
    let told = listener.address();
    assert_eq!(told.ip(), IpAddr::from([198, 51, 100, 7]));
    connect(&stack, SocketAddr::new(LOCALHOST, told.port())).unwrap();
    accept(&mut listener);
}

#[test]
fn a_listener_everywhere_advertises_the_sessions_address() {
    let mut listener = listen(&stack("tcp:bind=0.0.0.0"), LOCALHOST);
    assert_eq!(listener.address().ip(), LOCALHOST);
    connect(&stack("tcp"), listener.address()).unwrap();
    accept(&mut listener);
}

#[test]
fn connections_come_from_the_bound_address() {
    let mut listener = listen(&stack("tcp"), LOCALHOST);
    let channel = connect(&stack("tcp:bind=127.0.0.9"), listener.address()).unwrap();
    assert_eq!(channel.peer(), listener.address());
    assert_eq!(
        accept(&mut listener).peer().ip(),
        IpAddr::from([127, 0, 0, 9])
    );
}

#[test]
fn ipv4_peers_of_an_ipv6_listener_are_ipv4_peers() {
    let everywhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let listener = stack("tcp").listen(everywhere, &SocketOptions::default());
    let mut listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("skipped, no IPv6 on this machine: {error}");
            return;
        }
    };
    let port = listener.address().port();
    connect(&stack("tcp"), SocketAddr::new(LOCALHOST, port)).unwrap();
    assert_eq!(accept(&mut listener).peer().ip(), LOCALHOST);

    // A mapped address, as a control channel of such a listener has it, is an IPv4 address too.
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let mut listener = listen(&stack("tcp"), mapped);
    assert_eq!(listener.address().ip(), LOCALHOST);
    let peer = SocketAddr::new(mapped, listener.address().port());
    let channel = connect(&stack("tcp"), peer).unwrap();
    assert_eq!(channel.peer(), listener.address());
    accept(&mut listener);
}

/// A link-local address of this machine with its interface, if it has one (proc_net(5): the address, and the number of the interface).
fn link_local() -> Option<SocketAddr> {
    let text = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let ip = Ipv6Addr::from(u128::from_str_radix(words.next()?, 16).ok()?);
        let interface = u32::from_str_radix(words.next()?, 16).ok()?;
        Some(SocketAddrV6::new(ip, 0, 0, interface))
    });
    let mut addresses = addresses.filter(|address| address.ip().is_unicast_link_local());
    addresses.next().map(SocketAddr::V6)
}

#[test]
fn a_link_local_address_is_used_with_its_interface() {
    let Some(local) = link_local() else {
        gridhaul_skip::skipped("this machine has no link-local address");
        return;
    };
    for stack in ["tcp", "tcp:port=20000-30000"].map(stack) {
        let without = stack.listen(local.ip(), &SocketOptions::default());
        assert!(without.is_err(), "of which interface?");
        let sockets = SocketOptions::default().at(local);
        let mut listener = stack.listen(local.ip(), &sockets).unwrap();
        connect(&stack, listener.address()).unwrap();
        accept(&mut listener);
    }
}

#[test]
fn accepted_connections_have_the_listeners_buffers() {
    let stack = stack("tcp:rcvbuf=64K");
    let sockets = SocketOptions {
        receive_buffer: BufferSize::Bytes(32 << 10),
        send_buffer: BufferSize::Bytes(32 << 10),
        ..SocketOptions::default()
    };
    let mut listener = stack.listen(LOCALHOST, &sockets).unwrap();
    let mut peer = connect(&stack, listener.address()).unwrap();
    let mut channel = accept(&mut listener);
    with_operation(|operation| {
        peer.send(b"x", Body::Memory(b""), operation).unwrap();
        channel.receive(&mut [0; 2], operation).unwrap();
        assert_eq!(channel.info().buffer_bytes, 128 << 10);
        channel.send(b"x", Body::Memory(b""), operation).unwrap();
        assert_eq!(channel.info().buffer_bytes, 64 << 10);
    });
}

#[test]
fn a_rate_holds_for_both_sides() {
    const LENGTH: usize = 500_000;
    // A megabyte a second.
    let stack = stack("tcp:rate=8m");
    let mut listener = listen(&stack, LOCALHOST);
    let connector = connect(&stack, listener.address()).unwrap();
    let acceptor = accept(&mut listener);
    let (connector, acceptor) = send_slowly(connector, acceptor, LENGTH);
    send_slowly(acceptor, connector, LENGTH);
}

fn send_slowly(
    mut sender: Box<dyn Channel>,
    mut receiver: Box<dyn Channel>,
    length: usize,
) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            with_operation(|operation| {
                let body = vec![0; length];
                sender.send(b"", Body::Memory(&body), operation).unwrap();
            });
        });
        let mut left = length;
        while left > 0 {
            match with_operation(|operation| receiver.receive(&mut [0; 9999], operation)) {
                Ok(Received::Bytes(count)) => left -= count.get(),
                other => panic!("{other:?}"),
            }
        }
    });
    // It takes a millisecond without a limit. The kernel may send a burst at the start.
    assert!(start.elapsed() > Duration::from_millis(100));
    (sender, receiver)
}

/// A listener with a full queue does not answer, as a host that is down.
fn silent_listener() -> (SocketAddr, OwnedFd, Vec<TcpStream>) {
    let flags = SocketFlags::CLOEXEC;
    let family = AddressFamily::INET;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(LOCALHOST, 0)).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    let address = SocketAddr::try_from(address).unwrap();
    let short = Duration::from_millis(200);
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, short).ok());
    let waiting = waiting.take(20).collect();
    (address, socket, waiting)
}

#[test]
fn connecting_ends_at_the_deadline_or_on_cancellation() {
    let (address, _socket, _waiting) = silent_listener();
    let stack = stack("tcp");
    let cancel = Cancel::new();
    let start = Instant::now();
    let late = Operation {
        deadline: Some(start + Duration::from_millis(50)),
        cancel: &cancel,
    };
    let outcome = stack.connect(address, &SocketOptions::default(), &late);
    assert!(
        matches!(
            outcome,
            Err(ConnectError::Channel(ChannelError::DeadlineExceeded))
        ),
        "{outcome:?}"
    );
    assert!((50..1000).contains(&start.elapsed().as_millis()));

    let endless = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let (outcome, took) = thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let outcome = stack.connect(address, &SocketOptions::default(), &endless);
            (outcome, Instant::now())
        });
        let thrown = Instant::now();
        cancel.cancel();
        let (outcome, ended) = connecting.join().unwrap();
        (outcome, ended - thrown)
    });
    assert!(
        matches!(outcome, Err(ConnectError::Channel(ChannelError::Cancelled))),
        "{outcome:?}"
    );
    assert!(took < Duration::from_secs(1));
}

/// A connected channel, and the plain socket of its peer with a small buffer.
fn with_plain_peer() -> (Box<dyn Channel>, OwnedFd) {
    let stack = stack("tcp");
    let mut listener = listen(&stack, LOCALHOST);
    let peer = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&peer, 4096).unwrap();
    rustix::net::connect(&peer, &listener.address()).unwrap();
    (accept(&mut listener), peer)
}

/// Resets the connection, and waits until the channel's socket has received the reset.
fn reset_by(peer: OwnedFd, channel: &dyn Channel) {
    sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    let socket = channel.tcp_socket().unwrap();
    // poll reports errors for any requested events.
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let time_limit = Timespec::try_from(Duration::from_secs(60)).unwrap();
    assert_eq!(poll(&mut polled, Some(&time_limit)), Ok(1));
}

#[test]
fn acknowledged_bytes_are_delivered_also_after_a_reset() {
    let (mut channel, peer) = with_plain_peer();
    with_operation(|operation| channel.send(b"content", Body::Memory(b""), operation)).unwrap();
    // The peer's host may delay the acknowledgement.
    while !channel.is_delivered() {
        thread::yield_now();
    }
    reset_by(peer, &*channel);
    let ended = with_operation(|operation| channel.finish(operation));
    assert!(matches!(ended, Err(ChannelError::Aborted)), "{ended:?}");
    assert!(channel.is_delivered());
}

#[test]
fn bytes_beyond_the_peers_buffer_are_not_delivered() {
    let (mut channel, peer) = with_plain_peer();
    // More than the peer's buffer, and less than the buffer of this end.
    let content = vec![0; 64 * 1024];
    with_operation(|operation| channel.send(&[], Body::Memory(&content), operation)).unwrap();
    assert!(!channel.is_delivered());
    reset_by(peer, &*channel);
    let ended = with_operation(|operation| channel.finish(operation));
    assert!(matches!(ended, Err(ChannelError::Aborted)), "{ended:?}");
    assert!(!channel.is_delivered());
}
