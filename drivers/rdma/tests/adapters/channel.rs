//! A channel between two stacks of this process, and bytes over it.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::{
    Body, Cancel, Channel, DetailValue, Operation, Received, Registry, SocketOptions, Stack,
};

/// What the two ends of a channel report after a transfer, or why there was none.
pub(crate) type Outcome = Result<Vec<(String, String)>, String>;

/// The report of an end, and its channel, which is open.
type Opened = Result<(Vec<(String, String)>, Box<dyn Channel>), String>;

pub(crate) fn stack(text: &str) -> Stack {
    let mut registry = Registry::new();
    registry.register(Rdma);
    let spec = StackSpec::parse(text).expect("a stack string");
    registry.build(&spec).expect("drivers that are registered")
}

/// Sends so many bytes from the connecting end to the other one. The first outcome is that of the connecting end.
pub(crate) fn transfer(connecting: &str, accepting: &str, bytes: usize) -> [Outcome; 2] {
    transfer_as(1, connecting, accepting, bytes, || {}, || {})
}

/// The same, where the accepting end begins its part after `prepare`.
pub(crate) fn transfer_after(
    connecting: &str,
    accepting: &str,
    bytes: usize,
    prepare: impl FnOnce(),
) -> [Outcome; 2] {
    transfer_as(1, connecting, accepting, bytes, prepare, || {})
}

/// The same, with a look at the process before the channel is closed.
pub(crate) fn transfer_and_look(
    connecting: &str,
    accepting: &str,
    bytes: usize,
    look: impl FnOnce(),
) -> [Outcome; 2] {
    transfer_as(1, connecting, accepting, bytes, || {}, look)
}

/// The same over the only channel that is opened, although so many were announced.
pub(crate) fn transfer_on_one_of(
    channels: usize,
    connecting: &str,
    accepting: &str,
    bytes: usize,
) -> [Outcome; 2] {
    transfer_as(channels, connecting, accepting, bytes, || {}, || {})
}

fn transfer_as(
    channels: usize,
    connecting: &str,
    accepting: &str,
    bytes: usize,
    prepare: impl FnOnce(),
    look: impl FnOnce(),
) -> [Outcome; 2] {
    let (connecting, accepting) = (stack(connecting), stack(accepting));
    let content: Vec<u8> = (0..bytes)
        .map(|index| (index * 31 % 251).to_le_bytes()[0])
        .collect();
    let sockets = SocketOptions {
        channels,
        ..SocketOptions::default()
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = accepting.listen(local, &sockets).expect("listening");
    let address = listener.address();
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Opened {
            let cancel = Cancel::new();
            let operation = within_a_minute(&cancel);
            let channel = connecting.connect(address, &sockets, &operation);
            let mut channel = channel.map_err(|error| error.to_string())?;
            let report = send(&mut *channel, &content, &operation)?;
            Ok((report, channel))
        });
        let cancel = Cancel::new();
        let operation = within_a_minute(&cancel);
        let incoming = listener.accept(&operation).expect("accepted");
        prepare();
        let receiver = incoming.establish(&operation);
        let receiver = receiver
            .map_err(|error| error.to_string())
            .and_then(|mut channel| {
                let report = receive(&mut *channel, &content, &operation)?;
                Ok((report, channel))
            });
        let ends = [sender.join().expect("no panic"), receiver];
        look();
        ends.map(|end| end.map(|(report, _)| report))
    })
}

fn within_a_minute(cancel: &Cancel) -> Operation<'_> {
    Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel,
    }
}

fn send(channel: &mut dyn Channel, content: &[u8], operation: &Operation<'_>) -> Outcome {
    let sent = channel
        .send(b"", Body::Memory(content), operation)
        .and_then(|()| channel.finish(operation));
    sent.map_err(|error| error.to_string())?;
    Ok(report(channel))
}

fn receive(channel: &mut dyn Channel, content: &[u8], operation: &Operation<'_>) -> Outcome {
    let mut bytes = vec![0; content.len() + 1];
    let mut count = 0;
    loop {
        match channel.receive(&mut bytes[count..], operation) {
            Ok(Received::Bytes(more)) => count += more.get(),
            Ok(Received::EndOfStream) => break,
            Err(error) => return Err(format!("after {count} bytes: {error}")),
        }
    }
    assert!(bytes[..count] == *content, "other bytes arrived");
    Ok(report(channel))
}

fn report(channel: &dyn Channel) -> Vec<(String, String)> {
    let details = channel.info().details.into_iter().map(|detail| {
        let value = match detail.value {
            DetailValue::Text(text) => text.into_owned(),
            DetailValue::Setting(number)
            | DetailValue::Holding(number)
            | DetailValue::Count(number)
            | DetailValue::Shared(number) => number.to_string(),
        };
        (detail.name.to_owned(), value)
    });
    let info = channel.info();
    let reason = info.movement.map(|movement| movement.reason.to_string());
    details
        .chain(reason.map(|reason| ("reason".to_owned(), reason)))
        .collect()
}

/// The value of a name in a report.
#[track_caller]
pub(crate) fn detail<'a>(outcome: &'a Outcome, name: &str) -> &'a str {
    let report = outcome.as_ref().expect("a transfer");
    let found = report.iter().find(|(other, _)| other == name);
    found.map_or("", |(_, value)| value.as_str())
}
