//! Steps of a hostile peer, and how each is refused.

use gridhaul_stack::{ChannelError, Party};

use super::*;
use crate::handshake::Answer;

fn run(mode: Mode, steps: &[Step]) -> Result<(), String> {
    run_in(Session::open(mode, false, None).unwrap(), steps)
}

fn run_in(mut session: Session, steps: &[Step]) -> Result<(), String> {
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
    let other = Session::open(Mode::Put, false, None).unwrap();
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

/// Messages about rings that were not agreed, not due, or do not fit what the stream is.
#[test]
fn rings_change_only_as_they_were_offered() {
    let offer_of = |number, bytes, keys: &[u32]| Message::Ring {
        number,
        bytes,
        address: 0,
        keys: Keys::of(keys).unwrap(),
    };
    let offer = |number, bytes| offer_of(number, bytes, &[0]);
    let valid = offer(1, 128 << 10);
    let switch = Message::Switch {
        number: 1,
        at: 0,
        window: 1,
    };
    let left = Message::Left { number: 1 };
    let preparing = |number, bytes| Message::Preparing { number, bytes };
    let take_back = |number| Message::TakeBack { number };
    let declined = Message::Declined { number: 1 };
    let own = Message::Source {
        number: 1,
        at: 0,
        bytes: 128 << 10,
        address: 0,
        keys: Keys::of(&[0]).unwrap(),
    };
    for (mode, message) in [
        (Mode::Put, valid),
        (Mode::Put, preparing(1, 128 << 10)),
        (Mode::Put, switch),
        (Mode::Put, left),
        (Mode::Put, take_back(1)),
        (Mode::Put, declined),
        (Mode::Get, own),
    ] {
        let refused = run(mode, &[Step::Message(message)]).unwrap_err();
        assert!(refused.contains("not negotiated"), "{refused}");
    }
    for (message, words) in [
        (own, "not negotiated"),
        (offer(2, 128 << 10), "ring 2, which was not due"),
        (offer(0, 128 << 10), ""),
        (offer(1, 0), "a ring of 0 bytes"),
        (offer(1, 4096), "a ring of 4096 bytes"),
        (offer(1, u64::MAX), ""),
        (preparing(2, 128 << 10), "ring 2, which was not due"),
        (preparing(0, 128 << 10), ""),
        (preparing(1, 4096), "a ring of 4096 bytes"),
        (preparing(1, u64::MAX), ""),
        (offer_of(1, 128 << 10, &[]), "without a key for each"),
        (offer_of(1, 128 << 10, &[0, 0]), "without a key for each"),
        (switch, "ring 1, which it was not offered"),
        (left, "the ring before ring 1"),
        // The offer may have been lost with a queue pair.
        (take_back(1), ""),
        (take_back(0), ""),
        (take_back(2), "takes back ring 2, which was not due"),
        (declined, "declined ring 1, which was not taken back"),
    ] {
        let session = Session::open(Mode::Put, true, None).unwrap();
        let outcome = run_in(session, &[Step::Message(message)]);
        match outcome {
            Ok(()) => assert_eq!(words, "", "{message:?} was accepted"),
            Err(refused) => assert!(!words.is_empty() && refused.contains(words), "{refused}"),
        }
    }
    // Our end does not access the ring of a peer that reads.
    for (message, words) in [
        (offer_of(1, 128 << 10, &[]), ""),
        (offer(2, 128 << 10), "ring 2, which was not due"),
        (own, "of its own with ring 1, which it was not offered"),
        (switch, "ring 1, which it was not offered"),
    ] {
        let session = Session::open(Mode::Get, true, None).unwrap();
        match run_in(session, &[Step::Message(message)]) {
            Ok(()) => assert_eq!(words, "", "{message:?} was accepted"),
            Err(refused) => assert!(!words.is_empty() && refused.contains(words), "{refused}"),
        }
    }
    // A ring that is prepared is offered once, and no other one before it.
    for (then, words) in [
        (valid, ""),
        (preparing(1, 256 << 10), ""),
        (offer(1, 0), "a ring of 0 bytes"),
        (offer_of(1, 128 << 10, &[]), "without a key for each"),
        (preparing(2, 128 << 10), "ring 2, which was not due"),
        (offer(2, 128 << 10), "ring 2, which was not due"),
        (switch, "ring 1, which it was not offered"),
    ] {
        let session = Session::open(Mode::Put, true, None).unwrap();
        let messages = [preparing(1, 128 << 10), then].map(Step::Message);
        match run_in(session, &messages) {
            Ok(()) => assert_eq!(words, "", "{then:?} was accepted"),
            Err(refused) => assert!(!words.is_empty() && refused.contains(words), "{refused}"),
        }
    }
    // A flood of one offer is one offer, and a flood of several is refused.
    let session = Session::open(Mode::Put, true, None).unwrap();
    assert_eq!(run_in(session, &[Step::Message(valid); 500]), Ok(()));
    // So is one that is taken back again and again.
    let session = Session::open(Mode::Put, true, None).unwrap();
    let flood = [valid, take_back(1)].map(Step::Message).repeat(250);
    assert_eq!(run_in(session, &flood), Ok(()));
    let session = Session::open(Mode::Put, true, None).unwrap();
    let flood = [preparing(1, u64::MAX), take_back(1)];
    assert_eq!(
        run_in(session, &flood.map(Step::Message).repeat(250)),
        Ok(())
    );
}

/// Opens our end of a channel with a peer that only takes part in the handshake.
fn handshake_with(
    side: Side,
    options: &[(&str, &str)],
    peer: impl FnOnce(&OwnedFd, &Operation<'_>),
) -> Result<Opened, ChannelError> {
    let options: Vec<_> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let options = Rdma.read_options(&options).unwrap();
    let mut settings = Settings::parse(&options).unwrap();
    settings.party = Some(Party(1));
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(30)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let sockets = SocketOptions::default();
    let mut listener = TcpListener::open(&settings.tcp, local, &sockets).unwrap();
    let socket = TcpStream::connect((local, listener.port())).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = OwnedFd::from(socket);
    let connection = listener.accept_channel(&operation).unwrap();
    thread::scope(|scope| {
        let ours = scope.spawn(|| open(connection, side, &settings, &sockets, &operation));
        peer(&socket, &operation);
        drop(socket);
        ours.join().unwrap()
    })
}

#[test]
fn extreme_claims_get_usual_rings_and_pieces() {
    let claims = Offer {
        rings: Lengths::both(NonZeroU64::MAX),
        queue_pairs: u16::MAX,
        pieces: u16::MAX,
        mode: Mode::Put,
        immediate: true,
        inline_bytes: u16::MAX,
        aligned: false,
        adapters: 4,
        rails: 4,
        grows: true,
    };
    let path = PathRecord {
        rate: Some(NonZeroU64::MAX),
        round_trip: Duration::from_secs(4000),
    };
    let short = Lengths::both(NonZeroU64::new(64 << 10).unwrap());
    let soft = ("provider", "soft");
    let long = [soft, ("slab", "16M"), ("slabs", "4")];
    for (options, rings, most, pieces) in [
        // A ring that may grow has the pieces of one of 256 MiB.
        (&[soft][..], claims.rings, 16 << 20, 1024),
        (&long[..], short, 64 << 10, 64),
    ] {
        let mut answered = None;
        let opened = handshake_with(Side::Acceptor, options, |socket, operation| {
            let methods = Methods::default().with(Method::Soft);
            let offer = Record::Offer(Offer { rings, ..claims }, methods, path);
            handshake::write(socket, &offer, operation).unwrap();
            let Ok(Record::Answer(answer)) = handshake::read(socket, operation) else {
                panic!("no answer");
            };
            answered = Some(answer.chosen);
        });
        assert!(opened.is_err(), "the peer has left");
        let chosen = answered.unwrap();
        assert!(chosen.rings.longer().get() <= most, "{chosen:?}");
        assert_eq!((chosen.queue_pairs, chosen.pieces), (1, pieces));
        assert_eq!(chosen.rails, 1);
    }
}

#[test]
fn an_answer_with_more_pieces_than_its_rings_is_refused() {
    let options = [("provider", "soft"), ("slab", "16M"), ("slabs", "4")];
    let opened = handshake_with(Side::Connector, &options, |socket, operation| {
        let Ok(Record::Offer(offer, ..)) = handshake::read(socket, operation) else {
            panic!("no offer");
        };
        let shorter = Lengths::both(NonZeroU64::new(64 << 10).unwrap());
        let answer = Answer {
            chosen: Offer {
                rings: shorter,
                pieces: 65,
                ..offer
            },
            method: Method::Soft,
            port: 0,
            token: [0; 16],
        };
        assert!(offer.pieces > 65, "{offer:?}");
        handshake::write(socket, &Record::Answer(answer), operation).unwrap();
        // Our end leaves.
        assert!(handshake::read(socket, operation).is_err());
    });
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("more than it was offered"), "{error}");
}
