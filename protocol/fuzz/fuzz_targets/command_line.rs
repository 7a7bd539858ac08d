//! Input of a client: lines, commands, and their effect on a session.

#![no_main]

use gridhaul_protocol::command::Command;
use gridhaul_protocol::line::{LineDecoder, MAX_LINE_BYTES, encode_command_line};
use gridhaul_protocol::negotiated::{Direction, Negotiated, Setting};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut decoder = LineDecoder::for_commands();
    let mut state = Negotiated::default();
    let mut rest = input;
    while let Some(line) = decoder.decode(&mut rest) {
        let Ok(line) = line else { continue };
        assert!(line.len() <= MAX_LINE_BYTES);
        match Command::parse(&line) {
            Ok(command) => {
                state.observe(&command);
                if let Some(setting) = Setting::of(&command) {
                    let _ = state.settle(setting);
                }
                assert_survives(command);
            }
            Err(error) => assert!(error.reply().is_error()),
        }
    }
    let _ = state.begin(Direction::Send);
});

/// Encoding and parsing a command again returns the same command.
fn assert_survives(command: Command) {
    let bytes = encode_command_line(&command.encode());
    // The encoded command may be longer than the input.
    if bytes.len() <= MAX_LINE_BYTES {
        let line = LineDecoder::for_commands().decode(&mut bytes.as_slice());
        let line = line.expect("a whole line").expect("a line without a fault");
        assert_eq!(Command::parse(&line), Ok(command));
    }
}
