//! Arbitrary tokens, and modified tokens of a valid login.

#![no_main]

use std::sync::Arc;

use gridhaul_security::context::{Context, Step};
use gridhaul_security::tls::TlsVersions;
use gridhaul_security_fuzz::{Edits, Keys, edited, settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, Vec<Vec<u8>>, Vec<Edits>)| {
    let (is_tls12, tokens, edits) = input;
    let acceptor = || Context::acceptor(&settings(), Arc::new(Keys)).expect("sound settings");

    let mut stranger = acceptor();
    for token in &tokens {
        let mut alert = Vec::new();
        match stranger.step(token, &mut alert) {
            Ok(Step::Continue(_)) => assert!(stranger.peer().is_none()),
            Ok(Step::Done(_)) => panic!("a stranger is in"),
            Err(_) => break,
        }
    }

    let mut settings = settings();
    settings.versions = match is_tls12 {
        true => TlsVersions::Only12,
        false => TlsVersions::Only13,
    };
    let mut initiator = Context::initiator(&settings, true).expect("sound settings");
    let mut acceptor = acceptor();
    let mut edits = edits.iter().chain(std::iter::repeat(const { &Vec::new() }));
    let mut answer = Vec::new();
    loop {
        let Some((token, _)) = next(&mut initiator, &answer) else {
            return;
        };
        let token = edited(&token, edits.next().expect("without end"));
        let Some((next_answer, is_done)) = next(&mut acceptor, &token) else {
            return;
        };
        if is_done {
            break;
        }
        if next_answer.is_empty() {
            return;
        }
        answer = edited(&next_answer, edits.next().expect("without end"));
    }

    let message = initiator
        .wrap(b"USER :globus-mapping:\r\n")
        .expect("complete");
    let arrived = edited(&message, edits.next().expect("without end"));
    match acceptor.unwrap(&arrived) {
        Ok(text) => assert_eq!(text, b"USER :globus-mapping:\r\n"),
        Err(_) => assert_ne!(arrived, message),
    }
    for token in &tokens {
        if let Ok(text) = acceptor.unwrap(token) {
            assert!(text.is_empty(), "a stranger is understood");
        }
    }
});

/// A context's next token, and whether it is complete.
fn next(context: &mut Context, token: &[u8]) -> Option<(Vec<u8>, bool)> {
    match context.step(token, &mut Vec::new()).ok()? {
        Step::Continue(token) => Some((token, false)),
        Step::Done(token) => Some((token, true)),
    }
}
