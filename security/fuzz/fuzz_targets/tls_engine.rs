//! Arbitrary bytes on a data channel, and modified bytes of a valid connection.

#![no_main]

use gridhaul_security::tls::{TlsEngine, TlsVersions};
use gridhaul_security_fuzz::{Edits, edited, settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, Vec<Vec<u8>>, Vec<Edits>)| {
    let (is_tls12, pieces, edits) = input;
    let mut settings = settings();
    let mut stranger = TlsEngine::acceptor(&settings).expect("sound settings");
    for piece in &pieces {
        if advance(&mut stranger, piece).is_none() {
            break;
        }
    }
    assert!(stranger.peer().is_none(), "a stranger is in");

    settings.versions = match is_tls12 {
        true => TlsVersions::Only12,
        false => TlsVersions::Only13,
    };
    let mut sides = [
        TlsEngine::connector(&settings).expect("sound settings"),
        TlsEngine::acceptor(&settings).expect("sound settings"),
    ];
    let mut edits = edits.iter().chain(std::iter::repeat(const { &Vec::new() }));
    let mut changed = |bytes: &[u8]| edited(bytes, edits.next().expect("without end"));
    let mut token = Vec::new();
    for side in [0, 1, 0, 1, 0, 1, 0] {
        let Some(answer) = advance(&mut sides[side], &token) else {
            return;
        };
        token = changed(&answer);
    }
    let [connector, acceptor] = &mut sides;
    let mut records = Vec::new();
    if connector.wrap(b"what was said", &mut records).is_err() {
        return;
    }
    let records = changed(&records);
    let (mut output, mut plaintext) = (Vec::new(), Vec::new());
    let _ = acceptor.advance(&records, &mut output, &mut plaintext);
    assert!(plaintext.is_empty() || plaintext == b"what was said");
    plaintext.clear();
    for piece in &pieces {
        let _ = acceptor.advance(piece, &mut output, &mut plaintext);
        let _ = acceptor.open_in_place(&mut piece.clone(), &mut output);
    }
    assert!(plaintext.is_empty(), "a stranger is understood");
});

fn advance(engine: &mut TlsEngine, input: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    engine.advance(input, &mut output, &mut Vec::new()).ok()?;
    Some(output)
}
