//! Input of a server: replies, and their interpretation by a client.

#![no_main]

use gridhaul_protocol::address::PassiveAddress;
use gridhaul_protocol::feature;
use gridhaul_protocol::path::parse_quoted;
use gridhaul_protocol::reply::ReplyDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut decoder = ReplyDecoder::new();
    let mut rest = input;
    while let Some(reply) = decoder.decode(&mut rest) {
        let Ok(reply) = reply else { continue };
        let again = ReplyDecoder::new().decode(&mut reply.encode().as_slice());
        assert_eq!(again, Some(Ok(reply.clone())));

        if let Ok(address) = PassiveAddress::parse(&reply) {
            let again = PassiveAddress::parse(&address.reply());
            assert_eq!(again, Ok(address));
        }
        let features = feature::parse(&reply);
        assert_eq!(feature::parse(&feature::reply(&features)), features);
        for line in reply.lines() {
            let _ = parse_quoted(line);
        }
    }
});
