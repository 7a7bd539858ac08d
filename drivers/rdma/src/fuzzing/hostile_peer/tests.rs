//! Steps of a hostile peer, and how each is refused.

use super::*;

fn run(mode: Mode, steps: &[Step]) -> Result<(), String> {
    let mut session = Session::open(mode, None).unwrap();
    for step in steps {
        session.take(*step)?;
        if let Step::WritePiece(_) = step {
            // The kernel may take a moment.
            while session.ours.exchange.receiver.ready().length == 0 {
                session.advance()?;
            }
        }
    }
    for _ in 0..1000 {
        session.advance()?;
    }
    session.deliver(usize::MAX);
    Ok(())
}

const fn arrived(start: u64, length: u32) -> Step {
    Step::Message(Message::Arrived { start, length })
}

#[test]
fn a_correct_peer_is_accepted() {
    let pieces = [Step::WritePiece(4000), Step::Deliver(4000)].repeat(20);
    assert_eq!(run(Mode::Put, &pieces), Ok(()));
}

#[test]
fn bytes_that_were_never_written_cannot_be_announced() {
    let refused = run(Mode::Put, &[arrived(0, 16_000)]).unwrap_err();
    assert!(refused.contains("announced bytes 0 to 16000"), "{refused}");
    let partly = [
        Step::Write(0, 999),
        Step::Write(1000, 500),
        arrived(0, 1500),
    ];
    let refused = run(Mode::Put, &partly).unwrap_err();
    assert!(refused.contains("has not written"), "{refused}");
}

/// All of it was written, before the earlier files.
#[test]
fn bytes_written_before_the_credit_cannot_be_announced_again() {
    let ring = [Step::WritePiece(4096), Step::Deliver(4096)].repeat(4);
    let start = RING_BYTES as u64;
    let again = [&ring[..], &[arrived(start, 100)]].concat();
    let refused = run(Mode::Put, &again).unwrap_err();
    assert!(
        refused.contains("announced bytes 16384 to 16484"),
        "{refused}"
    );
    let anew = [&ring[..], &[Step::Write(0, 100), arrived(start, 100)]].concat();
    assert_eq!(run(Mode::Put, &anew), Ok(()));
}

#[test]
fn bytes_that_were_never_announced_cannot_be_read() {
    let all = [Step::Send(100), Step::Read(0, RING_BYTES)];
    assert_eq!(run(Mode::Get, &all), Ok(()));
    let other = Session::open(Mode::Put, None).unwrap();
    drop(other);
    let refused = run(Mode::Put, &[Step::Read(0, 100)]).unwrap_err();
    assert!(refused.contains("may not be used in this way"), "{refused}");
}

#[test]
fn writes_to_everywhere_are_refused() {
    let writes: Vec<_> = (0..8000).map(|place| Step::Write(2 * place, 1)).collect();
    let refused = run(Mode::Put, &writes).unwrap_err();
    assert!(refused.contains("places that do not touch"), "{refused}");
}
