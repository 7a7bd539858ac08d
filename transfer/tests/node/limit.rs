//! Peers that send more than the file or the part has.

use gridhaul_protocol::block::Descriptor;
use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::{Handling, PeerError};

use crate::peers::{Peer, peer_error, receive_as};
use crate::site::{Settings, Site, image, receive};

#[test]
fn nothing_is_written_behind_the_limit() {
    let limited = || Handling {
        limit: Some(10),
        ..Handling::default()
    };
    let (site, outcome, arrived) = receive_as(limited(), Settings::default(), |peer| {
        peer.block(0, b"01234567").block(8, b"xyz");
    });
    assert!(matches!(
        peer_error(outcome),
        PeerError::Excess { limit: 10 }
    ));
    assert_eq!(arrived.to_string(), "0-8");
    assert_eq!(site.read("b"), b"01234567");

    let (site, outcome, _) = receive_as(limited(), Settings::default(), |peer| {
        peer.block(0, b"01234567").block(8, b"xy");
        peer.header(Descriptor::EOF | Descriptor::EOD, 0, 1);
    });
    outcome.result.expect("all of it");
    assert_eq!(site.read("b"), b"01234567xy");

    for (bytes, is_excess) in [(&b"01234567xy"[..], false), (b"01234567xyz", true)] {
        let site = Site::new(Settings::default());
        let address = site.listen(1)[0];
        let mut plan = image(receive("b"), TransferMode::Stream, 1);
        plan.handling = limited();
        let receiver = site.start(plan);
        let mut peer = Peer::connect(address);
        peer.send(bytes);
        if !is_excess {
            peer.finish();
        }
        let outcome = receiver.finish();
        match is_excess {
            true => assert!(matches!(
                peer_error(outcome),
                PeerError::Excess { limit: 10 }
            )),
            false => outcome.result.expect("all of it"),
        }
        assert_eq!(site.read("b"), b"01234567xy");
    }
}
