//! Answers of a broker that the account's owner controls.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::Input;
use crate::client::exchange::{ask, discard, greet};
use crate::facts::Facts;
use crate::messages::{Failure, Hello, REPLY_BYTES, Ready, Reply, Request};
use crate::socket::{pair, send};

/// Not reached, because the answer is sent before the call waits for it.
const TIME: Duration = Duration::from_secs(60);

/// Processes a greeting and answers, arbitrary or valid, with descriptors or without.
pub fn replies(input: &[u8]) {
    let mut input = Input(input);
    let (ours, theirs) = pair().expect("a pair");
    let file = File::open("/dev/null").expect("opened");
    let hello = Hello(Ok(Ready {
        pid: 1,
        home: input.bytes(16).to_vec(),
    }));
    let hello = message(&mut input, &hello);
    let descriptors = vec![file.as_fd(); usize::from(input.byte() % 17)];
    if send(&theirs, &hello, &descriptors).is_ok()
        && let Ok((_, sockets)) = greet(&ours)
    {
        assert_eq!(sockets.len(), descriptors.len());
    }
    let request = postcard::to_stdvec(&Request::Stat(b"/")).expect("a request");
    let mut buffer = vec![0; REPLY_BYTES];
    while !input.is_empty() {
        let (ours, theirs) = pair().expect("a pair");
        let descriptors = vec![file.as_fd(); usize::from(input.byte() % 3)];
        let reply = reply(&mut input);
        let reply = message(&mut input, &reply);
        for _ in 0..2 {
            send(&theirs, &reply, &descriptors).expect("there is room");
        }
        match ask(&ours, &request, &mut buffer, TIME, None) {
            Ok((reply, received)) => {
                assert_eq!(received.len(), descriptors.len());
                evaluate(reply);
            }
            Err(_) => continue,
        }
        drop(theirs);
        discard(&ours);
    }
}

/// A message, unchanged or with other bytes.
fn message(input: &mut Input<'_>, sound: &impl serde::Serialize) -> Vec<u8> {
    let mut message = postcard::to_stdvec(sound).expect("a message");
    match input.byte() {
        0..=99 => {}
        100..=179 => {
            let place = usize::from(input.byte()) % message.len();
            message[place] = input.byte();
        }
        _ => {
            let length = usize::from(input.byte());
            message = input.bytes(length).to_vec();
            // An empty message would be taken for the end.
            message.push(0);
        }
    }
    message
}

fn reply(input: &mut Input<'_>) -> Reply {
    let bytes = input.bytes(40);
    match input.byte() % 5 {
        0 => Reply::Done,
        1 => Reply::Opened,
        2 => Reply::Attribute(Some(bytes.to_vec())),
        3 => postcard::from_bytes::<Facts>(bytes).map_or(Reply::Done, Reply::Facts),
        _ => postcard::from_bytes::<Failure>(bytes).map_or(Reply::Done, Reply::Failed),
    }
}

/// Processes an answer as the server does.
fn evaluate(reply: Reply) {
    match reply {
        Reply::Facts(facts) => drop(facts.into_metadata(None)),
        Reply::Failed(failure) => {
            let error = failure.into_error();
            assert!((1..=4095).contains(&error.errno.raw_os_error()), "{error}");
            assert!(!error.to_string().is_empty());
        }
        Reply::Entries { entries, .. } => {
            let mut before = None;
            for entry in entries {
                before = Some(entry.facts.into_metadata(before.take()));
            }
        }
        Reply::Done | Reply::Opened | Reply::Attribute(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::tests::over_arbitrary_bytes;

    #[test]
    fn no_answer_of_a_broker_makes_the_server_fail() {
        over_arbitrary_bytes(500, 300, replies);
    }
}
